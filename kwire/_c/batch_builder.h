/* A builder of a batch, as batch_builder.c fills and resolves it, delivery.c calls back and accumulator.c uses it.
 *
 * kwire/producer/batch_builder.py is the specification. Include module.h before.
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

typedef struct builder builder_t;

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

/* What is to be called: `calls` in the records' order, and by record the future that it is called with, where that is
 * kept.
 *
 * A future is kept where it cannot be made again as it was: it has fields of its own, or its record will be in another
 * builder. */
typedef struct {
    call_t *calls;
    PyObject **futures; /* of the records from `first` on; NULL: to be made again */
    uint32_t used, capacity, first, futures_used, futures_capacity;
} callbacks_t;

typedef struct {
    builder_t *builder;
    uint32_t number;
} child_t;

/* `data` has space for the header of a batch in front. It may move while the builder is open, and not while it is
 * exported, which an open builder never is. No object here is a garbage collector's: whatever a builder is part of a
 * circle with, its resolution lets go of. */
struct builder {
    PyObject_HEAD PyObject *topic, *terms, *dispatch, *since, *waiters;
    int partition;
    char is_closed, has_headers, is_freed;
    Py_ssize_t buffered_bytes, bytes_max; /* what its records count as; at what size it is full */
    int64_t base_timestamp, max_timestamp, last_timestamp;
    unsigned char *data;
    size_t used, capacity;
    uint32_t count, dropped;
    uint32_t sum; /* the state of a CRC that began with 0, after `summed` bytes of the records */
    size_t summed;
    Py_ssize_t exports;
    mark_t *marks;
    part_t *parts;
    callbacks_t callbacks;
    child_t *children;
    uint32_t marks_used, marks_capacity, parts_used, resolved;
    PyTypeObject *future_type; /* of futures that can be made again as they were; NULL for none */
};

typedef struct {
    PyObject_HEAD builder_t *builder;
    uint32_t number;
} future_t;

/* What is to be written of a record: its fields, or `tail`, which is all from the length of the key on. */
typedef struct {
    int64_t timestamp;
    span key, value, tail;
    PyObject *headers; /* a tuple, or NULL */
    int has_headers;   /* in the tail */
} entry_t;

typedef struct {
    PyObject_HEAD builder_t *builder;
    callbacks_t all;
} delivery_t;

/* ---- run.c ------------------------------------------------------------------------------------------------------ */

/* What its batch has by now. */
static inline Py_ssize_t
builder_size(const builder_t *builder)
{
    return BATCH_OVERHEAD + (Py_ssize_t)builder->used;
}

/* Room for one more of `size` bytes in an array that doubles. 0, or -1 with an exception. */
int grow(void **array, uint32_t used, uint32_t *capacity, size_t size);
/* These run no Python code. 0 or -1 with an exception, before anything was changed. */
int builder_put(builder_t *builder, const entry_t *entry, Py_ssize_t counted, size_t capacity_hint);
/* Writes a record behind the last of a builder, if that is all there is to do: it fills neither the builder nor its
 * memory, and has the time of the record before it. 1, or 0 for `builder_put`. A record never has more bytes than it
 * counts as. */
static inline int
builder_put_plain(builder_t *builder, const entry_t *entry, Py_ssize_t counted)
{
    if (builder->is_closed || builder_size(builder) + counted >= builder->bytes_max || entry->headers != NULL ||
        builder_size(builder) + counted > (Py_ssize_t)builder->capacity ||
        entry->timestamp != builder->last_timestamp) {
        return 0;
    }
    int64_t after = entry->timestamp - builder->base_timestamp;
    size_t size =
        2 + varint_size(after) + varint_size(builder->count) + span_size(entry->key) + span_size(entry->value);
    unsigned char *start = builder->data + BATCH_OVERHEAD + builder->used;
    unsigned char *at = put_varint(start, (int64_t)size);
    *at++ = 0; /* attributes */
    at = put_varint(put_varint(at, after), builder->count);
    at = put_span(put_span(at, entry->key), entry->value);
    *at++ = 0; /* headers */
    builder->used += (size_t)(at - start);
    builder->count++;
    builder->buffered_bytes += counted;
    return 1;
}

int64_t builder_timestamp(const builder_t *builder, uint32_t number);
/* Its records are elsewhere now. */
void builder_forget(builder_t *builder);
PyObject *builder_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms,
                      PyObject *dispatch, PyTypeObject *future_type);

/* ---- batch.c ---------------------------------------------------------------------------------------------------- */

PyObject *builder_batch(builder_t *builder, PyObject *args);
/* Takes what was put there since the last time into the CRC, while the processor has it at hand, if it is worth while.
 */
void builder_sum(builder_t *builder);

/* ---- outcomes.c ------------------------------------------------------------------------------------------------- */

const part_t *builder_part(const builder_t *builder, uint32_t number);
PyObject *builder_done(builder_t *builder, PyObject *number);
PyObject *builder_outcome(builder_t *builder, PyObject *number);
PyObject *builder_resolve(builder_t *builder, PyObject *args);
PyObject *builder_add_waiter(builder_t *builder, PyObject *args);

/* The builder that has the record now, and its number there. */
static inline builder_t *
followed(builder_t *builder, uint32_t *number)
{
    while (builder->children != NULL && *number < builder->count) {
        child_t child = builder->children[*number];
        builder = child.builder;
        *number = child.number;
    }
    return builder;
}

/* ---- delivery.c -------------------------------------------------------------------------------------------------- */

/* 0, or -1 with an exception, before anything was changed. `future` may be NULL. */
int callbacks_add(callbacks_t *callbacks, uint32_t number, PyObject *future, PyObject *callback);
void callbacks_clear(callbacks_t *callbacks);
/* Hands the callbacks of a routed builder to where its records are now. */
int callbacks_move(builder_t *builder, const child_t *children);
PyObject *builder_report(builder_t *builder, PyObject *args);
/* What is to take reports of a builder. It is made before the builder is looked at, as that may run other code; nothing
 * comes between `reports_reserve` and taking those of start .. end - 1, which returns whether there were any. */
delivery_t *delivery_new(builder_t *builder);
int delivery_reserve(delivery_t *delivery, uint32_t start, uint32_t end);
int delivery_take(delivery_t *delivery, uint32_t start, uint32_t end);
int add_delivery(PyObject *module);

/* ---- delivery.c ---------------------------------------------------------------------------------------------------
 */

/* Whether futures of a type can be made again as they were: they have nothing of their own. -1 with an exception. */
int is_plain_future_type(PyTypeObject *type);
/* A future of a type without a part for the garbage collector is made without running Python code. */
future_t *future_new(PyTypeObject *type, builder_t *builder, uint32_t number);
int add_futures(PyObject *module, PyTypeObject *type_of_runs);

#endif
