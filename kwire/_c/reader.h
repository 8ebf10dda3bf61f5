/* Shared by the sources of the consumer: records created lazily from a batch, and iteration over them.
 *
 * kwire/records/reader.py is the specification. `open_reader` validates all records of a batch once, and returns None
 * for unusual data, as decode_records does. After that, every position in the batch is valid. There is no index:
 * another pass without checks costs less than its memory.
 *
 * A record refers to its reader, which holds the bytes of the batch and has weak links to the records it has returned.
 * `detach` gives those still alive a copy of their own bytes, so that a kept record does not keep the whole batch.
 *
 * The GIL is released only while a batch is validated and while columns are filled: that code reads exported buffers
 * and writes into buffers that no other code has seen yet.
 */
#include "module.h"

#include "record.h"

#ifdef __GNUC__
#pragma GCC visibility push(hidden)
#endif

/* The positions of a record's fields in its bytes; a size of -1 is null. */
typedef struct {
    int64_t offset, timestamp;
    bytes_t key, value, headers, end;
    int32_t key_size, value_size, header_count;
} layout;

typedef struct reader reader;

typedef struct record {
    PyObject_HEAD PyObject *home; /* the reader; if detached, its own bytes; NULL if nothing is lazy */
    PyObject *topic;
    PyObject *key, *value, *headers; /* once created */
    PyObject *assigned;              /* a dict of what was set from Python, or NULL */
    layout where;
    struct record *previous, *next; /* live records of the same reader */
    int is_detached;
    int32_t partition, timestamp_type;
} record;

typedef struct {
    int64_t base_offset, base_timestamp, last_delta, timestamp;
    int has_timestamp; /* one for all records */
} origin;

/* A position between two records; after a batch's last record, the next batch header may follow. */
typedef struct {
    bytes_t at;
    Py_ssize_t left; /* records of this batch */
    origin from;
} walk;

/* Total sizes of the keys and values of some records. */
typedef struct {
    int64_t key_bytes, value_bytes, null_keys, null_values;
} totals;

struct reader {
    PyObject_HEAD PyTypeObject *slice_type, *kind; /* kind: of the records */
    allocfunc allocate;
    PyObject *topic;
    Py_buffer data;
    PyObject *start, *next_offset; /* positions before the first and after the last */
    walk on;                       /* the next record */
    totals all;
    Py_ssize_t count, handed; /* of records */
    Py_ssize_t size;          /* of the data that holds them, in bytes */
    int64_t last_offset;      /* of the record before the next, `behind` records ago */
    Py_ssize_t behind;
    record *alive;
    int is_unread; /* stopped before the first */
    int32_t partition, timestamp_type;
};

/* Some records of a reader. */
typedef struct {
    PyObject_HEAD reader *from;
    walk on; /* the first */
    Py_ssize_t count;
    const totals *all; /* or NULL if unknown */
} slice;

/* Return the varint at `at`, in a validated batch. */
static inline bytes_t
known_varint(bytes_t at, int64_t *n)
{
    uint64_t found = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *n = undone(found);
            return at;
        }
    }
}

static inline bytes_t
known_span(bytes_t at, bytes_t *start, int32_t *size)
{
    int64_t found;
    *start = known_varint(at, &found);
    *size = (int32_t)found;
    return *start + (found > 0 ? found : 0);
}

/* Set the layout of the record at `at`, in a validated batch; return the start of the next. */
static inline bytes_t
get_layout(bytes_t at, const origin *from, layout *found)
{
    int64_t size, after, delta, header_count;
    at = known_varint(at, &size);
    found->end = at + size;
    at = known_varint(known_varint(at + 1, &after), &delta);
    found->offset = from->base_offset + delta;
    found->timestamp = from->has_timestamp ? from->timestamp : from->base_timestamp + after;
    at = known_span(at, &found->key, &found->key_size);
    at = known_span(at, &found->value, &found->value_size);
    found->headers = known_varint(at, &header_count);
    found->header_count = (int32_t)header_count;
    return found->end;
}

#define BATCH_OVERHEAD_BYTES 61

static inline int64_t
big_endian(bytes_t at, int size)
{
    uint64_t found = *at & 0x80 ? UINT64_MAX : 0;
    for (int index = 0; index < size; index++) {
        found = found << 8 | at[index];
    }
    return (int64_t)found;
}

enum { CODEC_BITS = 0x07, LOG_APPEND_BIT = 0x08, CONTROL_BIT = 0x20 };

/* The fields of a v2 batch header that describe its records; kwire/records/encoder.py has all fields. */
static inline walk
walk_into(bytes_t header)
{
    return (walk){
        .at = header + BATCH_OVERHEAD_BYTES,
        .left = (Py_ssize_t)big_endian(header + 57, 4),
        .from =
            {
                .base_offset = big_endian(header, 8),
                .last_delta = big_endian(header + 23, 4),
                .base_timestamp = big_endian(header + 27, 8),
                .timestamp = big_endian(header + 35, 8),
                .has_timestamp = header[22] & LOG_APPEND_BIT,
            },
    };
}

/* Return the next record; there must be one. */
static inline void
next_layout(walk *on, layout *found)
{
    while (on->left == 0) {
        *on = walk_into(on->at);
    }
    on->left--;
    on->at = get_layout(on->at, &on->from, found);
}

static inline PyObject *
bytes_or_none(bytes_t at, int64_t size)
{
    return size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
}

#define RECORD_BYTES_MIN 7

/* The validated range of batches, and its contents. */
typedef struct {
    bytes_t end;
    walk on; /* the first record */
    Py_ssize_t count;
    int64_t next_offset;
    totals all;
    int is_append_time;
} stretch;

/* Return whether all records of a batch are valid and end at its end. Add the sizes of those from `position` on to
 * `all`; brokers send whole batches, so some may be before it. */
int look_through(walk *on, bytes_t end, int64_t position, totals *all);
/* Validate consecutive batches from `at` on until they have `enough` bytes. The first may begin before `position`.
 * There are none (`end` is `at`) if the Python implementation must handle the first. */
stretch look_through_batches(bytes_t at, bytes_t data_end, int64_t position, int check_crc, int64_t enough);

/* record_fields.c */
extern PyType_Spec record_spec;
PyObject *record_class(PyObject *module, PyObject *full_name);
PyObject *headers_of(const layout *where);
int detach_record(record *self); /* -1 with an exception */
record *new_record(reader *from, walk *on);
void keep_idle(PyTypeObject *kind);

/* reader.c */
extern PyType_Spec reader_spec, slice_spec;
PyObject *open_reader(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *open_batches(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* buffers.c */
extern PyType_Spec pooled_spec;
/* Return writable memory and set its owner, bytes or a pooled block; NULL with an exception. */
unsigned char *new_pooled(PyTypeObject *pooled_type, Py_ssize_t size, PyObject **object);

/* columns.c */
PyObject *columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
