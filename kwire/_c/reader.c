/* RecordReader, RecordSlice and RecordIterator: see kwire/records/reader.py.
 *
 * The first part validates all records of a batch, so that every position in it is valid later; it needs no GIL.
 */
#include "reader.h"
#include "buffers.h"

/* ---- validation of a batch --------------------------------------------------------------------------------------- */

/* Read a varint like get_varint. `is_roomy`: two bytes at `at` are readable, which suffices for most varints. */
static inline bytes_t
next_varint(bytes_t at, bytes_t end, int is_roomy, int64_t *n)
{
    if (is_roomy) {
        uint64_t low = at[0], high = at[1];
        if (low < 0x80) {
            *n = undone(low);
            return at + 1;
        }
        if (high < 0x80) {
            *n = undone((low & 0x7F) | high << 7);
            return at + 2;
        }
    }
    return get_varint(at, end, n);
}

/* Skip a size and so many bytes; NULL if there are fewer. The size -1 is valid if `is_nullable`. */
static inline bytes_t
next_span(bytes_t at, bytes_t end, int is_roomy, int is_nullable, int64_t *size)
{
    at = next_varint(at, end, is_roomy, size);
    if (at == NULL || *size < -is_nullable || *size > end - at) {
        return NULL;
    }
    return *size > 0 ? at + *size : at;
}

/* The sizes of one record. */
typedef struct {
    int64_t offset, key_size, value_size;
} sizes;

/* Return the end of the record at `at` if it is valid, else NULL. */
static inline bytes_t
check_record(bytes_t at, bytes_t data_end, int is_roomy, const origin *from, sizes *found)
{
    int64_t size, after, delta, header_count, timestamp;
    at = next_varint(at, data_end, is_roomy, &size);
    if (at == NULL || size < 1 || size > data_end - at) {
        return NULL;
    }
    bytes_t end = at + size;
    at = next_varint(at + 1, end, is_roomy, &after);
    at = at == NULL ? NULL : next_varint(at, end, is_roomy, &delta);
    if (at == NULL || delta < 0 || delta > from->last_delta) {
        return NULL;
    }
    at = next_span(at, end, is_roomy, 1, &found->key_size);
    at = at == NULL ? NULL : next_span(at, end, is_roomy, 1, &found->value_size);
    at = at == NULL ? NULL : next_varint(at, end, is_roomy, &header_count);
    if (at == NULL || header_count < 0 || header_count > (end - at) / 2) {
        return NULL;
    }
    for (int64_t index = 0; index < header_count && at != NULL; index++) {
        at = next_span(at, end, is_roomy, 0, &size);
        at = at == NULL ? NULL : next_span(at, end, is_roomy, 1, &size);
    }
    if (at != end || __builtin_add_overflow(from->base_timestamp, after, &timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, &found->offset)) {
        return NULL;
    }
    return end;
}

/* More than the check reads beyond a record's end or before it compares its size: five varints. */
#define ROOM_BEHIND 64

/* Check a record like check_record, but for all except the last records without a bounds check per byte. */
static inline bytes_t
next_record(bytes_t at, bytes_t data_end, const origin *from, sizes *found)
{
    bytes_t end = data_end - at <= ROOM_BEHIND ? NULL : check_record(at, data_end - ROOM_BEHIND, 1, from, found);
    return end != NULL ? end : check_record(at, data_end, 0, from, found);
}

static inline void
add_sizes(totals *all, const sizes *more)
{
    all->key_bytes += more->key_size > 0 ? more->key_size : 0;
    all->null_keys += more->key_size < 0;
    all->value_bytes += more->value_size > 0 ? more->value_size : 0;
    all->null_values += more->value_size < 0;
}

int
look_through(walk *on, bytes_t end, int64_t position, totals *all)
{
    const Py_ssize_t count = on->left;
    totals found = *all;
    sizes one;
    bytes_t at = on->at;
    for (Py_ssize_t index = 0; index < count; index++) {
        at = next_record(at, end, &on->from, &one);
        if (at == NULL || one.offset == INT64_MAX) {
            return 0;
        }
        if (one.offset >= position) {
            add_sizes(&found, &one);
            continue;
        }
        if (on->left > count - index) {
            return 0; /* offsets do not ascend */
        }
        on->left--;
        on->at = at;
    }
    *all = found;
    return at == end;
}

