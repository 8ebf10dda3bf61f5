/* BatchBuilder: see kwire/producer/batch_builder.py.
 *
 * A builder holds encoded records, so that a batch needs only a header. No Python code runs between reading a builder
 * and changing it, so the GIL is the only lock: `resolve` stores the result and takes the waiters in one step;
 * `add_waiter` checks for a result and adds the waiter in one step.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "buffers.h"
#include <structmember.h>

#define FIRST_CAPACITY 512

/* ---- filling ----------------------------------------------------------------------------------------------------- */

int
grow(void **array, uint32_t used, uint32_t *capacity, size_t size)
{
    if (used < *capacity) {
        return 0;
    }
    uint32_t wanted = *capacity ? *capacity * 2 : 4;
    if (wanted < *capacity) {
        PyErr_NoMemory();
        return -1;
    }
    void *grown = PyMem_Realloc(*array, wanted * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = grown;
    *capacity = wanted;
    return 0;
}

static int
reserve(builder_t *builder, size_t size, size_t hint)
{
    size_t needed = BATCH_OVERHEAD + builder->used + size;
    if (needed <= builder->capacity) {
        return 0;
    }
    size_t capacity = builder->capacity ? builder->capacity * 2 : (hint > FIRST_CAPACITY ? hint : FIRST_CAPACITY);
    size_t full = (size_t)builder->bytes_max;
    if (capacity > full && full >= needed) {
        capacity = full; /* it closes before it needs more memory */
    }
    if (capacity < needed) {
        capacity = needed;
    }
    unsigned char *data = pool_grow(builder->data, builder->capacity,
                                      builder->data == NULL ? 0 : BATCH_OVERHEAD + builder->used, &capacity);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    builder->data = data;
    builder->capacity = capacity;
    return 0;
}

/* Return the bytes of a name that `is_text` does not take: of a str's subclass, or with surrogates. */
static PyObject *
name_bytes(PyObject *header)
{
    span text;
    PyObject *name = PyTuple_CheckExact(header) && PyTuple_Size(header) == 2 ? PyTuple_GetItem(header, 0) : NULL;
    if (name == NULL || !PyUnicode_Check(name) || is_text(name, &text)) {
        return NULL;
    }
    return PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape");
}

PyObject *
sendable_headers(PyObject *headers)
{
    PyObject *changed = NULL; /* a list, if a name is */
    for (Py_ssize_t index = 0; index < PyTuple_Size(headers); index++) {
        PyObject *given = PyTuple_GetItem(headers, index), *name = name_bytes(given);
        if (name == NULL && !PyErr_Occurred()) {
            continue;
        }
        PyObject *header = name == NULL ? NULL : PyTuple_Pack(2, name, PyTuple_GetItem(given, 1));
        Py_XDECREF(name);
        if (header != NULL && changed == NULL) {
            changed = PySequence_List(headers);
        }
        if (header == NULL || changed == NULL) {
            Py_XDECREF(header);
            Py_XDECREF(changed);
            return NULL;
        }
        PyList_SetItem(changed, index, header);
    }
    if (changed == NULL) {
        Py_INCREF(headers);
        return headers;
    }
    PyObject *sendable = PyList_AsTuple(changed);
    Py_DECREF(changed);
    return sendable;
}

int
is_sendable(PyObject *headers, Py_ssize_t index, span *name, span *value)
{
    PyObject *header = PyTuple_GetItem(headers, index);
    if (!PyTuple_CheckExact(header) || PyTuple_Size(header) != 2 || !PyBytes_CheckExact(PyTuple_GetItem(header, 0))) {
        return is_header(headers, index, name, value);
    }
    return is_nullable_bytes(PyTuple_GetItem(header, 0), name) && is_nullable_bytes(PyTuple_GetItem(header, 1), value);
}

static int
headers_size(PyObject *headers, size_t *total)
{
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_Size(headers);
    *total += varint_size(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        if (!is_sendable(headers, index, &name, &value)) {
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
        is_sendable(headers, index, &name, &value);
        at = put_span(put_span(at, name), value);
    }
    return at;
}

int
builder_put(builder_t *builder, const entry_t *entry, Py_ssize_t counted, size_t capacity_hint)
{
    int64_t after = 0;
    int is_marked = builder->count == 0 || entry->timestamp != builder->last_timestamp;
    if (builder->count && __builtin_sub_overflow(entry->timestamp, builder->base_timestamp, &after)) {
        PyErr_SetString(PyExc_ValueError, "timestamps of a batch are too far apart");
        return -1;
    }
    size_t size = 1 + varint_size(after) + varint_size(builder->count);
    if (entry->tail.at != NULL) {
        size += (size_t)entry->tail.size;
    }
    else {
        size += span_size(entry->key) + span_size(entry->value);
        if (headers_size(entry->headers, &size) < 0) {
            return -1;
        }
    }
    if (size > INT32_MAX - BATCH_OVERHEAD - builder->used || builder->count == INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a batch holds less than 2 GiB");
        return -1;
    }
    if (reserve(builder, size + varint_size((int64_t)size), capacity_hint) < 0 ||
        (is_marked &&
         grow((void **)&builder->marks, builder->marks_used, &builder->marks_capacity, sizeof(mark_t)) < 0)) {
        return -1;
    }
    builder->is_closed |= builder_size(builder) + counted >= builder->bytes_max;
    unsigned char *start = builder->data + BATCH_OVERHEAD + builder->used;
    unsigned char *at = put_varint(start, (int64_t)size);
    *at++ = 0; /* attributes */
    at = put_varint(put_varint(at, after), builder->count);
    if (entry->tail.at != NULL) {
        memcpy(at, entry->tail.at, (size_t)entry->tail.size);
        at += entry->tail.size;
        builder->has_headers |= entry->has_headers;
    }
    else {
        at = put_headers(put_span(put_span(at, entry->key), entry->value), entry->headers);
        builder->has_headers |= entry->headers != NULL && PyTuple_Size(entry->headers) > 0;
    }
    builder->used += (size_t)(at - start);
    if (is_marked) {
        builder->marks[builder->marks_used++] = (mark_t){builder->count, entry->timestamp};
        builder->last_timestamp = entry->timestamp;
        if (builder->count == 0) {
            builder->base_timestamp = builder->max_timestamp = entry->timestamp;
        }
        else if (entry->timestamp > builder->max_timestamp) {
            builder->max_timestamp = entry->timestamp;
        }
    }
    builder->count++;
    builder->buffered_bytes += counted;
    return 0;
}

/* ---- creation and deallocation ----------------------------------------------------------------------------------- */

PyObject *
builder_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms,
            PyObject *dispatch, PyTypeObject *future_type)
{
    builder_t *builder = (builder_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all else is 0 */
    if (builder == NULL) {
        return NULL;
    }
    builder->topic = topic;
    builder->terms = terms;
    builder->dispatch = dispatch;
    builder->since = Py_None;
    Py_INCREF(topic);
    Py_INCREF(terms);
    Py_INCREF(dispatch);
    Py_INCREF(Py_None);
    builder->future_type = future_type;
    Py_XINCREF(OBJECT(future_type));
    builder->partition = partition;
    builder->bytes_max = bytes_max;
    builder->base_timestamp = builder->max_timestamp = -1;
    return (PyObject *)builder;
}

static PyObject *
builder_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", "bytes_max", "terms", "dispatch", NULL};
    PyObject *topic, *terms = Py_None, *dispatch = Py_None;
    int partition;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Uin|OO", names, &topic, &partition, &bytes_max, &terms,
                                     &dispatch)) {
        return NULL;
    }
    return builder_new(type, topic, partition, bytes_max < 1 ? 1 : bytes_max, terms, dispatch, NULL);
}

