/* What a consumer does for every record, in C: records made lazily from a batch, and batches as columns.
 *
 * `_cursor` is the specification, in Python. `open_cursor` looks once at all records of a batch and answers None for
 * whatever is out of the ordinary, as decode_records does; from then on every place in the batch is known to be right.
 *
 * A record refers to its cursor, which owns the bytes of the batch and knows, without owning them, the records that it
 * has handed out: `detach` gives those that are still alive a copy of their own bytes, so that one record that somebody
 * keeps does not keep its whole batch.
 *
 * The interpreter's lock is held but where columns are filled, which reads bytes and places that nobody changes and
 * writes into buffers that nobody else has seen yet. Limited API of Python 3.11.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *bytes_t;

/* Where the fields of a record are in its bytes; a size of -1 is null. */
typedef struct {
    int64_t offset, timestamp;
    uint32_t key_at, value_at, headers_at, end;
    int32_t key_size, value_size, header_count;
} place;

typedef struct {
    PyObject_HEAD
    PyObject *home; /* the cursor; or, detached, bytes of its own; NULL where there is nothing lazy */
    bytes_t bytes;  /* of the home */
    PyObject *topic;
    PyObject *key, *value, *headers; /* once made */
    PyObject *assigned;              /* a dict of what was set from Python, or NULL */
    place where;
    Py_ssize_t index; /* among the cursor's, -1 if detached */
    int32_t partition, timestamp_type;
} record;

typedef struct {
    place where;
    record *given; /* not owned: while it lives */
} entry;

