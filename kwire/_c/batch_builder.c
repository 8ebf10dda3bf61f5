/* BatchBuilder: see kwire/producer/batch_builder.py.
 *
 * Records stand in a builder in their final form, so that a batch needs no more than a header. No Python code runs between
 * looking at a builder and changing it, so the GIL is all the lock there is: `resolve` writes the outcome and takes the
 * waiters in one step, `add_waiter` looks for the outcome and adds the waiter in one step.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "buffers.h"
#include <structmember.h>

#define FIRST_ROOM 512

/* ---- filling ---------------------------------------------------------------------------------------------------- */

int
grow(void **array, uint32_t used, uint32_t *room, size_t size)
{
    if (used < *room) {
        return 0;
    }
    uint32_t wanted = *room ? *room * 2 : 4;
    if (wanted < *room) {
        PyErr_NoMemory();
        return -1;
    }
    void *grown = PyMem_Realloc(*array, wanted * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = grown;
    *room = wanted;
    return 0;
}

static int
make_room(run_t *run, size_t size, size_t hint)
{
    size_t needed = BATCH_OVERHEAD + run->used + size;
    if (needed <= run->room) {
        return 0;
    }
    size_t room = run->room ? run->room * 2 : (hint > FIRST_ROOM ? hint : FIRST_ROOM);
    size_t full = (size_t)run->bytes_max;
    if (room > full && full >= needed) {
        room = full; /* it closes before it needs more */
    }
    if (room < needed) {
        room = needed;
    }
    unsigned char *data = memory_grow(run->data, run->room, run->data == NULL ? 0 : BATCH_OVERHEAD + run->used, &room);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    run->data = data;
    run->room = room;
    return 0;
}

static int
headers_size(PyObject *headers, size_t *total)
{
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_Size(headers);
    *total += varint_size(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        if (!is_header(headers, index, &name, &value)) {
            PyErr_SetString(PyExc_TypeError, "headers are a tuple of (str, bytes or None)");
            return -1;
        }
        *total += span_size(name) + span_size(value);
    }
    return 0;
}

static unsigned char *
put_headers(unsigned char *at, PyObject *headers)
{
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_Size(headers);
    at = put_varint(at, count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        is_header(headers, index, &name, &value);
        at = put_span(put_span(at, name), value);
    }
    return at;
}

int
run_put(run_t *run, const entry_t *entry, Py_ssize_t counted, size_t room_hint)
{
    int64_t after = 0;
    int is_marked = run->count == 0 || entry->timestamp != run->last_timestamp;
    if (run->count && __builtin_sub_overflow(entry->timestamp, run->base_timestamp, &after)) {
        PyErr_SetString(PyExc_ValueError, "timestamps of a run are too far apart");
        return -1;
    }
    size_t size = 1 + varint_size(after) + varint_size(run->count);
    if (entry->tail.at != NULL) {
        size += (size_t)entry->tail.size;
    }
    else {
        size += span_size(entry->key) + span_size(entry->value);
        if (headers_size(entry->headers, &size) < 0) {
            return -1;
        }
    }
    if (size > INT32_MAX - BATCH_OVERHEAD - run->used || run->count == INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a run holds less than 2 GiB");
        return -1;
    }
    if (make_room(run, size + varint_size((int64_t)size), room_hint) < 0 ||
        (is_marked && grow((void **)&run->marks, run->marks_used, &run->marks_room, sizeof(mark_t)) < 0)) {
        return -1;
    }
    run->is_closed |= run_size(run) + counted >= run->bytes_max;
    unsigned char *start = run->data + BATCH_OVERHEAD + run->used;
    unsigned char *at = put_varint(start, (int64_t)size);
    *at++ = 0; /* attributes */
    at = put_varint(put_varint(at, after), run->count);
    if (entry->tail.at != NULL) {
        memcpy(at, entry->tail.at, (size_t)entry->tail.size);
        at += entry->tail.size;
        run->has_headers |= entry->has_headers;
    }
    else {
        at = put_headers(put_span(put_span(at, entry->key), entry->value), entry->headers);
        run->has_headers |= entry->headers != NULL && PyTuple_Size(entry->headers) > 0;
    }
    run->used += (size_t)(at - start);
    if (is_marked) {
        run->marks[run->marks_used++] = (mark_t){run->count, entry->timestamp};
        run->last_timestamp = entry->timestamp;
        if (run->count == 0) {
            run->base_timestamp = run->max_timestamp = entry->timestamp;
        }
        else if (entry->timestamp > run->max_timestamp) {
            run->max_timestamp = entry->timestamp;
        }
    }
    run->count++;
    run->buffered_bytes += counted;
    return 0;
}

/* ---- making and ending ------------------------------------------------------------------------------------------ */

PyObject *
run_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms, PyObject *dispatch,
        PyTypeObject *place_type)
{
    run_t *run = (run_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all else is 0 */
    if (run == NULL) {
        return NULL;
    }
    run->topic = topic;
    run->terms = terms;
    run->dispatch = dispatch;
    run->since = Py_None;
    Py_INCREF(topic);
    Py_INCREF(terms);
    Py_INCREF(dispatch);
    Py_INCREF(Py_None);
    run->future_type = place_type;
    Py_XINCREF(OBJECT(place_type));
    run->partition = partition;
    run->bytes_max = bytes_max;
    run->base_timestamp = run->max_timestamp = -1;
    return (PyObject *)run;
}

static PyObject *
run_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", "bytes_max", "terms", "dispatch", NULL};
    PyObject *topic, *terms = Py_None, *dispatch = Py_None;
    int partition;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Uin|OO", names, &topic, &partition, &bytes_max, &terms, &dispatch)) {
        return NULL;
    }
    return run_new(type, topic, partition, bytes_max < 1 ? 1 : bytes_max, terms, dispatch, NULL);
}