static void
free_data(builder_t *builder)
{
    builder->is_freed = 1;
    if (builder->exports == 0 && builder->data != NULL) {
        pool_give_back(builder->data, builder->capacity);
        builder->data = NULL;
        builder->capacity = 0;
    }
}

void
builder_forget(builder_t *builder)
{
    PyObject *waiters = builder->waiters;
    builder->waiters = NULL;
    free_data(builder);
    callbacks_clear(&builder->callbacks);
    Py_XDECREF(waiters);
}

static void
builder_dealloc(builder_t *builder)
{
    PyTypeObject *type = Py_TYPE(OBJECT(builder));
    for (uint32_t index = 0; index < builder->parts_used; index++) {
        Py_XDECREF(builder->parts[index].error);
    }
    for (uint32_t index = 0; builder->children != NULL && index < builder->count; index++) {
        Py_XDECREF(OBJECT(builder->children[index].builder));
    }
    callbacks_clear(&builder->callbacks);
    Py_XDECREF(OBJECT(builder->future_type));
    Py_XDECREF(builder->topic);
    Py_XDECREF(builder->terms);
    Py_XDECREF(builder->dispatch);
    Py_XDECREF(builder->since);
    Py_XDECREF(builder->waiters);
    if (builder->data != NULL) {
        pool_give_back(builder->data, builder->capacity);
    }
    PyMem_Free(builder->marks);
    PyMem_Free(builder->parts);
    PyMem_Free(builder->children);
    PyMem_Free(builder->chosen);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(builder);
    Py_DECREF(type);
}