typedef struct {
    PyObject_HEAD
    PyTypeObject *kind; /* of the records */
    allocfunc allocate;
    PyObject *topic;
    PyObject *data;
    PyObject *start, *next_offset; /* positions before the first and after the last */
    entry *entries;
    Py_ssize_t count, at;
    int32_t partition, timestamp_type;
} cursor;

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
headers_of(bytes_t bytes, const place *where)
{
    PyObject *headers = PyTuple_New(where->header_count);
    bytes_t at = bytes + where->headers_at;
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
        *kept = field == KEY     ? bytes_or_none(self->bytes + where->key_at, where->key_size)
                : field == VALUE ? bytes_or_none(self->bytes + where->value_at, where->value_size)
                                 : headers_of(self->bytes, where);
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

static void
free_record(PyObject *object)
{
    record *self = (record *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->home != NULL && self->index >= 0) {
        ((cursor *)self->home)->entries[self->index].given = NULL;
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

typedef struct {
    int64_t base_offset, base_timestamp, last_delta, timestamp;
    int has_timestamp; /* one for all records */
} origin;

/* The place of the record at `at`, and where it ends; NULL if anything is wrong with it. */
static bytes_t
get_place(bytes_t data, bytes_t at, bytes_t data_end, const origin *from, place *found)
{
    int64_t size, after, delta, key_size, value_size, header_count;
    bytes_t key, value, start;
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
    at = get_span(at, end, 1, &key, &key_size);
    at = at == NULL ? NULL : get_span(at, end, 1, &value, &value_size);
    at = at == NULL ? NULL : get_varint(at, end, &header_count);
    if (at == NULL || header_count < 0 || header_count > (end - at) / 2) {
        return NULL;
    }
    found->headers_at = (uint32_t)(at - data);
    for (int64_t index = 0; index < header_count && at != NULL; index++) {
        at = get_span(at, end, 0, &start, &size);
        at = at == NULL ? NULL : get_span(at, end, 1, &start, &size);
    }
    if (at != end || __builtin_add_overflow(from->base_timestamp, after, &found->timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, &found->offset)) {
        return NULL;
    }
    if (from->has_timestamp) {
        found->timestamp = from->timestamp;
    }
    found->key_at = (uint32_t)(key - data);
    found->value_at = (uint32_t)(value - data);
    found->end = (uint32_t)(end - data);
    found->key_size = (int32_t)key_size;
    found->value_size = (int32_t)value_size;
    found->header_count = (int32_t)header_count;
    return end;
}

#define RECORD_BYTES_MIN 7

/* All records of a batch, which must end where its data ends. NULL with nothing set if anything is wrong. */
static entry *
look_through(PyObject *data, int64_t pos, int64_t count, const origin *from)
{
    int64_t size = PyBytes_Size(data);
    if (pos < 0 || pos > size || size > INT32_MAX || count < 0 || count > (size - pos) / RECORD_BYTES_MIN) {
        return NULL;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(data), at = start + pos, end = start + size;
    entry *entries = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(entry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int64_t index = 0; index < count && at != NULL; index++) {
        at = get_place(start, at, end, from, &entries[index].where);
        entries[index].given = NULL;
    }
    if (at != end) {
        PyMem_Free(entries);
        return NULL;
    }
    return entries;
}

/* Of a batch that begins before the position, which is sent whole. */
static Py_ssize_t
without_earlier(entry *entries, Py_ssize_t count, int64_t position)
{
    if (count == 0 || entries[0].where.offset >= position) {
        return count;
    }
    Py_ssize_t kept = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (entries[index].where.offset >= position) {
            entries[kept++] = entries[index];
        }
    }
    return kept;
}

/* ---- cursors --------------------------------------------------------------------------------------------------- */

static record *
new_record(cursor *self, Py_ssize_t index)
{
    entry *from = &self->entries[index];
    if (from->given != NULL) {
        return (record *)Py_NewRef((PyObject *)from->given);
    }
    record *made = (record *)self->allocate(self->kind, 0);
    if (made != NULL) {
        made->home = Py_NewRef((PyObject *)self);
        made->bytes = (bytes_t)PyBytes_AsString(self->data);
        made->topic = Py_NewRef(self->topic);
        made->where = from->where;
        made->index = index;
        made->partition = self->partition;
        made->timestamp_type = self->timestamp_type;
        from->given = made;
    }
    return made;
}

static PyObject *
next_record(PyObject *object)
{
    cursor *self = (cursor *)object;
    return self->at < self->count ? (PyObject *)new_record(self, self->at++) : NULL;
}

/* `start` and `count` of a call, within the batch; 0 and an exception if not. */
static int
is_range(cursor *self, PyObject *const *args, Py_ssize_t nargs, Py_ssize_t *start, Py_ssize_t *count)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "start and count are taken");
        return 0;
    }
    *start = PyLong_AsSsize_t(args[0]);
    *count = *start == -1 && PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred()) {
        return 0;
    }
    if (*start < 0 || *count < 0 || *start > self->count || *count > self->count - *start) {
        PyErr_SetString(PyExc_IndexError, "not within the batch");
        return 0;
    }
    return 1;
}

