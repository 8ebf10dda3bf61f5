/* What a consumer does for every record, in C: records made lazily from a batch, and batches as columns.
 *
 * `_cursor` is the specification, in Python. `open_cursor` looks once at all records of a batch and answers None for
 * whatever is out of the ordinary, as decode_records does; from then on every place in the batch is known to be right.
 * Nothing is remembered of that walk: to walk again, without checks, costs less than the memory for an index.
 *
 * A record refers to its cursor, which holds the bytes of the batch and knows, without owning them, the records that it
 * has handed out: `detach` gives those that are still alive a copy of their own bytes, so that one record that somebody
 * keeps does not keep what it was fetched with.
 *
 * The interpreter's lock is held but while a batch is looked through and while columns are filled: that reads buffers
 * which are exported to us, and writes into others that nobody else has seen yet.
 */
#include "_speedups.h"

/* Where the fields of a record are in its bytes; a size of -1 is null. */
typedef struct {
    int64_t offset, timestamp;
    bytes_t key, value, headers, end;
    int32_t key_size, value_size, header_count;
} place;

typedef struct cursor cursor;

typedef struct record {
    PyObject_HEAD
    PyObject *home; /* the cursor; or, detached, bytes of its own; NULL where there is nothing lazy */
    PyObject *topic;
    PyObject *key, *value, *headers; /* once made */
    PyObject *assigned;              /* a dict of what was set from Python, or NULL */
    place where;
    struct record *previous, *next; /* those alive of the same cursor */
    int is_detached;
    int32_t partition, timestamp_type;
} record;

typedef struct {
    int64_t base_offset, base_timestamp, last_delta, timestamp;
    int has_timestamp; /* one for all records */
} origin;

struct cursor {
    PyObject_HEAD
    PyTypeObject *piece_type, *kind; /* kind: of the records */
    allocfunc allocate;
    PyObject *topic;
    Py_buffer data;
    PyObject *start, *next_offset; /* positions before the first and after the last */
    origin from;
    Py_ssize_t count, handed; /* of records */
    bytes_t at;               /* the next record */
    int64_t last_offset;      /* of the record before it */
    record *alive;
    int32_t partition, timestamp_type;
};

/* Some records of a cursor. */
typedef struct {
    PyObject_HEAD
    cursor *from;
    bytes_t at; /* the first */
    Py_ssize_t count;
} piece;

/* ---- records --------------------------------------------------------------------------------------------------- */

enum field { TOPIC, PARTITION, OFFSET, TIMESTAMP_MS, TIMESTAMP_TYPE, KEY, VALUE, HEADERS };

static const char *const FIELD_NAMES[] = {"topic",          "partition", "offset", "timestamp_ms",
                                          "timestamp_type", "key",       "value",  "headers"};

/* The varint at `at`, in a batch that was looked through. */
static bytes_t
known_varint(bytes_t at, int64_t *n)
{
    uint64_t found = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *n = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return at;
        }
    }
}

static PyObject *
bytes_or_none(bytes_t at, int64_t size)
{
    return size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
}

static PyObject *
header_at(bytes_t *at)
{
    int64_t size;
    bytes_t pos = known_varint(*at, &size);
    PyObject *name = PyUnicode_DecodeUTF8((const char *)pos, (Py_ssize_t)size, "surrogateescape");
    if (name == NULL) {
        return NULL;
    }
    pos = known_varint(pos + size, &size);
    PyObject *value = bytes_or_none(pos, size);
    PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, name, value);
    Py_DECREF(name);
    Py_XDECREF(value);
    *at = pos + (size > 0 ? size : 0);
    return header;
}

static PyObject *
headers_of(const place *where)
{
    PyObject *headers = PyTuple_New(where->header_count);
    bytes_t at = where->headers;
    for (int32_t index = 0; headers != NULL && index < where->header_count; index++) {
        PyObject *header = header_at(&at);
        if (header == NULL) {
            Py_CLEAR(headers);
        }
        else {
            PyTuple_SetItem(headers, index, header);
        }
    }
    return headers;
}

static PyObject *
made(record *self, PyObject **kept, enum field field)
{
    if (*kept == NULL) {
        const place *where = &self->where;
        *kept = field == KEY     ? bytes_or_none(where->key, where->key_size)
                : field == VALUE ? bytes_or_none(where->value, where->value_size)
                                 : headers_of(where);
    }
    return Py_XNewRef(*kept);
}