/* ---- the bytes of a closed builder ------------------------------------------------------------------------------- */

static int
builder_getbuffer(builder_t *builder, Py_buffer *view, int flags)
{
    if (!builder->is_closed || builder->data == NULL || builder->is_freed) {
        PyErr_SetString(PyExc_BufferError, "a builder has bytes when it is closed and not dropped");
        return -1;
    }
    if (PyBuffer_FillInfo(view, (PyObject *)builder, builder->data, (Py_ssize_t)(BATCH_OVERHEAD + builder->used), 1,
                          flags) < 0) {
        return -1;
    }
    builder->exports++;
    return 0;
}

static void
builder_releasebuffer(builder_t *builder, Py_buffer *Py_UNUSED(view))
{
    builder->exports--;
    if (builder->is_freed) {
        free_data(builder);
    }
}

static PyObject *
builder_body(builder_t *builder, PyObject *Py_UNUSED(none))
{
    PyObject *whole = PyMemoryView_FromObject((PyObject *)builder);
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
builder_timestamp(const builder_t *builder, uint32_t number)
{
    uint32_t low = 0, high = builder->marks_used;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (builder->marks[middle].from <= number) {
            low = middle;
        }
        else {
            high = middle;
        }
    }
    return builder->marks[low].timestamp;
}