/* ---- validation of consecutive batches --------------------------------------------------------------------------- */

/* Return the end of the batch at `at` if it has format v2, is neither compressed nor control, and has a valid header
 * and checksum; else NULL. */
static bytes_t
check_batch(bytes_t at, bytes_t data_end, int check_crc)
{
    if (data_end - at < BATCH_OVERHEAD_BYTES || at[16] != 2 || at[22] & (CODEC_BITS | CONTROL_BIT)) {
        return NULL;
    }
    int64_t size = 12 + big_endian(at + 8, 4), last_delta = big_endian(at + 23, 4), count = big_endian(at + 57, 4);
    int64_t last_offset;
    if (size < BATCH_OVERHEAD_BYTES || size > data_end - at || last_delta < 0 || count < 0 || count > last_delta + 1 ||
        count > (size - BATCH_OVERHEAD_BYTES) / RECORD_BYTES_MIN ||
        __builtin_add_overflow(big_endian(at, 8), last_delta + 1, &last_offset)) {
        return NULL;
    }
    if (check_crc && crc32c_of(at + 21, (size_t)size - 21) != (uint32_t)big_endian(at + 17, 4)) {
        return NULL;
    }
    return at + size;
}

stretch
look_through_batches(bytes_t at, bytes_t data_end, int64_t position, int check_crc, int64_t enough)
{
    stretch found = {.end = at};
    bytes_t begin = at;
    while (found.end - begin < enough) {
        bytes_t end = check_batch(found.end, data_end, check_crc);
        if (end == NULL) {
            break;
        }
        int is_first = found.end == begin, is_append_time = found.end[22] & LOG_APPEND_BIT;
        walk on = walk_into(found.end);
        totals all = found.all;
        if (!is_first && (on.from.base_offset < found.next_offset || is_append_time != found.is_append_time)) {
            break;
        }
        if (!look_through(&on, end, position, &all)) {
            break;
        }
        if (found.count == 0) {
            found.on = on;
        }
        found.is_append_time = is_append_time;
        found.count += on.left;
        found.all = all;
        found.end = end;
        found.next_offset = on.from.base_offset + on.from.last_delta + 1;
    }
    return found;
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

static PyObject *
reader_next(PyObject *object)
{
    reader *self = (reader *)object;
    if (self->handed == self->count) {
        return NULL;
    }
    record *made = new_record(self, &self->on);
    if (made != NULL) {
        self->handed++;
        self->last_offset = made->where.offset;
    }
    return (PyObject *)made;
}

/* Return how many of the next records are wanted and left; -1 with an exception. */
static Py_ssize_t
count_of(const reader *self, PyObject *wanted)
{
    Py_ssize_t count = PyLong_AsSsize_t(wanted), left = self->count - self->handed;
    if (count == -1 && PyErr_Occurred()) {
        return -1;
    }
    return count > left ? left : count < 0 ? 0 : count;
}

static PyObject *
reader_cut(PyObject *object, PyObject *wanted)
{
    reader *self = (reader *)object;
    Py_ssize_t count = count_of(self, wanted), left = self->count - self->handed;
    if (count < 0) {
        return NULL;
    }
    slice *made = (slice *)((allocfunc)PyType_GetSlot(self->slice_type, Py_tp_alloc))(self->slice_type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->from = (reader *)Py_NewRef(object);
    made->on = self->on;
    made->count = count;
    made->all = made->count == self->count ? &self->all : NULL;
    self->handed += made->count;
    if (made->count < left && made->count > 0) { /* a reader at its end is not between records */
        layout where;
        for (Py_ssize_t index = 0; index < made->count; index++) {
            next_layout(&self->on, &where);
        }
        self->last_offset = where.offset;
    }
    else {
        self->behind += made->count;
    }
    return (PyObject *)made;
}

static PyObject *
slice_records(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    slice *self = (slice *)object;
    walk on = self->on;
    PyObject *records = PyList_New(self->count);
    for (Py_ssize_t index = 0; records != NULL && index < self->count; index++) {
        record *one = new_record(self->from, &on);
        if (one == NULL) {
            Py_CLEAR(records);
        }
        else {
            PyList_SetItem(records, index, (PyObject *)one);
        }
    }
    return records;
}

/* Cut records off like `cut`, and return them as a list, which saves a second pass. */
static PyObject *
reader_take(PyObject *object, PyObject *wanted)
{
    reader *self = (reader *)object;
    if (PyType_GetFlags(self->kind) & Py_TPFLAGS_HAVE_GC) {
        /* Creating such a record may run other code, which may read from this reader too. */
        PyObject *cut = reader_cut(object, wanted);
        PyObject *records = cut == NULL ? NULL : slice_records(cut, NULL);
        Py_XDECREF(cut);
        return records;
    }
    Py_ssize_t count = count_of(self, wanted);
    PyObject *records = count < 0 ? NULL : PyList_New(count);
    if (records != NULL && count > self->count - self->handed) { /* so may creating the list */
        Py_DECREF(records);
        return reader_take(object, wanted);
    }
    for (Py_ssize_t index = 0; records != NULL && index < count; index++) {
        PyObject *one = reader_next(object);
        if (one == NULL) {
            Py_CLEAR(records);
        }
        else {
            PyList_SetItem(records, index, one);
        }
    }
    return records;
}

static PyObject *
row_of(const layout *where)
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
slice_rows(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    slice *self = (slice *)object;
    walk on = self->on;
    PyObject *rows = PyList_New(self->count);
    for (Py_ssize_t index = 0; rows != NULL && index < self->count; index++) {
        layout where;
        next_layout(&on, &where);
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
slice_length(PyObject *object)
{
    return ((slice *)object)->count;
}

static PyObject *
slice_reader(PyObject *object, void *Py_UNUSED(closure))
{
    return Py_NewRef((PyObject *)((slice *)object)->from);
}

static void
free_piece(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)((slice *)object)->from);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *
reader_detach(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    reader *self = (reader *)object;
    while (self->alive != NULL) {
        if (detach_record(self->alive) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static Py_ssize_t
reader_length(PyObject *object)
{
    reader *self = (reader *)object;
    return self->count - self->handed;
}

static PyObject *
reader_position(PyObject *object, void *Py_UNUSED(closure))
{
    reader *self = (reader *)object;
    if (self->handed == self->count) {
        return Py_NewRef(self->next_offset);
    }
    return self->handed == 0 ? Py_NewRef(self->start) : PyLong_FromLongLong(self->last_offset + 1);
}

static PyObject *
reader_last_offset(PyObject *object, void *Py_UNUSED(closure))
{
    reader *self = (reader *)object;
    layout where;
    for (; self->behind > 0; self->behind--) { /* the last records were cut off, and nobody has asked before */
        next_layout(&self->on, &where);
        self->last_offset = where.offset;
    }
    return self->handed == 0 || self->is_unread ? Py_NewRef(Py_None) : PyLong_FromLongLong(self->last_offset);
}

static PyObject *
reader_stop(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    reader *self = (reader *)object;
    PyObject *position = reader_position(object, NULL);
    self->is_unread |= self->handed == 0;
    self->handed = self->count;
    return position;
}

static PyObject *
reader_size_bytes(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(((reader *)object)->size);
}

static PyObject *
reader_topic(PyObject *object, void *Py_UNUSED(closure))
{
    return Py_NewRef(((reader *)object)->topic);
}

static PyObject *
reader_partition(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((reader *)object)->partition);
}

static PyObject *
reader_timestamp_type(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((reader *)object)->timestamp_type);
}

static void
free_reader(PyObject *object)
{
    reader *self = (reader *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)self->kind);
    Py_XDECREF((PyObject *)self->slice_type);
    Py_XDECREF(self->topic);
    PyBuffer_Release(&self->data);
    Py_XDECREF(self->start);
    Py_XDECREF(self->next_offset);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef reader_methods[] = {
    {"cut", reader_cut, METH_O, "cut(count) -> RecordSlice of the next records, which count as handed out"},
    {"take", reader_take, METH_O, "take(count) -> list of the next records, which count as handed out"},
    {"stop", reader_stop, METH_NOARGS, "stop() -> the position; nothing more is handed out"},
    {"detach", reader_detach, METH_NOARGS, "detach(): records that are alive get bytes of their own"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_attributes[] = {
    {"last_offset", reader_last_offset, NULL, NULL, NULL},
    {"position", reader_position, NULL, NULL, NULL},
    {"size_bytes", reader_size_bytes, NULL, NULL, NULL},
    {"topic", reader_topic, NULL, NULL, NULL},
    {"partition", reader_partition, NULL, NULL, NULL},
    {"timestamp_type", reader_timestamp_type, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_attributes},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, reader_next},
    {Py_sq_length, reader_length},
    {Py_tp_dealloc, free_reader},
    {Py_tp_doc, "The records of a batch, handed out one after the other."},
    {0, NULL},
};

PyType_Spec reader_spec = {
    "kwire.wire._speedups.RecordReader",
    sizeof(reader),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    reader_slots,
};

/* The arguments that all constructors of a reader share. */
typedef struct {
    PyTypeObject *kind;
    PyObject *topic;
    int64_t partition, position;
    PyObject *start;
} source;

/* Parse (kind, topic, partition, position); return 0 if Python must handle it, -1 with an exception. */
static int
get_source(PyObject *module, PyObject *kind, PyObject *topic, PyObject *partition, PyObject *position, source *made)
{
    if (!PyType_Check(kind) || !PyUnicode_CheckExact(topic) || !is_int64(partition, &made->partition) ||
        !is_int64(position, &made->position) || made->partition != (int32_t)made->partition) {
        return 0;
    }
    made->kind = (PyTypeObject *)kind;
    made->topic = topic;
    made->start = position;
    PyObject *fields = PyObject_GetAttrString(module, "RecordFields");
    int is_kind = fields == NULL ? -1 : PyObject_IsSubclass(kind, fields);
    Py_XDECREF(fields);
    return is_kind;
}

/* Return whether the memory of a read-only buffer can be written to by the object that owns it, such as the bytearray
 * of `memoryview(...).toreadonly()`; -1 with an exception. */
static int
is_writable_by_owner(PyObject *object)
{
    if (!PyMemoryView_Check(object)) {
        return 0;
    }
    PyObject *owner = PyObject_GetAttrString(object, "obj");
    if (owner == NULL) {
        return -1;
    }
    int is_writable = owner == Py_None; /* memory without an owner: of C code */
    Py_buffer view;
    if (!is_writable && !PyBytes_CheckExact(owner)) {
        is_writable = PyObject_GetBuffer(owner, &view, PyBUF_WRITABLE) == 0;
        if (is_writable) {
            PyBuffer_Release(&view);
        }
        PyErr_Clear();
    }
    Py_DECREF(owner);
    return is_writable;
}

/* Export the data of a reader; return 0 if Python must handle it, -1 with an exception. What was validated must not
 * change: Python copies memory that its owner may write to. */
static int
get_constant(PyObject *object, Py_buffer *data)
{
    if (PyObject_GetBuffer(object, data, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    int is_writable = data->readonly ? is_writable_by_owner(object) : 1;
    if (is_writable) {
        PyBuffer_Release(data);
    }
    return is_writable < 0 ? -1 : !is_writable;
}

/* Create a reader, which owns the buffer even after an error; the caller sets the other fields. */
static reader *
new_reader(PyObject *module, const source *by, Py_buffer *data)
{
    PyObject *type = PyObject_GetAttrString(module, "RecordReader");
    PyObject *slice_type = type == NULL ? NULL : PyObject_GetAttrString(module, "RecordSlice");
    reader *made = NULL;
    if (slice_type != NULL) {
        made = (reader *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
    }
    Py_XDECREF(type);
    if (made == NULL) {
        Py_XDECREF(slice_type);
        PyBuffer_Release(data);
        return NULL;
    }
    made->slice_type = (PyTypeObject *)slice_type;
    made->kind = (PyTypeObject *)Py_NewRef((PyObject *)by->kind);
    made->allocate = (allocfunc)PyType_GetSlot(made->kind, Py_tp_alloc);
    made->topic = Py_NewRef(by->topic);
    made->partition = (int32_t)by->partition;
    made->start = Py_NewRef(by->start);
    made->data = *data;
    keep_idle(made->kind);
    return made;
}

/* (kind, topic, partition, timestamp_type, position, next_offset,
 *  data, pos, count, base_offset, base_timestamp, last_delta, timestamp | None) -> RecordReader | None */
PyObject *
open_reader(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    int64_t timestamp_type, pos, count;
    walk on = {0};
    totals all = {0};
    source by;
    if (nargs != 13 || !is_int64(args[3], &timestamp_type) || !PyLong_CheckExact(args[5]) ||
        !PyObject_CheckBuffer(args[6]) || !is_int64(args[7], &pos) || !is_int64(args[8], &count) ||
        !is_int64(args[9], &on.from.base_offset) || !is_int64(args[10], &on.from.base_timestamp) ||
        !is_int64(args[11], &on.from.last_delta) || timestamp_type != (int32_t)timestamp_type) {
        Py_RETURN_NONE;
    }
    on.from.has_timestamp = args[12] != Py_None;
    if (on.from.has_timestamp && !is_int64(args[12], &on.from.timestamp)) {
        Py_RETURN_NONE;
    }
    int is_reader = get_source(module, args[0], args[1], args[2], args[4], &by);
    if (is_reader <= 0) {
        return is_reader < 0 ? NULL : Py_NewRef(Py_None);
    }
    Py_buffer data;
    int has_data = get_constant(args[6], &data);
    if (has_data <= 0) {
        return has_data < 0 ? NULL : Py_NewRef(Py_None);
    }
    int is_right = 0;
    if (pos >= 0 && pos <= data.len && data.len <= INT32_MAX && count >= 0 &&
        count <= (data.len - pos) / RECORD_BYTES_MIN) {
        bytes_t bytes = data.buf;
        on.at = bytes + pos;
        on.left = (Py_ssize_t)count;
        Py_BEGIN_ALLOW_THREADS
        is_right = look_through(&on, bytes + data.len, by.position, &all);
        Py_END_ALLOW_THREADS
    }
    if (!is_right) {
        PyBuffer_Release(&data);
        Py_RETURN_NONE;
    }
    reader *made = new_reader(module, &by, &data);
    if (made != NULL) {
        made->timestamp_type = (int32_t)timestamp_type;
        made->next_offset = Py_NewRef(args[5]);
        made->size = data.len;
        made->on = on;
        made->count = on.left;
        made->all = all;
    }
    return (PyObject *)made;
}

/* (kind, topic, partition, position, data, pos, check_crc, enough) -> (RecordReader, end) | None; see
 * `open_batches` in reader.py */
PyObject *
open_batches(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    int64_t pos, enough;
    source by;
    if (nargs != 8 || !PyObject_CheckBuffer(args[4]) || !is_int64(args[5], &pos) || !is_int64(args[7], &enough)) {
        Py_RETURN_NONE;
    }
    int is_reader = get_source(module, args[0], args[1], args[2], args[3], &by), check_crc = args[6] == Py_True;
    if (is_reader <= 0) {
        return is_reader < 0 ? NULL : Py_NewRef(Py_None);
    }
    Py_buffer data;
    int has_data = get_constant(args[4], &data);
    if (has_data <= 0) {
        return has_data < 0 ? NULL : Py_NewRef(Py_None);
    }
    stretch found = {0};
    bytes_t bytes = data.buf;
    if (pos >= 0 && pos < data.len && data.len <= INT32_MAX) {
        Py_BEGIN_ALLOW_THREADS
        found = look_through_batches(bytes + pos, bytes + data.len, by.position, check_crc, enough);
        Py_END_ALLOW_THREADS
    }
    if (found.end == NULL || found.end == bytes + pos) {
        PyBuffer_Release(&data);
        Py_RETURN_NONE;
    }
    reader *made = new_reader(module, &by, &data);
    if (made == NULL) {
        return NULL;
    }
    made->timestamp_type = found.is_append_time != 0;
    made->next_offset = PyLong_FromLongLong(found.next_offset < by.position ? by.position : found.next_offset);
    made->size = found.end - bytes - pos;
    made->on = found.on;
    made->count = found.count;
    made->all = found.all;
    PyObject *pair = made->next_offset == NULL ? NULL : Py_BuildValue("(On)", made, found.end - bytes);
    Py_DECREF((PyObject *)made);
    return pair;
}

static PyMethodDef slice_methods[] = {
    {"records", slice_records, METH_NOARGS, "records() -> list"},
    {"rows", slice_rows, METH_NOARGS, "rows() -> list of tuples"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef slice_attributes[] = {
    {"cursor", slice_reader, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slice_slots[] = {
    {Py_tp_methods, slice_methods},
    {Py_tp_getset, slice_attributes},
    {Py_sq_length, slice_length},
    {Py_tp_dealloc, free_piece},
    {Py_tp_doc, "Some records of a cursor, to be made when they are asked for."},
    {0, NULL},
};

PyType_Spec slice_spec = {
    "kwire.wire._speedups.RecordSlice",
    sizeof(slice),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    slice_slots,
};

/* ---- iteration --------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *reading; /* the reader, or NULL */
    int is_done;                     /* it needs no more memory for records */
} iterator;

static PyObject *
new_iterator(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords))
{
    PyObject *made = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL) {
        pool_add_user(POOL_OF_RECORDS);
    }
    return made;
}

static PyObject *
end_iterator(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    iterator *self = (iterator *)object;
    if (!self->is_done) {
        self->is_done = 1;
        pool_remove_user(POOL_OF_RECORDS);
    }
    Py_RETURN_NONE;
}

static PyObject *
iterator_next(PyObject *object)
{
    iterator *self = (iterator *)object;
    for (;;) {
        if (self->reading != NULL) {
            PyObject *from = Py_NewRef(self->reading); /* other code may replace it meanwhile */
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
iterator_reading(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *reading = ((iterator *)object)->reading;
    return Py_NewRef(reading == NULL ? Py_None : reading);
}

static int
iterator_read(PyObject *object, PyObject *reader_or_none, void *Py_UNUSED(closure))
{
    iterator *self = (iterator *)object;
    PyObject *old = self->reading;
    self->reading = reader_or_none == NULL || reader_or_none == Py_None ? NULL : Py_NewRef(reader_or_none);
    Py_XDECREF(old);
    return 0;
}

static void
free_iterator(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((iterator *)object)->reading);
    Py_DECREF(end_iterator(object, NULL));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef iterator_methods[] = {
    {"_end", end_iterator, METH_NOARGS, "_end(): nothing more will be read"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef iterator_attributes[] = {
    {"_reading", iterator_reading, iterator_read, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot iterator_slots[] = {
    {Py_tp_new, new_iterator},
    {Py_tp_methods, iterator_methods},
    {Py_tp_getset, iterator_attributes},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {Py_tp_dealloc, free_iterator},
    {Py_tp_doc, "Iterate over the records of the readers that `_next_cursor` returns."},
    {0, NULL},
};

static PyType_Spec iterator_spec = {
    "kwire.wire._speedups.RecordIterator",    sizeof(iterator), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, iterator_slots,
};

/* ---- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"open_reader", (PyCFunction)(void (*)(void))open_reader, METH_FASTCALL,
     "(kind, topic, partition, timestamp_type, position, next_offset, data, pos, count, base_offset, base_timestamp, "
     "last_delta, timestamp, /)"},
    {"open_batches", (PyCFunction)(void (*)(void))open_batches, METH_FASTCALL,
     "(kind, topic, partition, position, data, pos, check_crc, enough, /)"},
    {"record_class", record_class, METH_O, "record_class(full_name, /) -> type"},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, "(pieces, has_headers, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_reader(PyObject *module)
{
    static const struct {
        const char *name;
        PyType_Spec *spec;
    } TYPES[] = {{"RecordFields", &record_spec},
                 {"RecordReader", &reader_spec},
                 {"RecordSlice", &slice_spec},
                 {"RecordIterator", &iterator_spec}};
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