static PyObject *
assigned_field(record *self, enum field field)
{
    PyObject *name = PyUnicode_FromString(FIELD_NAMES[field]);
    PyObject *found = name == NULL ? NULL : PyDict_GetItemWithError(self->assigned, name);
    Py_XDECREF(name);
    return Py_XNewRef(found);
}

static PyObject *
get_field(PyObject *object, void *closure)
{
    record *self = (record *)object;
    enum field field = (enum field)(intptr_t)closure;
    if (self->assigned != NULL) {
        PyObject *found = assigned_field(self, field);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    if (self->home == NULL) {
        PyErr_SetString(PyExc_AttributeError, FIELD_NAMES[field]);
        return NULL;
    }
    switch (field) {
    case TOPIC:
        return Py_NewRef(self->topic);
    case PARTITION:
        return PyLong_FromLong(self->partition);
    case OFFSET:
        return PyLong_FromLongLong(self->where.offset);
    case TIMESTAMP_MS:
        return PyLong_FromLongLong(self->where.timestamp);
    case TIMESTAMP_TYPE:
        return PyLong_FromLong(self->timestamp_type);
    case KEY:
        return made(self, &self->key, KEY);
    case VALUE:
        return made(self, &self->value, VALUE);
    default:
        return made(self, &self->headers, HEADERS);
    }
}

static int
set_field(PyObject *object, PyObject *value, void *closure)
{
    record *self = (record *)object;
    const char *name = FIELD_NAMES[(intptr_t)closure];
    if (value == NULL) {
        PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", name);
        return -1;
    }
    if (self->assigned == NULL && (self->assigned = PyDict_New()) == NULL) {
        return -1;
    }
    return PyDict_SetItemString(self->assigned, name, value);
}

/* The cursor forgets the record, which goes or gets bytes of its own. */
static void
unlink_record(record *self)
{
    if (self->previous != NULL) {
        self->previous->next = self->next;
    }
    else {
        ((cursor *)self->home)->alive = self->next;
    }
    if (self->next != NULL) {
        self->next->previous = self->previous;
    }
    self->previous = self->next = NULL;
}

static void
free_record(PyObject *object)
{
    record *self = (record *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->home != NULL && !self->is_detached) {
        unlink_record(self);
    }
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    Py_XDECREF(self->headers);
    Py_XDECREF(self->assigned);
    Py_XDECREF(self->topic);
    Py_XDECREF(self->home);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define FIELD(field, name) {name, get_field, set_field, NULL, (void *)(intptr_t)(field)}

static PyGetSetDef record_fields[] = {
    FIELD(TOPIC, "topic"),
    FIELD(PARTITION, "partition"),
    FIELD(OFFSET, "offset"),
    FIELD(TIMESTAMP_MS, "timestamp_ms"),
    FIELD(TIMESTAMP_TYPE, "timestamp_type"),
    FIELD(KEY, "key"),
    FIELD(VALUE, "value"),
    FIELD(HEADERS, "headers"),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot record_slots[] = {
    {Py_tp_getset, record_fields},
    {Py_tp_dealloc, free_record},
    {Py_tp_doc, "The fields of a consumed record, each made when it is asked for."},
    {0, NULL},
};

static PyType_Spec record_spec = {
    "kwire.wire._speedups.RecordFields", sizeof(record), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, record_slots,
};

/* ---- looking through a batch ----------------------------------------------------------------------------------- */

/* Where the varint at `at` ends, or NULL if it does not before `end` or has more than 64 bits. */
static inline bytes_t
get_varint(bytes_t at, bytes_t end, int64_t *n)
{
    if (at < end && *at < 0x80) { /* most have one byte */
        *n = (int64_t)(*at >> 1) ^ -(int64_t)(*at & 1);
        return at + 1;
    }
    uint64_t found = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *n = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return at;
        }
    }
    return NULL;
}

/* Past a size and as many bytes, or NULL where there are not as many; -1 is allowed where `is_nullable`. */
static inline bytes_t
get_span(bytes_t at, bytes_t end, int is_nullable, bytes_t *start, int64_t *size)
{
    at = get_varint(at, end, size);
    if (at == NULL || *size < -is_nullable || *size > end - at) {
        return NULL;
    }
    *start = at;
    return at + (*size > 0 ? *size : 0);
}

/* Whether the record at `at` is right: then where it ends and its offset, else NULL. */
static bytes_t
check_record(bytes_t at, bytes_t data_end, const origin *from, int64_t *offset)
{
    int64_t size, after, delta, header_count, timestamp;
    bytes_t start;
    at = get_varint(at, data_end, &size);
    if (at == NULL || size < 1 || size > data_end - at) {
        return NULL;
    }
    bytes_t end = at + size;
    at = get_varint(at + 1, end, &after);
    at = at == NULL ? NULL : get_varint(at, end, &delta);
    if (at == NULL || delta < 0 || delta > from->last_delta) {
        return NULL;
    }
    at = get_span(at, end, 1, &start, &size);
    at = at == NULL ? NULL : get_span(at, end, 1, &start, &size);
    at = at == NULL ? NULL : get_varint(at, end, &header_count);
    if (at == NULL || header_count < 0 || header_count > (end - at) / 2) {
        return NULL;
    }
    for (int64_t index = 0; index < header_count && at != NULL; index++) {
        at = get_span(at, end, 0, &start, &size);
        at = at == NULL ? NULL : get_span(at, end, 1, &start, &size);
    }
    if (at != end || __builtin_add_overflow(from->base_timestamp, after, &timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, offset)) {
        return NULL;
    }
    return end;
}

#define RECORD_BYTES_MIN 7

/* Whether all `*count` records are right and end where the data ends. Those before `position`, which a batch has that is
 * sent whole, are left out of `*count`; answers where the others begin, or NULL. */
static bytes_t
look_through(bytes_t at, bytes_t end, const origin *from, int64_t position, int64_t *count)
{
    bytes_t begin = at;
    int64_t earlier = 0, offset = 0;
    for (int64_t index = 0; index < *count; index++) {
        at = check_record(at, end, from, &offset);
        if (at == NULL || offset == INT64_MAX) {
            return NULL;
        }
        if (offset < position) {
            if (earlier < index) {
                return NULL; /* offsets that do not ascend */
            }
            earlier++;
            begin = at;
        }
    }
    *count -= earlier;
    return at == end ? begin : NULL;
}

static inline bytes_t
known_span(bytes_t at, bytes_t *start, int32_t *size)
{
    int64_t found;
    *start = known_varint(at, &found);
    *size = (int32_t)found;
    return *start + (found > 0 ? found : 0);
}

/* The place of the record at `at`, in a batch that was looked through, and where the next begins. */
static inline bytes_t
get_place(bytes_t at, const origin *from, place *found)
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

/* ---- cursors --------------------------------------------------------------------------------------------------- */

static record *
new_record(cursor *self, bytes_t *at)
{
    record *made = (record *)self->allocate(self->kind, 0);
    if (made != NULL) {
        *at = get_place(*at, &self->from, &made->where);
        made->home = Py_NewRef((PyObject *)self);
        made->topic = Py_NewRef(self->topic);
        made->partition = self->partition;
        made->timestamp_type = self->timestamp_type;
        made->next = self->alive;
        if (made->next != NULL) {
            made->next->previous = made;
        }
        self->alive = made;
    }
    return made;
}

static PyObject *
next_record(PyObject *object)
{
    cursor *self = (cursor *)object;
    if (self->handed == self->count) {
        return NULL;
    }
    record *made = new_record(self, &self->at);
    if (made != NULL) {
        self->handed++;
        self->last_offset = made->where.offset;
    }
    return (PyObject *)made;
}

static PyObject *
cursor_cut(PyObject *object, PyObject *wanted)
{
    cursor *self = (cursor *)object;
    Py_ssize_t count = PyLong_AsSsize_t(wanted);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t left = self->count - self->handed;
    piece *made = (piece *)((allocfunc)PyType_GetSlot(self->piece_type, Py_tp_alloc))(self->piece_type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->from = (cursor *)Py_NewRef(object);
    made->at = self->at;
    made->count = count > left ? left : count < 0 ? 0 : count;
    if (made->count > 0) {
        bytes_t last = self->at;
        int64_t size;
        for (Py_ssize_t index = 0; index < made->count; index++) {
            last = self->at;
            self->at = known_varint(last, &size);
            self->at += size;
        }
        place where;
        get_place(last, &self->from, &where);
        self->handed += made->count;
        self->last_offset = where.offset;
    }
    return (PyObject *)made;
}

static PyObject *
piece_records(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    piece *self = (piece *)object;
    bytes_t at = self->at;
    PyObject *records = PyList_New(self->count);
    for (Py_ssize_t index = 0; records != NULL && index < self->count; index++) {
        record *one = new_record(self->from, &at);
        if (one == NULL) {
            Py_CLEAR(records);
        }
        else {
            PyList_SetItem(records, index, (PyObject *)one);
        }
    }
    return records;
}

static PyObject *
row_of(const place *where)
{
    PyObject *key = bytes_or_none(where->key, where->key_size);
    PyObject *value = key == NULL ? NULL : bytes_or_none(where->value, where->value_size);
    PyObject *headers = value == NULL ? NULL : headers_of(where);
    PyObject *row = headers == NULL ? NULL
                                    : Py_BuildValue("(LLOOO)", (long long)where->offset, (long long)where->timestamp,
                                                    key, value, headers);
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return row;
}

static PyObject *
piece_rows(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    piece *self = (piece *)object;
    bytes_t at = self->at;
    PyObject *rows = PyList_New(self->count);
    for (Py_ssize_t index = 0; rows != NULL && index < self->count; index++) {
        place where;
        at = get_place(at, &self->from->from, &where);
        PyObject *row = row_of(&where);
        if (row == NULL) {
            Py_CLEAR(rows);
        }
        else {
            PyList_SetItem(rows, index, row);
        }
    }
    return rows;
}

static Py_ssize_t
piece_length(PyObject *object)
{
    return ((piece *)object)->count;
}

static PyObject *
piece_cursor(PyObject *object, void *Py_UNUSED(closure))
{
    return Py_NewRef((PyObject *)((piece *)object)->from);
}

static void
free_piece(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)((piece *)object)->from);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The record gets a copy of its own bytes, and lets go of the cursor. */
static int
detach_record(record *self)
{
    place *where = &self->where;
    bytes_t start = where->key;
    PyObject *own = PyBytes_FromStringAndSize((const char *)start, where->end - start);
    if (own == NULL) {
        return -1;
    }
    bytes_t bytes = (bytes_t)PyBytes_AsString(own);
    PyObject *home = self->home;
    unlink_record(self);
    self->home = own;
    self->is_detached = 1;
    where->value = bytes + (where->value - start);
    where->headers = bytes + (where->headers - start);
    where->end = bytes + (where->end - start);
    where->key = bytes;
    Py_DECREF(home);
    return 0;
}

static PyObject *
cursor_detach(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    cursor *self = (cursor *)object;
    while (self->alive != NULL) {
        if (detach_record(self->alive) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
cursor_length(PyObject *object)
{
    cursor *self = (cursor *)object;
    return self->count - self->handed;
}

static PyObject *
cursor_position(PyObject *object, void *Py_UNUSED(closure))
{
    cursor *self = (cursor *)object;
    if (self->handed == self->count) {
        return Py_NewRef(self->next_offset);
    }
    return self->handed == 0 ? Py_NewRef(self->start) : PyLong_FromLongLong(self->last_offset + 1);
}

static PyObject *
cursor_stop(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    cursor *self = (cursor *)object;
    PyObject *position = cursor_position(object, NULL);
    self->handed = self->count;
    return position;
}

static PyObject *
cursor_size_bytes(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(((cursor *)object)->data.len);
}

static PyObject *
cursor_topic(PyObject *object, void *Py_UNUSED(closure))
{
    return Py_NewRef(((cursor *)object)->topic);
}

static PyObject *
cursor_partition(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((cursor *)object)->partition);
}

static PyObject *
cursor_timestamp_type(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((cursor *)object)->timestamp_type);
}

static void
free_cursor(PyObject *object)
{
    cursor *self = (cursor *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)self->kind);
    Py_XDECREF((PyObject *)self->piece_type);
    Py_XDECREF(self->topic);
    PyBuffer_Release(&self->data);
    Py_XDECREF(self->start);
    Py_XDECREF(self->next_offset);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef cursor_methods[] = {
    {"cut", cursor_cut, METH_O, "cut(count) -> Piece of the next records, which count as handed out"},
    {"stop", cursor_stop, METH_NOARGS, "stop() -> the position; nothing more is handed out"},
    {"detach", cursor_detach, METH_NOARGS, "detach(): records that are alive get bytes of their own"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef cursor_attributes[] = {
    {"position", cursor_position, NULL, NULL, NULL},
    {"size_bytes", cursor_size_bytes, NULL, NULL, NULL},
    {"topic", cursor_topic, NULL, NULL, NULL},
    {"partition", cursor_partition, NULL, NULL, NULL},
    {"timestamp_type", cursor_timestamp_type, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot cursor_slots[] = {
    {Py_tp_methods, cursor_methods},
    {Py_tp_getset, cursor_attributes},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, next_record},
    {Py_sq_length, cursor_length},
    {Py_tp_dealloc, free_cursor},
    {Py_tp_doc, "The records of a batch, handed out one after the other."},
    {0, NULL},
};

static PyType_Spec cursor_spec = {
    "kwire.wire._speedups.Cursor", sizeof(cursor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, cursor_slots,
};

static int
is_int64(PyObject *object, int64_t *n)
{
    int overflow;
    if (!PyLong_CheckExact(object)) {
        return 0;
    }
    *n = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

/* (kind, topic, partition, timestamp_type, position, next_offset,
 *  data, pos, count, base_offset, base_timestamp, last_delta, timestamp | None) -> Cursor | None */
static PyObject *
open_cursor(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    int64_t partition, timestamp_type, position, pos, count;
    origin from;
    if (nargs != 13 || !PyType_Check(args[0]) || !PyUnicode_CheckExact(args[1]) || !is_int64(args[2], &partition) ||
        !is_int64(args[3], &timestamp_type) || !is_int64(args[4], &position) || !PyLong_CheckExact(args[5]) ||
        !PyObject_CheckBuffer(args[6]) || !is_int64(args[7], &pos) || !is_int64(args[8], &count) ||
        !is_int64(args[9], &from.base_offset) || !is_int64(args[10], &from.base_timestamp) ||
        !is_int64(args[11], &from.last_delta) || partition != (int32_t)partition ||
        timestamp_type != (int32_t)timestamp_type) {
        Py_RETURN_NONE;
    }
    from.has_timestamp = args[12] != Py_None;
    if (from.has_timestamp && !is_int64(args[12], &from.timestamp)) {
        Py_RETURN_NONE;
    }
    PyObject *fields = PyObject_GetAttrString(module, "RecordFields");
    int is_kind = fields == NULL ? -1 : PyObject_IsSubclass(args[0], fields);
    Py_XDECREF(fields);
    if (is_kind <= 0) {
        return is_kind < 0 ? NULL : Py_NewRef(Py_None);
    }
    Py_buffer data;
    if (PyObject_GetBuffer(args[6], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    bytes_t begin = NULL;
    if (pos >= 0 && pos <= data.len && data.len <= INT32_MAX && count >= 0 &&
        count <= (data.len - pos) / RECORD_BYTES_MIN) {
        bytes_t bytes = data.buf;
        Py_BEGIN_ALLOW_THREADS
        begin = look_through(bytes + pos, bytes + data.len, &from, position, &count);
        Py_END_ALLOW_THREADS
    }
    PyObject *type = begin == NULL ? NULL : PyObject_GetAttrString(module, "Cursor");
    PyObject *piece_type = type == NULL ? NULL : PyObject_GetAttrString(module, "Piece");
    cursor *made = NULL;
    if (piece_type != NULL) {
        made = (cursor *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
    }
    Py_XDECREF(type);
    if (made == NULL) {
        Py_XDECREF(piece_type);
        PyBuffer_Release(&data);
        return begin == NULL ? Py_NewRef(Py_None) : NULL;
    }
    made->piece_type = (PyTypeObject *)piece_type;
    made->kind = (PyTypeObject *)Py_NewRef(args[0]);
    made->allocate = (allocfunc)PyType_GetSlot(made->kind, Py_tp_alloc);
    made->topic = Py_NewRef(args[1]);
    made->partition = (int32_t)partition;
    made->timestamp_type = (int32_t)timestamp_type;
    made->start = Py_NewRef(args[4]);
    made->next_offset = Py_NewRef(args[5]);
    made->data = data;
    made->from = from;
    made->at = begin;
    made->count = (Py_ssize_t)count;
    return (PyObject *)made;
}

static PyMethodDef piece_methods[] = {
    {"records", piece_records, METH_NOARGS, "records() -> list"},
    {"rows", piece_rows, METH_NOARGS, "rows() -> list of tuples"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef piece_attributes[] = {
    {"cursor", piece_cursor, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot piece_slots[] = {
    {Py_tp_methods, piece_methods},
    {Py_tp_getset, piece_attributes},
    {Py_sq_length, piece_length},
    {Py_tp_dealloc, free_piece},
    {Py_tp_doc, "Some records of a cursor, to be made when they are asked for."},
    {0, NULL},
};

static PyType_Spec piece_spec = {
    "kwire.wire._speedups.Piece", sizeof(piece), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, piece_slots,
};

/* ---- columns --------------------------------------------------------------------------------------------------- */

typedef struct {
    const piece *of;
    const char *topic;
    Py_ssize_t topic_size;
} part;

/* A column of byte strings in Arrow's layout: bits that say which are not null, int32 ends, all bytes. */
typedef struct {
    int64_t rows, nulls, size; /* counted first */
    PyObject *objects[3];      /* validity or None, ends, data */
    unsigned char *validity, *data;
    int32_t *ends;
    int64_t row, at; /* while it is filled */
} column;

typedef struct {
    int64_t rows, with_headers;
    column topic, key, value, name, content;
    PyObject *fixed[4]; /* partition, offset, timestamp, timestamp type */
    PyObject *lists[2]; /* of headers: validity and ends */
    int has_foreign_name; /* one that may be no UTF-8 */
} table;

static void
count_in(column *self, int64_t size)
{
    self->rows++;
    self->nulls += size < 0;
    self->size += size > 0 ? size : 0;
}

static void
count_headers(table *self, const place *where)
{
    bytes_t at = where->headers;
    int64_t size;
    for (int32_t index = 0; index < where->header_count; index++) {
        at = known_varint(at, &size);
        count_in(&self->name, size);
        for (bytes_t end = at + size; at < end; at++) {
            self->has_foreign_name |= *at > 0x7F;
        }
        at = known_varint(at, &size);
        count_in(&self->content, size);
        at += size > 0 ? size : 0;
    }
    self->with_headers += where->header_count > 0;
}

static void
count_piece(table *self, const part *from, int has_headers)
{
    const piece *of = from->of;
    bytes_t at = of->at;
    for (Py_ssize_t index = 0; index < of->count; index++) {
        place where;
        at = get_place(at, &of->from->from, &where);
        count_in(&self->key, where.key_size);
        count_in(&self->value, where.value_size);
        if (has_headers) {
            count_headers(self, &where);
        }
    }
    self->rows += of->count;
    self->topic.rows += of->count;
    self->topic.size += (int64_t)from->topic_size * of->count;
}

static int
is_countable(const column *self)
{
    return self->size <= INT32_MAX && self->rows < INT32_MAX;
}

static unsigned char *
new_buffer(PyObject **object, int64_t size)
{
    *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    return *object == NULL ? NULL : (unsigned char *)PyBytes_AsString(*object);
}

static unsigned char *
new_validity(PyObject **object, int64_t rows, int64_t nulls)
{
    if (nulls == 0) {
        *object = Py_NewRef(Py_None);
        return NULL;
    }
    unsigned char *bits = new_buffer(object, (rows + 7) / 8);
    if (bits != NULL) {
        memset(bits, 0, (size_t)(rows + 7) / 8);
    }
    return bits;
}

static int
make_column(column *self)
{
    self->validity = new_validity(&self->objects[0], self->rows, self->nulls);
    self->ends = (int32_t *)(void *)new_buffer(&self->objects[1], (self->rows + 1) * (int64_t)sizeof(int32_t));
    self->data = new_buffer(&self->objects[2], self->size);
    if (self->objects[0] == NULL || self->ends == NULL || self->data == NULL) {
        return 0;
    }
    self->ends[0] = 0;
    return 1;
}

static inline void
put_in(column *self, bytes_t from, int64_t size)
{
    if (size >= 0) {
        memcpy(self->data + self->at, from, (size_t)size);
        self->at += size;
        if (self->validity != NULL) {
            self->validity[self->row >> 3] |= (unsigned char)(1 << (self->row & 7));
        }
    }
    self->ends[++self->row] = (int32_t)self->at;
}

static void
put_headers(table *self, const place *where)
{
    bytes_t at = where->headers;
    int64_t size;
    for (int32_t index = 0; index < where->header_count; index++) {
        at = known_varint(at, &size);
        put_in(&self->name, at, size);
        at = known_varint(at + size, &size);
        put_in(&self->content, at, size);
        at += size > 0 ? size : 0;
    }
}

typedef struct {
    int32_t *partitions, *types, *ends;
    int64_t *offsets, *timestamps;
    unsigned char *bits;
} targets;

static targets
targets_of(const table *self, int has_headers)
{
    return (targets){
        .partitions = (int32_t *)(void *)PyBytes_AsString(self->fixed[0]),
        .offsets = (int64_t *)(void *)PyBytes_AsString(self->fixed[1]),
        .timestamps = (int64_t *)(void *)PyBytes_AsString(self->fixed[2]),
        .types = (int32_t *)(void *)PyBytes_AsString(self->fixed[3]),
        .ends = has_headers ? (int32_t *)(void *)PyBytes_AsString(self->lists[1]) : NULL,
        .bits = has_headers && self->lists[0] != Py_None ? (unsigned char *)PyBytes_AsString(self->lists[0]) : NULL,
    };
}

/* The records of a piece, from row `row` on. */
static void
put_piece(table *self, const part *from, const targets *to, int64_t row)
{
    const piece *of = from->of;
    bytes_t at = of->at;
    for (Py_ssize_t index = 0; index < of->count; index++, row++) {
        place where;
        at = get_place(at, &of->from->from, &where);
        to->partitions[row] = of->from->partition;
        to->offsets[row] = where.offset;
        to->timestamps[row] = where.timestamp;
        to->types[row] = of->from->timestamp_type;
        put_in(&self->topic, (bytes_t)from->topic, from->topic_size);
        put_in(&self->key, where.key, where.key_size);
        put_in(&self->value, where.value, where.value_size);
        if (to->ends != NULL) {
            put_headers(self, &where);
            to->ends[row + 1] = (int32_t)self->name.row;
            if (to->bits != NULL && where.header_count > 0) {
                to->bits[row >> 3] |= (unsigned char)(1 << (row & 7));
            }
        }
    }
}

static int
make_table(table *self, int has_headers)
{
    static const int64_t WIDTHS[] = {4, 8, 8, 4};
    for (int index = 0; index < 4; index++) {
        if (new_buffer(&self->fixed[index], self->rows * WIDTHS[index]) == NULL) {
            return 0;
        }
    }
    if (!make_column(&self->topic) || !make_column(&self->key) || !make_column(&self->value)) {
        return 0;
    }
    if (!has_headers) {
        return 1;
    }
    new_validity(&self->lists[0], self->rows, self->rows - self->with_headers);
    int32_t *ends = (int32_t *)(void *)new_buffer(&self->lists[1], (self->rows + 1) * 4);
    if (self->lists[0] == NULL || ends == NULL) {
        return 0;
    }
    ends[0] = 0;
    return make_column(&self->name) && make_column(&self->content);
}

static void
free_table(table *self)
{
    column *columns[] = {&self->topic, &self->key, &self->value, &self->name, &self->content};
    for (int index = 0; index < 5; index++) {
        for (int part = 0; part < 3; part++) {
            Py_XDECREF(columns[index]->objects[part]);
        }
    }
    for (int index = 0; index < 4; index++) {
        Py_XDECREF(self->fixed[index]);
    }
    Py_XDECREF(self->lists[0]);
    Py_XDECREF(self->lists[1]);
}

static PyObject *
column_value(const column *self)
{
    return Py_BuildValue("(OOO)", self->objects[0], self->objects[1], self->objects[2]);
}

static PyObject *
table_value(const table *self, int has_headers)
{
    PyObject *headers = !has_headers ? Py_NewRef(Py_None)
                                     : Py_BuildValue("(OONN)", self->lists[0], self->lists[1],
                                                     column_value(&self->name), column_value(&self->content));
    return Py_BuildValue("(LNOOOONNN)", (long long)self->rows, column_value(&self->topic), self->fixed[0],
                         self->fixed[1], self->fixed[2], self->fixed[3], column_value(&self->key),
                         column_value(&self->value), headers);
}

/* The parts that a tuple of pieces makes; 0 where one is of another kind, and -1 is an exception. */
static int
get_parts(PyObject *pieces, PyObject *type, part *parts)
{
    for (Py_ssize_t index = 0; index < PyTuple_Size(pieces); index++) {
        PyObject *item = PyTuple_GetItem(pieces, index);
        if ((PyObject *)Py_TYPE(item) != type) {
            return 0;
        }
        parts[index].of = (piece *)item;
        parts[index].topic = PyUnicode_AsUTF8AndSize(((piece *)item)->from->topic, &parts[index].topic_size);
        if (parts[index].topic == NULL) {
            return -1;
        }
    }
    return 1;
}

static PyObject *
columns_of(const part *parts, Py_ssize_t count, int has_headers)
{
    table found = {0};
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; index < count; index++) {
        count_piece(&found, &parts[index], has_headers);
    }
    Py_END_ALLOW_THREADS
    if (found.has_foreign_name || !is_countable(&found.topic) || !is_countable(&found.key) ||
        !is_countable(&found.value) || !is_countable(&found.name) || !is_countable(&found.content)) {
        Py_RETURN_NONE;
    }
    PyObject *value = NULL;
    if (make_table(&found, has_headers)) {
        targets to = targets_of(&found, has_headers);
        int64_t first = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t index = 0; index < count; index++) {
            put_piece(&found, &parts[index], &to, first);
            first += parts[index].of->count;
        }
        Py_END_ALLOW_THREADS
        value = table_value(&found, has_headers);
    }
    free_table(&found);
    return value;
}

/* (pieces: sequence of Piece, has_headers: bool) -> tuple of buffers | None; see `_cursor.columns` */
static PyObject *
columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        Py_RETURN_NONE;
    }
    PyObject *pieces = PySequence_Tuple(args[0]); /* which cannot change while the lock is given up */
    PyObject *type = pieces == NULL ? NULL : PyObject_GetAttrString(module, "Piece");
    Py_ssize_t count = type == NULL ? 0 : PyTuple_Size(pieces);
    part *parts = type == NULL ? NULL : PyMem_Malloc((size_t)(count ? count : 1) * sizeof(part));
    PyObject *value = NULL;
    if (parts != NULL) {
        int outcome = get_parts(pieces, type, parts);
        if (outcome >= 0) {
            value = outcome == 0 ? Py_NewRef(Py_None) : columns_of(parts, count, args[1] == Py_True);
        }
    }
    else if (type != NULL) {
        PyErr_NoMemory();
    }
    PyMem_Free(parts);
    Py_XDECREF(type);
    Py_XDECREF(pieces);
    return value;
}

/* ---- iteration ------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *reading; /* the cursor, or NULL */
} stream;

static PyObject *
stream_next(PyObject *object)
{
    stream *self = (stream *)object;
    for (;;) {
        if (self->reading != NULL) {
            PyObject *from = Py_NewRef(self->reading); /* it may be taken away meanwhile */
            PyObject *found = PyIter_Next(from);
            int is_same = from == self->reading;
            Py_DECREF(from);
            if (found != NULL || PyErr_Occurred()) {
                return found;
            }
            if (!is_same) {
                continue;
            }
            Py_CLEAR(self->reading);
        }
        PyObject *next = PyObject_CallMethod(object, "_next_cursor", NULL);
        if (next == NULL) {
            return NULL;
        }
        PyObject *old = self->reading;
        self->reading = next;
        Py_XDECREF(old);
    }
}

static PyObject *
stream_reading(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *reading = ((stream *)object)->reading;
    return Py_NewRef(reading == NULL ? Py_None : reading);
}

static int
stream_read(PyObject *object, PyObject *cursor_or_none, void *Py_UNUSED(closure))
{
    stream *self = (stream *)object;
    PyObject *old = self->reading;
    self->reading = cursor_or_none == NULL || cursor_or_none == Py_None ? NULL : Py_NewRef(cursor_or_none);
    Py_XDECREF(old);
    return 0;
}

static void
free_stream(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((stream *)object)->reading);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyGetSetDef stream_attributes[] = {
    {"_reading", stream_reading, stream_read, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_getset, stream_attributes},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, stream_next},
    {Py_tp_dealloc, free_stream},
    {Py_tp_doc, "Iterates over cursors that `_next_cursor` answers."},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    "kwire.wire._speedups.RecordStream", sizeof(stream), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, stream_slots,
};

/* ---- frames ---------------------------------------------------------------------------------------------------- */

/* (size) -> (bytes that nobody has written yet, a view to write them through). The view must not outlive the bytes, and
 * nobody may look at them before it is gone: see `_pure.blank`. */
static PyObject *
blank(PyObject *Py_UNUSED(module), PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    PyObject *view = whole == NULL ? NULL : PyMemoryView_FromMemory(PyBytes_AsString(whole), size, PyBUF_WRITE);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, whole, view);
    Py_XDECREF(whole);
    Py_XDECREF(view);
    return pair;
}

/* ---- the module ------------------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
    {"open_cursor", (PyCFunction)(void (*)(void))open_cursor, METH_FASTCALL,
     "(kind, topic, partition, timestamp_type, position, next_offset, data, pos, count, base_offset, base_timestamp, "
     "last_delta, timestamp, /)"},
    {"blank", blank, METH_O, "blank(size, /) -> (bytes, memoryview)"},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, "(pieces, has_headers, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_consume(PyObject *module)
{
    static const struct {
        const char *name;
        PyType_Spec *spec;
    } TYPES[] = {{"RecordFields", &record_spec}, {"Cursor", &cursor_spec}, {"Piece", &piece_spec}, {"RecordStream", &stream_spec}};
    for (size_t index = 0; index < sizeof(TYPES) / sizeof(*TYPES); index++) {
        PyObject *type = PyType_FromSpec(TYPES[index].spec);
        int outcome = type == NULL ? -1 : PyModule_AddObjectRef(module, TYPES[index].name, type);
        Py_XDECREF(type);
        if (outcome < 0) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, functions);
}