/* Return (timestamp, key, value, headers) of the record at `*at`, which this file wrote. */
static PyObject *
row_at(const builder_t *builder, bytes_t *at, uint32_t number)
{
    bytes_t end = builder->data + BATCH_OVERHEAD + builder->used;
    int64_t ignored;
    bytes_t pos = get_varint(*at, end, &ignored) + 1;
    pos = get_varint(get_varint(pos, end, &ignored), end, &ignored);
    PyObject *key = NULL, *value = NULL, *headers = NULL, *row = NULL;
    if (get_nullable_bytes(&pos, end, &key) == 1 && get_nullable_bytes(&pos, end, &value) == 1 &&
        get_headers(&pos, end, &headers) == 1) {
        row = Py_BuildValue("(LOOO)", (long long)builder_timestamp(builder, number), key, value, headers);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    *at = pos;
    return row;
}

static PyObject *
builder_rows(builder_t *builder, PyObject *args)
{
    Py_ssize_t start = 0;
    PyObject *end_or_none = Py_None;
    if (!PyArg_ParseTuple(args, "|nO", &start, &end_or_none)) {
        return NULL;
    }
    if (!builder->is_closed) {
        PyErr_SetString(PyExc_AssertionError, "a builder has rows when it is closed");
        return NULL;
    }
    Py_ssize_t end = end_or_none == Py_None ? (Py_ssize_t)builder->count : PyNumber_AsSsize_t(end_or_none, NULL);
    if (end == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    if (rows == NULL || builder->data == NULL || builder->is_freed) {
        return rows;
    }
    /* Creating objects may start a garbage collection, which may run code that drops the builder: hold it and check
     * it again. */
    size_t future = 0;
    for (uint32_t number = 0; number < builder->count && number < end; number++) {
        bytes_t at = builder->data + BATCH_OVERHEAD + future, limit = builder->data + BATCH_OVERHEAD + builder->used;
        int64_t size = 0;
        bytes_t body = get_varint(at, limit, &size);
        future = (size_t)(body - builder->data) - BATCH_OVERHEAD + (size_t)size;
        if (number < start) {
            continue;
        }
        builder->exports++;
        PyObject *row = row_at(builder, &at, number);
        builder_releasebuffer(builder, NULL);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            Py_DECREF(rows);
            return NULL;
        }
        Py_DECREF(row);
        if (builder->data == NULL) {
            break;
        }
    }
    return rows;
}

/* ---- the rest of BatchBuilder ------------------------------------------------------------------------------------ */

static PyObject *
builder_append(builder_t *builder, PyObject *args)
{
    entry_t entry = {0};
    long long timestamp;
    PyObject *key, *value, *headers;
    Py_ssize_t counted;
    if (!PyArg_ParseTuple(args, "LOOO!n", &timestamp, &key, &value, &PyTuple_Type, &headers, &counted) ||
        (headers = sendable_headers(headers)) == NULL) {
        return NULL;
    }
    entry.headers = headers;
    entry.timestamp = timestamp;
    if (builder->is_closed || !is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value)) {
        PyErr_SetString(PyExc_AssertionError, "an open builder takes bytes or None");
        Py_DECREF(headers);
        return NULL;
    }
    int failed = builder_put(builder, &entry, counted, 0) < 0;
    Py_DECREF(headers);
    return failed ? NULL : PyLong_FromUnsignedLong(builder->count - 1);
}

static PyObject *
builder_close(builder_t *builder, PyObject *Py_UNUSED(none))
{
    builder->is_closed = 1;
    Py_RETURN_NONE;
}

static PyObject *
builder_drop(builder_t *builder, PyObject *count)
{
    unsigned long n = PyLong_AsUnsignedLong(count);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    builder->dropped += (uint32_t)n;
    if (builder->dropped >= builder->count) {
        free_data(builder);
    }
    Py_RETURN_NONE;
}

static PyObject *
builder_size_bytes(builder_t *builder, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(builder_size(builder));
}

