/* A consumed record, whose fields are created from the batch when they are read: see RecordFields in reader.py. */
#include "reader.h"

enum field { TOPIC, PARTITION, OFFSET, TIMESTAMP_MS, TIMESTAMP_TYPE, KEY, VALUE, HEADERS };

static const char *const FIELD_NAMES[] = {"topic",          "partition", "offset", "timestamp_ms",
                                          "timestamp_type", "key",       "value",  "headers"};

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

PyObject *
headers_of(const layout *where)
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
        const layout *where = &self->where;
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

/* Unlink a record from its reader, before it is freed or gets its own bytes. */
static void
unlink_record(record *self)
{
    if (self->previous != NULL) {
        self->previous->next = self->next;
    }
    else {
        ((reader *)self->home)->alive = self->next;
    }
    if (self->next != NULL) {
        self->next->previous = self->previous;
    }
    self->previous = self->next = NULL;
}

/* Give the record a copy of its own bytes, and release the reader. */
int
detach_record(record *self)
{
    layout *where = &self->where;
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

/* A free list of record memory, for types without a garbage collector header (it would precede the record): a reader
 * creates and frees hundreds at a time. */
#define IDLE_MAX 2048
#define RECORDS_AHEAD 4 /* prefetched ahead of the current one: they are in the cache when they are used */

static struct {
    PyTypeObject *kind;
    record *first; /* linked by `next` */
    int count;
} idle;

/* Prepare for creating records of this type. */
void
keep_idle(PyTypeObject *kind)
{
    if (kind == idle.kind || PyType_GetFlags(kind) & Py_TPFLAGS_HAVE_GC) {
        return;
    }
    PyTypeObject *before = idle.kind;
    while (idle.first != NULL) {
        record *one = idle.first;
        idle.first = one->next;
        ((freefunc)PyType_GetSlot(before, Py_tp_free))(one);
    }
    idle.count = 0;
    idle.kind = (PyTypeObject *)Py_NewRef((PyObject *)kind);
    Py_XDECREF((PyObject *)before);
}

record *
new_record(reader *from, walk *on)
{
    record *made = from->kind == idle.kind ? idle.first : NULL;
    if (made != NULL) {
        idle.first = made->next;
        idle.count--;
        made->key = made->value = made->headers = made->assigned = NULL;
        made->is_detached = 0;
        made->previous = NULL;
        PyObject_Init((PyObject *)made, from->kind);
    }
    else {
        made = (record *)from->allocate(from->kind, 0);
    }
    if (made != NULL) {
        bytes_t at = on->at;
        next_layout(on, &made->where);
        __builtin_prefetch(on->at + RECORDS_AHEAD * (on->at - at));
        made->home = Py_NewRef((PyObject *)from);
        made->topic = Py_NewRef(from->topic);
        made->partition = from->partition;
        made->timestamp_type = from->timestamp_type;
        made->next = from->alive;
        if (made->next != NULL) {
            made->next->previous = made;
        }
        from->alive = made;
    }
    return made;
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
    if (type == idle.kind && idle.count < IDLE_MAX) {
        self->next = idle.first;
        idle.first = self;
        idle.count++;
    }
    else {
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    }
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

PyType_Spec record_spec = {
    "kwire.wire._speedups.RecordFields", sizeof(record), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, record_slots,
};

/* (name) -> a class derived from RecordFields
 *
 * A subclass written in Python has a garbage collector header, which costs more time than the rest of a record, and is
 * useless, since RecordFields does not support traversal. */
PyObject *
record_class(PyObject *module, PyObject *full_name)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, free_record}, {0, NULL}};
    return derived_class(module, "RecordFields", full_name, sizeof(record), slots);
}
