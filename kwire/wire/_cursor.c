/* A way through the records of a batch that was looked through once, and pieces of it. See _consume.h. */
#include "_consume.h"

/* ---- looking through a batch ----------------------------------------------------------------------------------- */

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

/* ---- cursors --------------------------------------------------------------------------------------------------- */

static record *
new_record(cursor *self, bytes_t *at)
{
    record *made = self->idle;
    if (made != NULL) {
        self->idle = made->next;
        made->key = made->value = made->headers = made->assigned = NULL;
        PyObject_Init((PyObject *)made, self->kind);
    }
    else {
        made = (record *)self->allocate(self->kind, 0);
    }
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
    for (record *idle = self->idle, *next; idle != NULL; idle = next) {
        next = idle->next;
        ((freefunc)PyType_GetSlot(self->kind, Py_tp_free))(idle);
    }
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

PyType_Spec cursor_spec = {
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
PyObject *
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
    made->has_idle = !(PyType_GetFlags(made->kind) & Py_TPFLAGS_HAVE_GC);
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

PyType_Spec piece_spec = {
    "kwire.wire._speedups.Piece", sizeof(piece), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, piece_slots,
};