static Py_ssize_t
builder_length(builder_t *builder)
{
    return (Py_ssize_t)builder->count;
}

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))builder_append, METH_VARARGS, "(timestamp, key, value, headers, counted)"},
    {"close", (PyCFunction)(void (*)(void))builder_close, METH_NOARGS, "No record joins it from now on."},
    {"rows", (PyCFunction)(void (*)(void))builder_rows, METH_VARARGS, "(start=0, end=None)"},
    {"body", (PyCFunction)(void (*)(void))builder_body, METH_NOARGS, "Its records as in an uncompressed v2 batch."},
    {"batch", (PyCFunction)(void (*)(void))builder_batch, METH_VARARGS, "(attributes, producer_id, epoch, sequence)"},
    {"drop", (PyCFunction)(void (*)(void))builder_drop, METH_O, "So many more will not be asked for again."},
    {"resolve", (PyCFunction)(void (*)(void))builder_resolve, METH_VARARGS, "(start, end, base, append_time, error)"},
    {"done", (PyCFunction)(void (*)(void))builder_done, METH_O, "Whether a record's outcome is known."},
    {"outcome", (PyCFunction)(void (*)(void))builder_outcome, METH_O, "(partition, offset, timestamp, error) | None"},
    {"outcomes", (PyCFunction)(void (*)(void))builder_outcomes, METH_VARARGS, "(start, end) -> what is known of those"},
    {"report", (PyCFunction)(void (*)(void))builder_report, METH_VARARGS, "(number, future, callback) -> bool"},
    {"add_waiter", (PyCFunction)(void (*)(void))builder_add_waiter, METH_VARARGS, "(number, future, call, dispatch)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef builder_members[] = {
    {"topic", T_OBJECT_EX, offsetof(builder_t, topic), READONLY, NULL},
    {"terms", T_OBJECT_EX, offsetof(builder_t, terms), READONLY, NULL},
    {"dispatch", T_OBJECT_EX, offsetof(builder_t, dispatch), READONLY, NULL},
    {"since", T_OBJECT_EX, offsetof(builder_t, since), 0, NULL},
    {"partition", T_INT, offsetof(builder_t, partition), 0, NULL},
    {"is_closed", T_BOOL, offsetof(builder_t, is_closed), READONLY, NULL},
    {"has_headers", T_BOOL, offsetof(builder_t, has_headers), READONLY, NULL},
    {"buffered_bytes", T_PYSSIZET, offsetof(builder_t, buffered_bytes), READONLY, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(builder_t, bytes_max), READONLY, NULL},
    {"base_timestamp", T_LONGLONG, offsetof(builder_t, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(builder_t, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef builder_properties[] = {
    {"size_bytes", (getter)builder_size_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_new, builder_make},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_members, builder_members},
    {Py_tp_getset, builder_properties},
    {Py_sq_length, builder_length},
    {Py_bf_getbuffer, builder_getbuffer},
    {Py_bf_releasebuffer, builder_releasebuffer},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    "kwire.wire._speedups.BatchBuilder",           sizeof(builder_t), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, builder_slots,
};

int
add_builders(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&builder_spec);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "BatchBuilder", type) < 0 || add_delivery(module) < 0 ||
                 add_futures(module, (PyTypeObject *)type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}

#define LENGTH_COVERS_FROM 12
#define CRC_AT 17
#define CHECKED_AT 21
#define MAGIC 2

/* Fewer bytes wait for the next time. */
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
builder_sum(builder_t *builder)
{
    if (builder->data != NULL && builder->used - builder->summed >= SUMMED_MIN) {
        builder->sum = crc32c_state(builder->sum, builder->data + BATCH_OVERHEAD + builder->summed,
                                    builder->used - builder->summed);
        builder->summed = builder->used;
    }
}

/* The builder must be closed. */
static void
sum_rest(builder_t *builder)
{
    bytes_t at = builder->data + BATCH_OVERHEAD + builder->summed;
    const size_t size = builder->used - builder->summed;
    uint32_t state = builder->sum;
    if (size < CRC_WITHOUT_LOCK_MIN) {
        state = crc32c_state(state, at, size);
    }
    else {
        builder->exports++; /* keeps the memory meanwhile */
        Py_BEGIN_ALLOW_THREADS
        state = crc32c_state(state, at, size);
        Py_END_ALLOW_THREADS
        builder->exports--;
    }
    builder->sum = state;
    builder->summed = builder->used;
}

/* Write the header, except the CRC. */
static void
put_header(unsigned char *at, const builder_t *builder, int attributes, int64_t producer_id, int producer_epoch,
           int base_sequence)
{
    at = put_number(at, 0, 8); /* base offset */
    at = put_number(at, (int64_t)(BATCH_OVERHEAD - LENGTH_COVERS_FROM + builder->used), 4);
    at = put_number(at, -1, 4); /* leader epoch */
    at = put_number(at, MAGIC, 1);
    at = put_number(at, 0, CHECKED_AT - CRC_AT);
    at = put_number(at, attributes, 2);
    at = put_number(at, (int64_t)builder->count - 1, 4);
    at = put_number(at, builder->base_timestamp, 8);
    at = put_number(at, builder->max_timestamp, 8);
    at = put_number(at, producer_id, 8);
    at = put_number(at, producer_epoch, 2);
    at = put_number(at, base_sequence, 4);
    put_number(at, builder->count, 4);
}

/* Return the memory for the batch: the builder's own, or a new `*copy` if its memory is exported. NULL with an
 * exception. */
static unsigned char *
memory_of(builder_t *builder, PyObject **copy)
{
    if (builder->exports == 0) {
        return builder->data;
    }
    *copy = PyBytes_FromStringAndSize((const char *)builder->data, (Py_ssize_t)(BATCH_OVERHEAD + builder->used));
    return *copy == NULL ? NULL : (unsigned char *)PyBytes_AsString(*copy);
}

/* (attributes, producer_id, producer_epoch, base_sequence) -> bytes-like */
PyObject *
builder_batch(builder_t *builder, PyObject *args)
{
    short attributes, producer_epoch;
    int base_sequence;
    long long producer_id;
    if (!PyArg_ParseTuple(args, "hLhi", &attributes, &producer_id, &producer_epoch, &base_sequence)) {
        return NULL;
    }
    if (!builder->is_closed || builder->data == NULL || builder->is_freed) {
        PyErr_SetString(PyExc_AssertionError, "a builder is a batch when it is closed and not dropped");
        return NULL;
    }
    PyObject *copy = NULL;
    unsigned char *data = memory_of(builder, &copy);
    if (data == NULL) {
        return NULL;
    }
    put_header(data, builder, attributes, producer_id, producer_epoch, base_sequence);
    sum_rest(builder);
    uint32_t state = crc32c_state(~(uint32_t)0, data + CHECKED_AT, BATCH_OVERHEAD - CHECKED_AT);
    put_number(data + CRC_AT, ~(crc32c_zeros(state, builder->used) ^ builder->sum), CHECKED_AT - CRC_AT);
    return copy == NULL ? PyMemoryView_FromObject(OBJECT(builder)) : copy;
}

const part_t *
builder_part(const builder_t *builder, uint32_t number)
{
    for (uint32_t index = 0; index < builder->parts_used; index++) {
        if (builder->parts[index].start <= number && number < builder->parts[index].end) {
            return &builder->parts[index];
        }
    }
    return NULL;
}

static int
is_done(builder_t *builder, uint32_t number)
{
    const builder_t *there = followed(builder, &number);
    return builder_part(there, number) != NULL;
}

PyObject *
builder_done(builder_t *builder, PyObject *number)
{
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(n < builder->count && is_done(builder, (uint32_t)n));
}

PyObject *
builder_outcome(builder_t *self, PyObject *number_object)
{
    unsigned long n = PyLong_AsUnsignedLong(number_object);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    uint32_t number = (uint32_t)n;
    const builder_t *builder = followed(self, &number);
    const part_t *part = n < self->count ? builder_part(builder, number) : NULL;
    if (part == NULL) {
        Py_RETURN_NONE;
    }
    int64_t offset = part->base_offset < 0 ? -1 : part->base_offset + number - part->start;
    int64_t timestamp = part->append_time < 0 ? builder_timestamp(builder, number) : part->append_time;
    PyObject *error = part->error == NULL ? Py_None : part->error;
    return Py_BuildValue("(iLLO)", builder->partition, (long long)offset, (long long)timestamp, error);
}

/* Move the waiters of start .. end - 1 from `late` to `taken`; None if there are none. */
static PyObject *
take_waiters(PyObject *waiters, PyObject *taken, PyObject *left, uint32_t start, uint32_t end)
{
    for (Py_ssize_t index = 0; index < PyList_Size(waiters); index++) {
        PyObject *one = PyList_GetItem(waiters, index);
        unsigned long number = PyLong_AsUnsignedLong(PyTuple_GetItem(one, 0));
        if (PyList_Append(start <= number && number < end ? taken : left, one) < 0) {
            return NULL;
        }
    }
    return PyList_Size(taken) ? taken : Py_None;
}

PyObject *
builder_resolve(builder_t *builder, PyObject *args)
{
    unsigned int start, end;
    long long base_offset, append_time;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "IILLO", &start, &end, &base_offset, &append_time, &error)) {
        return NULL;
    }
    /* Create all objects first: that may run other code. */
    PyObject *taken = PyList_New(0), *left = PyList_New(0), *result = NULL;
    delivery_t *delivery = builder->callbacks.used ? delivery_new(builder) : NULL;
    part_t *parts = PyMem_Realloc(builder->parts, (builder->parts_used + 1) * sizeof(part_t));
    builder->parts = parts == NULL ? builder->parts : parts;
    if (taken == NULL || left == NULL || parts == NULL || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        goto done;
    }
    for (uint32_t index = 0; index < builder->parts_used; index++) {
        if (start < parts[index].end && parts[index].start < end) {
            PyErr_SetString(PyExc_AssertionError, "a record resolves exactly once");
            goto done;
        }
    }
    if (!builder->is_closed || end > builder->count) {
        PyErr_SetString(PyExc_AssertionError, "a builder resolves when it is closed");
        goto done;
    }
    PyObject *waiters = Py_None;
    if ((delivery != NULL && delivery_reserve(delivery, start, end) < 0) ||
        (builder->waiters != NULL && (waiters = take_waiters(builder->waiters, taken, left, start, end)) == NULL)) {
        goto done;
    }
    parts[builder->parts_used++] = (part_t){start, end, base_offset, append_time, error == Py_None ? NULL : error};
    if (error != Py_None) {
        Py_INCREF(error);
    }
    builder->resolved += end > start ? end - start : 0;
    PyObject *before = builder->waiters;
    builder->waiters = NULL;
    if (PyList_Size(left)) {
        builder->waiters = left;
        Py_INCREF(left);
    }
    int has_callbacks = delivery != NULL && delivery_take(delivery, start, end);
    result = PyTuple_Pack(2, has_callbacks ? OBJECT(delivery) : Py_None, waiters);
    Py_XDECREF(before);
done:
    Py_XDECREF(OBJECT(delivery));
    Py_XDECREF(taken);
    Py_XDECREF(left);
    return result;
}

PyObject *
builder_add_waiter(builder_t *self, PyObject *args)
{
    unsigned int number;
    PyObject *future, *call, *dispatch;
    if (!PyArg_ParseTuple(args, "IOOO", &number, &future, &call, &dispatch)) {
        return NULL;
    }
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return NULL;
    }
    PyObject *item = NULL;
    builder_t *builder;
    for (;;) { /* creating the item may run code that moves the record to another builder */
        uint32_t there = number;
        builder = (builder_t *)followed(self, &there);
        if (item != NULL && PyLong_AsUnsignedLong(PyTuple_GetItem(item, 0)) == there) {
            break;
        }
        Py_XDECREF(item);
        item = Py_BuildValue("(IOOO)", there, future, call, dispatch);
        if (item == NULL) {
            Py_DECREF(fresh);
            return NULL;
        }
    }
    int is_added = !is_done(self, number), failed = 0;
    if (is_added) {
        if (builder->waiters == NULL) {
            builder->waiters = fresh;
            Py_INCREF(fresh);
        }
        failed = PyList_Append(builder->waiters, item) < 0;
    }
    Py_DECREF(item);
    Py_DECREF(fresh);
    return failed ? NULL : PyBool_FromLong(is_added);
}
