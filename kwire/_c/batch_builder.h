/* A run of records: _run.c makes it, _door.c fills it, _batch.c seals it, _outcomes.c resolves it, _reports.c calls
 * back, and _place.c has the places in it. `_run.py` is the specification of all of them.
 *
 * Include module.h before.
 */
#ifndef KWIRE_RUN_H
#define KWIRE_RUN_H

#include "record.h"

#define BATCH_OVERHEAD 61
#define RECORD_OVERHEAD_MAX 36
#define HEADER_OVERHEAD_MAX 10

#define OBJECT(thing) ((PyObject *)(thing))

/* What a record counts as without its headers, and each of those: in a batch it has no more than that. */
static inline Py_ssize_t
counted_record(span key, span value)
{
    return RECORD_OVERHEAD_MAX + (Py_ssize_t)((key.size > 0 ? key.size : 0) + (value.size > 0 ? value.size : 0));
}

static inline Py_ssize_t
counted_header(span name, span value)
{
    return HEADER_OVERHEAD_MAX + (Py_ssize_t)(name.size + (value.size > 0 ? value.size : 0));
}

enum { UNDESIGNATED = -1, UNROUTED = -2 };

typedef struct run run_t;

typedef struct {
    uint32_t from;
    int64_t timestamp;
} mark_t;

typedef struct {
    uint32_t start, end;
    int64_t base_offset, append_time;
    PyObject *error; /* NULL for none */
} part_t;

typedef struct {
    uint32_t from, to; /* these records, to - 1 being the last, came with this callback */
    PyObject *callback;
} call_t;

/* What is to be called: `calls` in the records' order, and by record the future that it is called with, where that is kept.
 *
 * A future is kept where it cannot be made again as it was: it has fields of its own, or its record will be in another
 * builder. */
typedef struct {
    call_t *calls;
    PyObject **futures; /* of the records from `first` on; NULL: to be made again */
    uint32_t used, room, first, futures_used, futures_room;
} callbacks_t;

typedef struct {
    run_t *run;
    uint32_t number;
} child_t;

/* `data` has room for the header of a batch in front. It may move while the run is open, and not while it is exported,
 * which an open run never is. No object here is a garbage collector's: whatever a run is part of a circle with, its
 * resolution lets go of. */
struct run {
    PyObject_HEAD
    PyObject *topic, *terms, *dispatch, *since, *late;
    int partition;
    char is_closed, has_headers, is_freed;
    Py_ssize_t buffered_bytes, bytes_max; /* what its records count as; at what size it is full */
    int64_t base_timestamp, max_timestamp, last_timestamp;
    unsigned char *data;
    size_t used, room;
    uint32_t count, dropped;
    uint32_t sum;  /* the state of a CRC that began with 0, after `summed` bytes of the records */
    size_t summed;
    Py_ssize_t exports;
    mark_t *marks;
    part_t *parts;
    callbacks_t callbacks;
    child_t *children;
    uint32_t marks_used, marks_room, parts_used, resolved;
    PyTypeObject *future_type; /* of futures that can be made again as they were; NULL for none */
};

typedef struct {
    PyObject_HEAD
    run_t *run;
    uint32_t number;
} place_t;

/* What is to be written of a record: its fields, or `tail`, which is all from the length of the key on. */
typedef struct {
    int64_t timestamp;
    span key, value, tail;
    PyObject *headers; /* a tuple, or NULL */
    int has_headers;   /* in the tail */
} entry_t;

typedef struct {
    PyObject_HEAD
    run_t *run;
    callbacks_t all;
} reports_t;

/* ---- _run.c ------------------------------------------------------------------------------------------------------ */

/* What its batch has by now. */
static inline Py_ssize_t
run_size(const run_t *run)
{
    return BATCH_OVERHEAD + (Py_ssize_t)run->used;
}