static void
free_data(run_t *run)
{
    run->is_freed = 1;
    if (run->exports == 0 && run->data != NULL) {
        memory_give(run->data, run->room);
        run->data = NULL;
        run->room = 0;
    }
}

void
run_forget(run_t *run)
{
    PyObject *late = run->late;
    run->late = NULL;
    free_data(run);
    callbacks_clear(&run->callbacks);
    Py_XDECREF(late);
}

static void
run_dealloc(run_t *run)
{
    PyTypeObject *type = Py_TYPE(OBJECT(run));
    for (uint32_t index = 0; index < run->parts_used; index++) {
        Py_XDECREF(run->parts[index].error);
    }
    for (uint32_t index = 0; run->children != NULL && index < run->count; index++) {
        Py_XDECREF(OBJECT(run->children[index].run));
    }
    callbacks_clear(&run->callbacks);
    Py_XDECREF(OBJECT(run->future_type));
    Py_XDECREF(run->topic);
    Py_XDECREF(run->terms);
    Py_XDECREF(run->dispatch);
    Py_XDECREF(run->since);
    Py_XDECREF(run->late);
    if (run->data != NULL) {
        memory_give(run->data, run->room);
    }
    PyMem_Free(run->marks);
    PyMem_Free(run->parts);
    PyMem_Free(run->children);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(run);
    Py_DECREF(type);
}

/* ---- the bytes of a closed run ------------------------------------------------------------------------------------ */

static int
run_getbuffer(run_t *run, Py_buffer *view, int flags)
{
    if (!run->is_closed || run->data == NULL || run->is_freed) {
        PyErr_SetString(PyExc_BufferError, "a run has bytes when it is closed and not dropped");
        return -1;
    }
    if (PyBuffer_FillInfo(view, (PyObject *)run, run->data, (Py_ssize_t)(BATCH_OVERHEAD + run->used), 1, flags) < 0) {
        return -1;
    }
    run->exports++;
    return 0;
}

static void
run_releasebuffer(run_t *run, Py_buffer *Py_UNUSED(view))
{
    run->exports--;
    if (run->is_freed) {
        free_data(run);
    }
}

static PyObject *
run_body(run_t *run, PyObject *Py_UNUSED(none))
{
    PyObject *whole = PyMemoryView_FromObject((PyObject *)run);
    if (whole == NULL) {
        return NULL;
    }
    PyObject *start = PyLong_FromLong(BATCH_OVERHEAD);
    PyObject *slice = start == NULL ? NULL : PySlice_New(start, NULL, NULL);
    PyObject *body = slice == NULL ? NULL : PyObject_GetItem(whole, slice);
    Py_XDECREF(start);
    Py_XDECREF(slice);
    Py_DECREF(whole);
    return body;
}

