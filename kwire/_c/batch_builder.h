/* The batch builder, shared by batch_builder.c, delivery.c and accumulator.c.
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

/* Upper bounds in a batch: of a record beyond its key, value and headers, and of a header beyond its name and value. */
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
    uint32_t from, to; /* records from .. to - 1 have this callback */
    PyObject *callback;
} call_t;

/* Delivery callbacks in the records' order, and the futures that are kept for them.
 *
 * A future is kept only if it cannot be recreated: it has its own fields, or its record moves to another builder. */
typedef struct {
    call_t *calls;
    PyObject **futures; /* of the records from `first` on; NULL: recreate them */
    uint32_t used, capacity, first, futures_used, futures_capacity;
} callbacks_t;

typedef struct {
    builder_t *builder;
    uint32_t number;
} child_t;

/* `data` begins with space for the batch header. It may move while the builder is open, but an open builder is never
 * exported. The type needs no garbage collection: resolving a builder breaks its reference cycles. */
struct builder {
    PyObject_HEAD PyObject *topic, *terms, *dispatch, *since, *waiters;
    int partition;
    char is_closed, has_headers, is_freed;
    Py_ssize_t buffered_bytes, bytes_max; /* its records' upper bounds; the size at which it is full */
    int64_t base_timestamp, max_timestamp, last_timestamp;
    unsigned char *data;
    size_t used, capacity;
    uint32_t count, dropped;
    uint32_t sum; /* CRC state, from 0, after `summed` bytes of the records */
    size_t summed;
    Py_ssize_t exports;
    mark_t *marks;
    part_t *parts;
    callbacks_t callbacks;
    child_t *children;
    uint32_t *chosen; /* of an UNROUTED builder, by number: 1 + the partition that the caller chose, 0 for none */
    uint32_t chosen_capacity; /* records from here on chose none */
    uint32_t marks_used, marks_capacity, parts_used, resolved;
    PyTypeObject *future_type; /* of futures that can be recreated, or NULL */
};

typedef struct {
    PyObject_HEAD builder_t *builder;
    uint32_t number;
} future_t;

/* A record to write: its fields, or `tail`, the encoded bytes from the key's length on. */
typedef struct {
    int64_t timestamp;
    span key, value, tail;
    PyObject *headers; /* a tuple, or NULL */
    int has_headers;   /* in the tail */
    uint32_t chosen;   /* 1 + the partition that the caller chose while their number is unknown; else 0 */
} entry_t;

typedef struct {
    PyObject_HEAD builder_t *builder;
    callbacks_t all;
} delivery_t;

/* ---- filling ----------------------------------------------------------------------------------------------------- */

/* Return the current size of the batch. */
static inline Py_ssize_t
builder_size(const builder_t *builder)
{
    return BATCH_OVERHEAD + (Py_ssize_t)builder->used;
}

/* Make space for one more item of `size` bytes in an array that doubles. Return 0, or -1 with an exception. */
int grow(void **array, uint32_t used, uint32_t *capacity, size_t size);
/* Return headers that `is_sendable` takes, a new reference: names that are no plain text in UTF-8, because they hold
 * other bytes as surrogates, become bytes. NULL with an exception. It may run other code. */
PyObject *sendable_headers(PyObject *headers);
int is_sendable(PyObject *headers, Py_ssize_t index, span *name, span *value);
/* These run no Python code. Return 0, or -1 with an exception and without a change. */
int builder_put(builder_t *builder, const entry_t *entry, Py_ssize_t counted, size_t capacity_hint);
/* Append a record that fills neither the builder nor its memory and has the last record's timestamp. Return 1, or 0 if
 * `builder_put` must do it. A record never has more bytes than its upper bound. */
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
/* Return whether its records were routed to other builders. */
void builder_forget(builder_t *builder);
PyObject *builder_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms,
                      PyObject *dispatch, PyTypeObject *future_type);

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

PyObject *builder_batch(builder_t *builder, PyObject *args);
/* Add new bytes to the CRC while they are in the processor's cache, if there are enough. */
void builder_sum(builder_t *builder);

/* ---- results ----------------------------------------------------------------------------------------------------- */

const part_t *builder_part(const builder_t *builder, uint32_t number);
PyObject *builder_done(builder_t *builder, PyObject *number);
PyObject *builder_outcome(builder_t *builder, PyObject *number);
PyObject *builder_resolve(builder_t *builder, PyObject *args);
PyObject *builder_add_waiter(builder_t *builder, PyObject *args);

/* Return the current builder of a record, and set its number there. */
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

/* Return 0, or -1 with an exception and without a change. `future` may be NULL. */
int callbacks_add(callbacks_t *callbacks, uint32_t number, PyObject *future, PyObject *callback);
void callbacks_clear(callbacks_t *callbacks);
/* Move the callbacks of a routed builder to the current builders of its records. */
int callbacks_move(builder_t *builder, const child_t *children);
PyObject *builder_report(builder_t *builder, PyObject *args);
/* Create the DeliveryCallbacks before reading the builder, since that may run other code. No other code runs between
 * `reports_reserve` and taking the callbacks of start .. end - 1, which returns whether there were any. */
delivery_t *delivery_new(builder_t *builder);
int delivery_reserve(delivery_t *delivery, uint32_t start, uint32_t end);
int delivery_take(delivery_t *delivery, uint32_t start, uint32_t end);
int add_delivery(PyObject *module);

/* ---- futures ----------------------------------------------------------------------------------------------------- */

/* Return whether futures of a type can be recreated, as they have no fields of their own; -1 with an exception. */
int is_plain_future_type(PyTypeObject *type);
/* Creating a future runs no Python code if its type has no garbage collector header. */
future_t *future_new(PyTypeObject *type, builder_t *builder, uint32_t number);
int add_futures(PyObject *module, PyTypeObject *type_of_runs);

#endif