static PyObject *
list_of_records(cursor *self, Py_ssize_t start, Py_ssize_t count)
{
    PyObject *records = PyList_New(count);
    for (Py_ssize_t index = 0; records != NULL && index < count; index++) {
        record *one = new_record(self, start + index);
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
cursor_take(PyObject *object, PyObject *wanted)
{
    cursor *self = (cursor *)object;
    Py_ssize_t count = PyLong_AsSsize_t(wanted);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    count = count > self->count - self->at ? self->count - self->at : count;
    PyObject *records = list_of_records(self, self->at, count < 0 ? 0 : count);
    if (records != NULL) {
        self->at += PyList_Size(records);
    }
    return records;
}

static PyObject *
cursor_cut(PyObject *object, PyObject *wanted)
{
    cursor *self = (cursor *)object;
    Py_ssize_t count = PyLong_AsSsize_t(wanted);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    count = count > self->count - self->at ? self->count - self->at : count < 0 ? 0 : count;
    Py_ssize_t start = self->at;
    self->at += count;
    return Py_BuildValue("(nn)", start, count);
}

static PyObject *
cursor_records(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t start, count;
    cursor *self = (cursor *)object;
    return is_range(self, args, nargs, &start, &count) ? list_of_records(self, start, count) : NULL;
}

static PyObject *
row_of(cursor *self, Py_ssize_t index)
{
    const place *where = &self->entries[index].where;
    bytes_t bytes = (bytes_t)PyBytes_AsString(self->data);
    PyObject *key = bytes_or_none(bytes + where->key_at, where->key_size);
    PyObject *value = key == NULL ? NULL : bytes_or_none(bytes + where->value_at, where->value_size);
    PyObject *headers = value == NULL ? NULL : headers_of(bytes, where);
    PyObject *row = headers == NULL ? NULL
                                    : Py_BuildValue("(LLOOO)", (long long)where->offset, (long long)where->timestamp,
                                                    key, value, headers);
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return row;
}

static PyObject *
cursor_rows(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t start, count;
    cursor *self = (cursor *)object;
    PyObject *rows = is_range(self, args, nargs, &start, &count) ? PyList_New(count) : NULL;
    for (Py_ssize_t index = 0; rows != NULL && index < count; index++) {
        PyObject *row = row_of(self, start + index);
        if (row == NULL) {
            Py_CLEAR(rows);
        }
        else {
            PyList_SetItem(rows, index, row);
        }
    }
    return rows;
}

/* The record gets a copy of its own bytes, and lets go of the cursor. */
static int
detach_record(record *self)
{
    place *where = &self->where;
    uint32_t start = where->key_at;
    PyObject *own = PyBytes_FromStringAndSize((const char *)self->bytes + start, (Py_ssize_t)(where->end - start));
    if (own == NULL) {
        return -1;
    }
    PyObject *home = self->home;
    self->home = own;
    self->bytes = (bytes_t)PyBytes_AsString(own);
    self->index = -1;
    where->key_at -= start;
    where->value_at -= start;
    where->headers_at -= start;
    where->end -= start;
    Py_DECREF(home);
    return 0;
}

static PyObject *
cursor_detach(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    cursor *self = (cursor *)object;
    for (Py_ssize_t index = 0; index < self->count; index++) {
        record *given = self->entries[index].given;
        if (given != NULL) {
            self->entries[index].given = NULL;
            if (detach_record(given) < 0) {
                self->entries[index].given = given;
                return NULL;
            }
        }
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
cursor_length(PyObject *object)
{
    cursor *self = (cursor *)object;
    return self->count - self->at;
}

static PyObject *
cursor_position(PyObject *object, void *Py_UNUSED(closure))
{
    cursor *self = (cursor *)object;
    if (self->at == self->count) {
        return Py_NewRef(self->next_offset);
    }
    return self->at == 0 ? Py_NewRef(self->start) : PyLong_FromLongLong(self->entries[self->at - 1].where.offset + 1);
}

static PyObject *
cursor_stop(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    cursor *self = (cursor *)object;
    PyObject *position = cursor_position(object, NULL);
    self->at = self->count;
    return position;
}

static PyObject *
cursor_size_bytes(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(PyBytes_Size(((cursor *)object)->data));
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
    PyMem_Free(self->entries);
    Py_XDECREF((PyObject *)self->kind);
    Py_XDECREF(self->topic);
    Py_XDECREF(self->data);
    Py_XDECREF(self->start);
    Py_XDECREF(self->next_offset);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef cursor_methods[] = {
    {"take", cursor_take, METH_O, "take(count) -> list of the next records"},
    {"cut", cursor_cut, METH_O, "cut(count) -> (start, count) of the next records, which count as handed out"},
    {"records", (PyCFunction)(void (*)(void))cursor_records, METH_FASTCALL, "records(start, count) -> list"},
    {"rows", (PyCFunction)(void (*)(void))cursor_rows, METH_FASTCALL, "rows(start, count) -> list of tuples"},
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
        !PyBytes_CheckExact(args[6]) || !is_int64(args[7], &pos) || !is_int64(args[8], &count) ||
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
    entry *entries = look_through(args[6], pos, count, &from);
    if (entries == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *type = PyObject_GetAttrString(module, "Cursor");
    cursor *made = type == NULL ? NULL : (cursor *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))(
                                             (PyTypeObject *)type, 0);
    Py_XDECREF(type);
    if (made == NULL) {
        PyMem_Free(entries);
        return NULL;
    }
    made->kind = (PyTypeObject *)Py_NewRef(args[0]);
    made->allocate = (allocfunc)PyType_GetSlot(made->kind, Py_tp_alloc);
    made->topic = Py_NewRef(args[1]);
    made->partition = (int32_t)partition;
    made->timestamp_type = (int32_t)timestamp_type;
    made->start = Py_NewRef(args[4]);
    made->next_offset = Py_NewRef(args[5]);
    made->data = Py_NewRef(args[6]);
    made->entries = entries;
    made->count = without_earlier(entries, (Py_ssize_t)count, position);
    return (PyObject *)made;
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

typedef struct {
    cursor *from;
    Py_ssize_t start, count;
    const char *topic;
    Py_ssize_t topic_size;
} piece;

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
count_headers(table *self, bytes_t bytes, const place *where)
{
    bytes_t at = bytes + where->headers_at;
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
count_piece(table *self, const piece *part, int has_headers)
{
    bytes_t bytes = (bytes_t)PyBytes_AsString(part->from->data);
    for (Py_ssize_t index = 0; index < part->count; index++) {
        const place *where = &part->from->entries[part->start + index].where;
        count_in(&self->key, where->key_size);
        count_in(&self->value, where->value_size);
        if (has_headers) {
            count_headers(self, bytes, where);
        }
    }
    self->rows += part->count;
    self->topic.rows += part->count;
    self->topic.size += (int64_t)part->topic_size * part->count;
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
put_headers(table *self, bytes_t bytes, const place *where)
{
    bytes_t at = bytes + where->headers_at;
    int64_t size;
    for (int32_t index = 0; index < where->header_count; index++) {
        at = known_varint(at, &size);
        put_in(&self->name, at, size);
        at = known_varint(at + size, &size);
        put_in(&self->content, at, size);
        at += size > 0 ? size : 0;
    }
}

/* The numbers of a piece's records, from row `first` on. */
static void
put_numbers(table *self, const piece *part, int64_t first)
{
    int32_t *partitions = (int32_t *)(void *)PyBytes_AsString(self->fixed[0]) + first;
    int64_t *offsets = (int64_t *)(void *)PyBytes_AsString(self->fixed[1]) + first;
    int64_t *timestamps = (int64_t *)(void *)PyBytes_AsString(self->fixed[2]) + first;
    int32_t *types = (int32_t *)(void *)PyBytes_AsString(self->fixed[3]) + first;
    for (Py_ssize_t index = 0; index < part->count; index++) {
        const place *where = &part->from->entries[part->start + index].where;
        partitions[index] = part->from->partition;
        offsets[index] = where->offset;
        timestamps[index] = where->timestamp;
        types[index] = part->from->timestamp_type;
        put_in(&self->topic, (bytes_t)part->topic, part->topic_size);
    }
}

static void
put_piece(table *self, const piece *part, int64_t first, int has_headers)
{
    bytes_t bytes = (bytes_t)PyBytes_AsString(part->from->data);
    unsigned char *bits = has_headers && self->lists[0] != Py_None ? (unsigned char *)PyBytes_AsString(self->lists[0])
                                                                   : NULL;
    int32_t *ends = has_headers ? (int32_t *)(void *)PyBytes_AsString(self->lists[1]) : NULL;
    put_numbers(self, part, first);
    for (Py_ssize_t index = 0; index < part->count; index++) {
        const place *where = &part->from->entries[part->start + index].where;
        put_in(&self->key, bytes + where->key_at, where->key_size);
        put_in(&self->value, bytes + where->value_at, where->value_size);
        if (has_headers) {
            int64_t row = first + index;
            put_headers(self, bytes, where);
            ends[row + 1] = (int32_t)self->name.row;
            if (bits != NULL && where->header_count > 0) {
                bits[row >> 3] |= (unsigned char)(1 << (row & 7));
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

/* The pieces of a list of (Cursor, start, count); 0 where one is of another kind, and -1 is an exception. */
static int
get_pieces(PyObject *list, PyObject *type, piece *pieces)
{
    for (Py_ssize_t index = 0; index < PyList_Size(list); index++) {
        PyObject *item = PyList_GetItem(list, index);
        if (!PyTuple_CheckExact(item) || PyTuple_Size(item) != 3 ||
            (PyObject *)Py_TYPE(PyTuple_GetItem(item, 0)) != type) {
            return 0;
        }
        piece *part = &pieces[index];
        part->from = (cursor *)PyTuple_GetItem(item, 0);
        PyObject *range[] = {PyTuple_GetItem(item, 1), PyTuple_GetItem(item, 2)};
        if (!is_range(part->from, range, 2, &part->start, &part->count)) {
            return -1;
        }
        part->topic = PyUnicode_AsUTF8AndSize(part->from->topic, &part->topic_size);
        if (part->topic == NULL) {
            return -1;
        }
    }
    return 1;
}

static PyObject *
columns_of(const piece *pieces, Py_ssize_t count, int has_headers)
{
    table found = {0};
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; index < count; index++) {
        count_piece(&found, &pieces[index], has_headers);
    }
    Py_END_ALLOW_THREADS
    if (found.has_foreign_name || !is_countable(&found.topic) || !is_countable(&found.key) ||
        !is_countable(&found.value) || !is_countable(&found.name) || !is_countable(&found.content)) {
        Py_RETURN_NONE;
    }
    PyObject *value = NULL;
    if (make_table(&found, has_headers)) {
        Py_BEGIN_ALLOW_THREADS
        int64_t first = 0;
        for (Py_ssize_t index = 0; index < count; index++) {
            put_piece(&found, &pieces[index], first, has_headers);
            first += pieces[index].count;
        }
        Py_END_ALLOW_THREADS
        value = table_value(&found, has_headers);
    }
    free_table(&found);
    return value;
}

/* (pieces: list of (Cursor, start, count), has_headers: bool) -> tuple of buffers | None; see `_columns` */
static PyObject *
columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyList_CheckExact(args[0])) {
        Py_RETURN_NONE;
    }
    /* A tuple of them cannot change while the lock is given up. */
    PyObject *held = PyList_AsTuple(args[0]);
    PyObject *type = PyObject_GetAttrString(module, "Cursor");
    Py_ssize_t count = PyList_Size(args[0]);
    piece *pieces = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(piece));
    PyObject *value = NULL;
    if (held != NULL && type != NULL && pieces != NULL) {
        int outcome = get_pieces(args[0], type, pieces);
        if (outcome == 1) {
            value = columns_of(pieces, count, args[1] == Py_True);
        }
        else if (outcome == 0) {
            value = Py_NewRef(Py_None);
        }
    }
    else if (pieces == NULL) {
        PyErr_NoMemory();
    }
    PyMem_Free(pieces);
    Py_XDECREF(type);
    Py_XDECREF(held);
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

/* ---- the module ------------------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
    {"open_cursor", (PyCFunction)(void (*)(void))open_cursor, METH_FASTCALL,
     "(kind, topic, partition, timestamp_type, position, next_offset, data, pos, count, base_offset, base_timestamp, "
     "last_delta, timestamp, /)"},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, "(pieces, has_headers, /)"},
    {NULL, NULL, 0, NULL},
};

int add_consume(PyObject *module);

int
add_consume(PyObject *module)
{
    static const struct {
        const char *name;
        PyType_Spec *spec;
    } TYPES[] = {{"RecordFields", &record_spec}, {"Cursor", &cursor_spec}, {"RecordStream", &stream_spec}};
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