/* Room for one more of `size` bytes in an array that doubles. 0, or -1 with an exception. */
int grow(void **array, uint32_t used, uint32_t *room, size_t size);
/* These run no Python code. 0 or -1 with an exception, before anything was changed. */
int run_put(run_t *run, const entry_t *entry, Py_ssize_t counted, size_t room_hint);
/* Writes a record behind the last of a run, if that is all there is to do: it fills neither the run nor its memory, and
 * has the time of the record before it. 1, or 0 for `run_put`. A record never has more bytes than it counts as. */
static inline int
run_put_plain(run_t *run, const entry_t *entry, Py_ssize_t counted)
{
    if (run->is_closed || run_size(run) + counted >= run->bytes_max || entry->headers != NULL ||
        run_size(run) + counted > (Py_ssize_t)run->room || entry->timestamp != run->last_timestamp) {
        return 0;
    }
    int64_t after = entry->timestamp - run->base_timestamp;
    size_t size = 2 + varint_size(after) + varint_size(run->count) + span_size(entry->key) + span_size(entry->value);
    unsigned char *start = run->data + BATCH_OVERHEAD + run->used;
    unsigned char *at = put_varint(start, (int64_t)size);
    *at++ = 0; /* attributes */
    at = put_varint(put_varint(at, after), run->count);
    at = put_span(put_span(at, entry->key), entry->value);
    *at++ = 0; /* headers */
    run->used += (size_t)(at - start);
    run->count++;
    run->buffered_bytes += counted;
    return 1;
}

int64_t run_timestamp(const run_t *run, uint32_t number);
/* Its records are elsewhere now. */
void run_forget(run_t *run);
PyObject *run_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms,
                  PyObject *dispatch, PyTypeObject *place_type);

/* ---- _batch.c ---------------------------------------------------------------------------------------------------- */

PyObject *run_batch(run_t *run, PyObject *args);
/* Takes what was put there since the last time into the CRC, while the processor has it at hand, if it is worth while. */
void run_sum(run_t *run);

/* ---- _outcomes.c ------------------------------------------------------------------------------------------------- */

const part_t *run_part(const run_t *run, uint32_t number);
PyObject *run_done(run_t *run, PyObject *number);
PyObject *run_outcome(run_t *run, PyObject *number);
PyObject *run_resolve(run_t *run, PyObject *args);
PyObject *run_add_waiter(run_t *run, PyObject *args);

/* The run that has the record now, and its number there. */
static inline run_t *
followed(run_t *run, uint32_t *number)
{
    while (run->children != NULL && *number < run->count) {
        child_t child = run->children[*number];
        run = child.run;
        *number = child.number;
    }
    return run;
}

/* ---- _reports.c -------------------------------------------------------------------------------------------------- */

/* 0, or -1 with an exception, before anything was changed. `future` may be NULL. */
int callbacks_add(callbacks_t *callbacks, uint32_t number, PyObject *future, PyObject *callback);
void callbacks_clear(callbacks_t *callbacks);
/* Hands the callbacks of a routed run to where its records are now. */
int callbacks_move(run_t *run, const child_t *children);
PyObject *run_report(run_t *run, PyObject *args);
/* What is to take reports of a run. It is made before the run is looked at, as that may run other code; nothing comes
 * between `reports_reserve` and taking those of start .. end - 1, which answers whether there were any. */
reports_t *reports_new(run_t *run);
int reports_reserve(reports_t *reports, uint32_t start, uint32_t end);
int reports_take(reports_t *reports, uint32_t start, uint32_t end);
int add_reports(PyObject *module);

/* ---- _place.c ---------------------------------------------------------------------------------------------------- */

/* Whether places of a type can be made again as they were: they have nothing of their own. -1 with an exception. */
int is_remade_type(PyTypeObject *type);
/* A future of a type without a part for the garbage collector is made without running Python code. */
place_t *future_new(PyTypeObject *type, run_t *run, uint32_t number);
int add_places(PyObject *module, PyTypeObject *type_of_runs);

#endif
