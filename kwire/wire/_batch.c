/* A closed run as a v2 batch, in C: `BatchBuilder.batch`; see `_run.py` and `header.py`, its specification. */
#include "_speedups.h"

#include "_run.h"

#define LENGTH_COVERS_FROM 12
#define CRC_AT 17
#define CHECKED_AT 21
#define MAGIC 2

/* Less is left for later. */
#define SUMMED_MIN (16 * 1024)

static unsigned char *
put_number(unsigned char *at, int64_t n, int size)
{
    for (int shift = 8 * size - 8; shift >= 0; shift -= 8) {
        *at++ = (unsigned char)((uint64_t)n >> shift);
    }
    return at;
}

void
run_sum(run_t *run)
{
    if (run->data != NULL && run->used - run->summed >= SUMMED_MIN) {
        run->sum = crc32c_state(run->sum, run->data + BATCH_OVERHEAD + run->summed, run->used - run->summed);
        run->summed = run->used;
    }
}

/* Of a closed run. */
static void
sum_rest(run_t *run)
{
    bytes_t at = run->data + BATCH_OVERHEAD + run->summed;
    const size_t size = run->used - run->summed;
    uint32_t state = run->sum;
    if (size < CRC_WITHOUT_LOCK_MIN) {
        state = crc32c_state(state, at, size);
    }
    else {
        run->exports++; /* it is not given back meanwhile */
        Py_BEGIN_ALLOW_THREADS
        state = crc32c_state(state, at, size);
        Py_END_ALLOW_THREADS
        run->exports--;
    }
    run->sum = state;
    run->summed = run->used;
}

/* All but the CRC. */
static void
put_header(unsigned char *at, const run_t *run, int attributes, int64_t producer_id, int producer_epoch, int base_sequence)
{
    at = put_number(at, 0, 8); /* base offset */
    at = put_number(at, (int64_t)(BATCH_OVERHEAD - LENGTH_COVERS_FROM + run->used), 4);
    at = put_number(at, -1, 4); /* leader epoch */
    at = put_number(at, MAGIC, 1);
    at = put_number(at, 0, CHECKED_AT - CRC_AT);
    at = put_number(at, attributes, 2);
    at = put_number(at, (int64_t)run->count - 1, 4);
    at = put_number(at, run->base_timestamp, 8);
    at = put_number(at, run->max_timestamp, 8);
    at = put_number(at, producer_id, 8);
    at = put_number(at, producer_epoch, 2);
    at = put_number(at, base_sequence, 4);
    put_number(at, run->count, 4);
}

/* The memory that the batch is to be made in: the run's own, unless somebody holds that as it was. `*copy` is then a
 * copy of it. NULL with an exception. */
static unsigned char *
memory_of(run_t *run, PyObject **copy)
{
    if (run->exports == 0) {
        return run->data;
    }
    *copy = PyBytes_FromStringAndSize((const char *)run->data, (Py_ssize_t)(BATCH_OVERHEAD + run->used));
    return *copy == NULL ? NULL : (unsigned char *)PyBytes_AsString(*copy);
}

/* (attributes, producer_id, producer_epoch, base_sequence) -> bytes-like */
PyObject *
run_batch(run_t *run, PyObject *args)
{
    short attributes, producer_epoch;
    int base_sequence;
    long long producer_id;
    if (!PyArg_ParseTuple(args, "hLhi", &attributes, &producer_id, &producer_epoch, &base_sequence)) {
        return NULL;
    }
    if (!run->is_closed || run->data == NULL || run->is_freed) {
        PyErr_SetString(PyExc_AssertionError, "a run is a batch when it is closed and not dropped");
        return NULL;
    }
    PyObject *copy = NULL;
    unsigned char *data = memory_of(run, &copy);
    if (data == NULL) {
        return NULL;
    }
    put_header(data, run, attributes, producer_id, producer_epoch, base_sequence);
    sum_rest(run);
    uint32_t state = crc32c_state(~(uint32_t)0, data + CHECKED_AT, BATCH_OVERHEAD - CHECKED_AT);
    put_number(data + CRC_AT, ~(crc32c_zeros(state, run->used) ^ run->sum), CHECKED_AT - CRC_AT);
    return copy == NULL ? PyMemoryView_FromObject(OBJECT(run)) : copy;
}