int64_t
run_timestamp(const run_t *run, uint32_t number)
{
    uint32_t low = 0, high = run->marks_used;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (run->marks[middle].from <= number) {
            low = middle;
        }
        else {
            high = middle;
        }
    }
    return run->marks[low].timestamp;
}

/* (timestamp, key, value, headers) of the record at `*at`, which this file wrote. */
static PyObject *
row_at(const run_t *run, bytes_t *at, uint32_t number)
{
    bytes_t end = run->data + BATCH_OVERHEAD + run->used;
    int64_t ignored;
    bytes_t pos = get_varint(*at, end, &ignored) + 1;
    pos = get_varint(get_varint(pos, end, &ignored), end, &ignored);
    PyObject *key = NULL, *value = NULL, *headers = NULL, *row = NULL;
    if (get_nullable_bytes(&pos, end, &key) == 1 && get_nullable_bytes(&pos, end, &value) == 1 &&
        get_headers(&pos, end, &headers) == 1) {
        row = Py_BuildValue("(LOOO)", (long long)run_timestamp(run, number), key, value, headers);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    *at = pos;
    return row;
}

static PyObject *
run_rows(run_t *run, PyObject *args)
{
    Py_ssize_t start = 0;
    PyObject *end_or_none = Py_None;
    if (!PyArg_ParseTuple(args, "|nO", &start, &end_or_none)) {
        return NULL;
    }
    if (!run->is_closed) {
        PyErr_SetString(PyExc_AssertionError, "a run has rows when it is closed");
        return NULL;
    }
    Py_ssize_t end = end_or_none == Py_None ? (Py_ssize_t)run->count : PyNumber_AsSsize_t(end_or_none, NULL);
    if (end == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    if (rows == NULL || run->data == NULL || run->is_freed) {
        return rows;
    }
    /* Making objects may collect garbage, and that run code that drops the run: so it is held, and looked at again. */
    size_t place = 0;
    for (uint32_t number = 0; number < run->count && number < end; number++) {
        bytes_t at = run->data + BATCH_OVERHEAD + place, limit = run->data + BATCH_OVERHEAD + run->used;
        int64_t size = 0;
        bytes_t body = get_varint(at, limit, &size);
        place = (size_t)(body - run->data) - BATCH_OVERHEAD + (size_t)size;
        if (number < start) {
            continue;
        }
        run->exports++;
        PyObject *row = row_at(run, &at, number);
        run_releasebuffer(run, NULL);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            Py_DECREF(rows);
            return NULL;
        }
        Py_DECREF(row);
        if (run->data == NULL) {
            break;
        }
    }
    return rows;
}

/* ---- the rest of BatchBuilder --------------------------------------------------------------------------------------------- */

static PyObject *
run_append(run_t *run, PyObject *args)
{
    entry_t entry = {0};
    long long timestamp;
    PyObject *key, *value;
    Py_ssize_t counted;
    if (!PyArg_ParseTuple(args, "LOOO!n", &timestamp, &key, &value, &PyTuple_Type, &entry.headers, &counted)) {
        return NULL;
    }
    entry.timestamp = timestamp;
    if (run->is_closed || !is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value)) {
        PyErr_SetString(PyExc_AssertionError, "an open run takes bytes or None");
        return NULL;
    }
    return run_put(run, &entry, counted, 0) < 0 ? NULL : PyLong_FromUnsignedLong(run->count - 1);
}

static PyObject *
run_close(run_t *run, PyObject *Py_UNUSED(none))
{
    run->is_closed = 1;
    Py_RETURN_NONE;
}

static PyObject *
run_drop(run_t *run, PyObject *count)
{
    unsigned long n = PyLong_AsUnsignedLong(count);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    run->dropped += (uint32_t)n;
    if (run->dropped >= run->count) {
        free_data(run);
    }
    Py_RETURN_NONE;
}

static PyObject *
run_size_bytes(run_t *run, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(run_size(run));
}

static Py_ssize_t
run_length(run_t *run)
{
    return (Py_ssize_t)run->count;
}

static PyMethodDef run_methods[] = {
    {"append", (PyCFunction)(void (*)(void))run_append, METH_VARARGS, "(timestamp, key, value, headers, counted)"},
    {"close", (PyCFunction)(void (*)(void))run_close, METH_NOARGS, "No record joins it from now on."},
    {"rows", (PyCFunction)(void (*)(void))run_rows, METH_VARARGS, "(start=0, end=None)"},
    {"body", (PyCFunction)(void (*)(void))run_body, METH_NOARGS, "Its records as in an uncompressed v2 batch."},
    {"batch", (PyCFunction)(void (*)(void))run_batch, METH_VARARGS, "(attributes, producer_id, epoch, sequence)"},
    {"drop", (PyCFunction)(void (*)(void))run_drop, METH_O, "So many more will not be asked for again."},
    {"resolve", (PyCFunction)(void (*)(void))run_resolve, METH_VARARGS, "(start, end, base, append_time, error)"},
    {"done", (PyCFunction)(void (*)(void))run_done, METH_O, "Whether a record's outcome is known."},
    {"outcome", (PyCFunction)(void (*)(void))run_outcome, METH_O, "(partition, offset, timestamp, error) | None"},
    {"outcomes", (PyCFunction)(void (*)(void))run_outcomes, METH_VARARGS, "(start, end) -> what is known of those"},
    {"report", (PyCFunction)(void (*)(void))run_report, METH_VARARGS, "(number, place, callback) -> bool"},
    {"add_waiter", (PyCFunction)(void (*)(void))run_add_waiter, METH_VARARGS, "(number, place, call, dispatch)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef run_members[] = {
    {"topic", T_OBJECT_EX, offsetof(run_t, topic), READONLY, NULL},
    {"terms", T_OBJECT_EX, offsetof(run_t, terms), READONLY, NULL},
    {"dispatch", T_OBJECT_EX, offsetof(run_t, dispatch), READONLY, NULL},
    {"since", T_OBJECT_EX, offsetof(run_t, since), 0, NULL},
    {"partition", T_INT, offsetof(run_t, partition), 0, NULL},
    {"is_closed", T_BOOL, offsetof(run_t, is_closed), READONLY, NULL},
    {"has_headers", T_BOOL, offsetof(run_t, has_headers), READONLY, NULL},
    {"buffered_bytes", T_PYSSIZET, offsetof(run_t, buffered_bytes), READONLY, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(run_t, bytes_max), READONLY, NULL},
    {"base_timestamp", T_LONGLONG, offsetof(run_t, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(run_t, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef run_properties[] = {
    {"size_bytes", (getter)run_size_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_new, run_make},
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_methods, run_methods},
    {Py_tp_members, run_members},
    {Py_tp_getset, run_properties},
    {Py_sq_length, run_length},
    {Py_bf_getbuffer, run_getbuffer},
    {Py_bf_releasebuffer, run_releasebuffer},
    {0, NULL},
};

static PyType_Spec run_spec = {
    "kwire.wire._speedups.BatchBuilder", sizeof(run_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, run_slots,
};

int
add_builders(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&run_spec);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "BatchBuilder", type) < 0 || add_reports(module) < 0 ||
                 add_places(module, (PyTypeObject *)type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}

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

const part_t *
run_part(const run_t *run, uint32_t number)
{
    for (uint32_t index = 0; index < run->parts_used; index++) {
        if (run->parts[index].start <= number && number < run->parts[index].end) {
            return &run->parts[index];
        }
    }
    return NULL;
}

static int
is_done(run_t *run, uint32_t number)
{
    const run_t *there = followed(run, &number);
    return run_part(there, number) != NULL;
}

PyObject *
run_done(run_t *run, PyObject *number)
{
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(n < run->count && is_done(run, (uint32_t)n));
}

PyObject *
run_outcome(run_t *self, PyObject *number_object)
{
    unsigned long n = PyLong_AsUnsignedLong(number_object);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    uint32_t number = (uint32_t)n;
    const run_t *run = followed(self, &number);
    const part_t *part = n < self->count ? run_part(run, number) : NULL;
    if (part == NULL) {
        Py_RETURN_NONE;
    }
    int64_t offset = part->base_offset < 0 ? -1 : part->base_offset + number - part->start;
    int64_t timestamp = part->append_time < 0 ? run_timestamp(run, number) : part->append_time;
    PyObject *error = part->error == NULL ? Py_None : part->error;
    return Py_BuildValue("(iLLO)", run->partition, (long long)offset, (long long)timestamp, error);
}

/* Takes the late ones of start .. end - 1 out of `late` into `taken`; None where there are none. */
static PyObject *
take_late(PyObject *late, PyObject *taken, PyObject *left, uint32_t start, uint32_t end)
{
    for (Py_ssize_t index = 0; index < PyList_Size(late); index++) {
        PyObject *one = PyList_GetItem(late, index);
        unsigned long number = PyLong_AsUnsignedLong(PyTuple_GetItem(one, 0));
        if (PyList_Append(start <= number && number < end ? taken : left, one) < 0) {
            return NULL;
        }
    }
    return PyList_Size(taken) ? taken : Py_None;
}

PyObject *
run_resolve(run_t *run, PyObject *args)
{
    unsigned int start, end;
    long long base_offset, append_time;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "IILLO", &start, &end, &base_offset, &append_time, &error)) {
        return NULL;
    }
    /* All that is needed is made first: making it may run other code. */
    PyObject *taken = PyList_New(0), *left = PyList_New(0), *answer = NULL;
    reports_t *reports = run->callbacks.used ? reports_new(run) : NULL;
    part_t *parts = PyMem_Realloc(run->parts, (run->parts_used + 1) * sizeof(part_t));
    run->parts = parts == NULL ? run->parts : parts;
    if (taken == NULL || left == NULL || parts == NULL || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        goto done;
    }
    for (uint32_t index = 0; index < run->parts_used; index++) {
        if (start < parts[index].end && parts[index].start < end) {
            PyErr_SetString(PyExc_AssertionError, "a record resolves exactly once");
            goto done;
        }
    }
    if (!run->is_closed || end > run->count) {
        PyErr_SetString(PyExc_AssertionError, "a run resolves when it is closed");
        goto done;
    }
    PyObject *late = Py_None;
    if ((reports != NULL && reports_reserve(reports, start, end) < 0) ||
        (run->late != NULL && (late = take_late(run->late, taken, left, start, end)) == NULL)) {
        goto done;
    }
    parts[run->parts_used++] = (part_t){start, end, base_offset, append_time, error == Py_None ? NULL : error};
    if (error != Py_None) {
        Py_INCREF(error);
    }
    run->resolved += end > start ? end - start : 0;
    PyObject *before = run->late;
    run->late = NULL;
    if (PyList_Size(left)) {
        run->late = left;
        Py_INCREF(left);
    }
    int has_reports = reports != NULL && reports_take(reports, start, end);
    answer = PyTuple_Pack(2, has_reports ? OBJECT(reports) : Py_None, late);
    Py_XDECREF(before);
done:
    Py_XDECREF(OBJECT(reports));
    Py_XDECREF(taken);
    Py_XDECREF(left);
    return answer;
}

PyObject *
run_add_waiter(run_t *self, PyObject *args)
{
    unsigned int number;
    PyObject *place, *call, *dispatch;
    if (!PyArg_ParseTuple(args, "IOOO", &number, &place, &call, &dispatch)) {
        return NULL;
    }
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return NULL;
    }
    PyObject *item = NULL;
    run_t *run;
    for (;;) { /* making the item may run code that moves the record to another run */
        uint32_t there = number;
        run = (run_t *)followed(self, &there);
        if (item != NULL && PyLong_AsUnsignedLong(PyTuple_GetItem(item, 0)) == there) {
            break;
        }
        Py_XDECREF(item);
        item = Py_BuildValue("(IOOO)", there, place, call, dispatch);
        if (item == NULL) {
            Py_DECREF(fresh);
            return NULL;
        }
    }
    int is_told = !is_done(self, number), failed = 0;
    if (is_told) {
        if (run->late == NULL) {
            run->late = fresh;
            Py_INCREF(fresh);
        }
        failed = PyList_Append(run->late, item) < 0;
    }
    Py_DECREF(item);
    Py_DECREF(fresh);
    return failed ? NULL : PyBool_FromLong(is_told);
}
