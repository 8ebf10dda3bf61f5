/* BatchBuilder in C, as it is filled, sent and dropped: see `_run.py`, its specification, for what it is.
 *
 * Records stand in a run in their final form, so that a batch needs no more than a header. No Python code runs between
 * looking at a run and changing it, so the interpreter's lock is all the lock there is.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include "_memory.h"

#include <structmember.h>

#define FIRST_ROOM 512

/* ---- filling ---------------------------------------------------------------------------------------------------- */

int
grow(void **array, uint32_t used, uint32_t *room, size_t size)
{
    if (used < *room) {
        return 0;
    }
    uint32_t wanted = *room ? *room * 2 : 4;
    if (wanted < *room) {
        PyErr_NoMemory();
        return -1;
    }
    void *grown = PyMem_Realloc(*array, wanted * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = grown;
    *room = wanted;
    return 0;
}

static int
make_room(run_t *run, size_t size, size_t hint)
{
    size_t needed = BATCH_OVERHEAD + run->used + size;
    if (needed <= run->room) {
        return 0;
    }
    size_t room = run->room ? run->room * 2 : (hint > FIRST_ROOM ? hint : FIRST_ROOM);
    size_t full = (size_t)run->bytes_max;
    if (room > full && full >= needed) {
        room = full; /* it closes before it needs more */
    }
    if (room < needed) {
        room = needed;
    }
    unsigned char *data = memory_grow(run->data, run->room, run->data == NULL ? 0 : BATCH_OVERHEAD + run->used, &room);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    run->data = data;
    run->room = room;
    return 0;
}

static int
headers_size(PyObject *headers, size_t *total)
{
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_Size(headers);
    *total += varint_size(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        if (!is_header(headers, index, &name, &value)) {
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
        is_header(headers, index, &name, &value);
        at = put_span(put_span(at, name), value);
    }
    return at;
}

int
run_put(run_t *run, const entry_t *entry, Py_ssize_t counted, size_t room_hint)
{
    int64_t after = 0;
    int is_marked = run->count == 0 || entry->timestamp != run->last_timestamp;
    if (run->count && __builtin_sub_overflow(entry->timestamp, run->base_timestamp, &after)) {
        PyErr_SetString(PyExc_ValueError, "timestamps of a run are too far apart");
        return -1;
    }
    size_t size = 1 + varint_size(after) + varint_size(run->count);
    if (entry->tail.at != NULL) {
        size += (size_t)entry->tail.size;
    }
    else {
        size += span_size(entry->key) + span_size(entry->value);
        if (headers_size(entry->headers, &size) < 0) {
            return -1;
        }
    }
    if (size > INT32_MAX - BATCH_OVERHEAD - run->used || run->count == INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a run holds less than 2 GiB");
        return -1;
    }
    if (make_room(run, size + varint_size((int64_t)size), room_hint) < 0 ||
        (is_marked && grow((void **)&run->marks, run->marks_used, &run->marks_room, sizeof(mark_t)) < 0)) {
        return -1;
    }
    run->is_closed |= run_size(run) + counted >= run->bytes_max;
    unsigned char *start = run->data + BATCH_OVERHEAD + run->used;
    unsigned char *at = put_varint(start, (int64_t)size);
    *at++ = 0; /* attributes */
    at = put_varint(put_varint(at, after), run->count);
    if (entry->tail.at != NULL) {
        memcpy(at, entry->tail.at, (size_t)entry->tail.size);
        at += entry->tail.size;
        run->has_headers |= entry->has_headers;
    }
    else {
        at = put_headers(put_span(put_span(at, entry->key), entry->value), entry->headers);
        run->has_headers |= entry->headers != NULL && PyTuple_Size(entry->headers) > 0;
    }
    run->used += (size_t)(at - start);
    if (is_marked) {
        run->marks[run->marks_used++] = (mark_t){run->count, entry->timestamp};
        run->last_timestamp = entry->timestamp;
        if (run->count == 0) {
            run->base_timestamp = run->max_timestamp = entry->timestamp;
        }
        else if (entry->timestamp > run->max_timestamp) {
            run->max_timestamp = entry->timestamp;
        }
    }
    run->count++;
    run->buffered_bytes += counted;
    return 0;
}

/* ---- making and ending ------------------------------------------------------------------------------------------ */

PyObject *
run_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms, PyObject *dispatch,
        PyTypeObject *place_type)
{
    run_t *run = (run_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all else is 0 */
    if (run == NULL) {
        return NULL;
    }
    run->topic = topic;
    run->terms = terms;
    run->dispatch = dispatch;
    run->since = Py_None;
    Py_INCREF(topic);
    Py_INCREF(terms);
    Py_INCREF(dispatch);
    Py_INCREF(Py_None);
    run->place_type = place_type;
    Py_XINCREF(OBJECT(place_type));
    run->partition = partition;
    run->bytes_max = bytes_max;
    run->base_timestamp = run->max_timestamp = -1;
    return (PyObject *)run;
}

static PyObject *
run_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"topic", "partition", "bytes_max", "terms", "dispatch", NULL};
    PyObject *topic, *terms = Py_None, *dispatch = Py_None;
    int partition;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Uin|OO", names, &topic, &partition, &bytes_max, &terms, &dispatch)) {
        return NULL;
    }
    return run_new(type, topic, partition, bytes_max < 1 ? 1 : bytes_max, terms, dispatch, NULL);
}

static void
free_data(run_t *run)
{
    run->is_freed = 1;
    if (run->exports == 0 && run->data != NULL) {
        memory_give(run->data, run->room);
        run->data = NULL;
        run->room = 0;
    }
}

void
run_forget(run_t *run)
{
    PyObject *late = run->late;
    run->late = NULL;
    free_data(run);
    callbacks_clear(&run->callbacks);
    Py_XDECREF(late);
}

static void
run_dealloc(run_t *run)
{
    PyTypeObject *type = Py_TYPE(OBJECT(run));
    for (uint32_t index = 0; index < run->parts_used; index++) {
        Py_XDECREF(run->parts[index].error);
    }
    for (uint32_t index = 0; run->children != NULL && index < run->count; index++) {
        Py_XDECREF(OBJECT(run->children[index].run));
    }
    callbacks_clear(&run->callbacks);
    Py_XDECREF(OBJECT(run->place_type));
    Py_XDECREF(run->topic);
    Py_XDECREF(run->terms);
    Py_XDECREF(run->dispatch);
    Py_XDECREF(run->since);
    Py_XDECREF(run->late);
    if (run->data != NULL) {
        memory_give(run->data, run->room);
    }
    PyMem_Free(run->marks);
    PyMem_Free(run->parts);
    PyMem_Free(run->children);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(run);
    Py_DECREF(type);
}

/* ---- the bytes of a closed run ------------------------------------------------------------------------------------ */

static int
run_getbuffer(run_t *run, Py_buffer *view, int flags)
{
    if (!run->is_closed || run->data == NULL || run->is_freed) {
        PyErr_SetString(PyExc_BufferError, "a run has bytes when it is closed and not dropped");
        return -1;
    }
    if (PyBuffer_FillInfo(view, (PyObject *)run, run->data, (Py_ssize_t)(BATCH_OVERHEAD + run->used), 1, flags) < 0) {
        return -1;
    }
    run->exports++;
    return 0;
}

static void
run_releasebuffer(run_t *run, Py_buffer *Py_UNUSED(view))
{
    run->exports--;
    if (run->is_freed) {
        free_data(run);
    }
}

static PyObject *
run_body(run_t *run, PyObject *Py_UNUSED(none))
{
    PyObject *whole = PyMemoryView_FromObject((PyObject *)run);
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
run_timestamp(const run_t *run, uint32_t number)
{
    uint32_t low = 0, high = run->marks_used;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (run->marks[middle].from <= number) {
            low = middle;
        }
        else {
            high = middle;
        }
    }
    return run->marks[low].timestamp;
}

/* (timestamp, key, value, headers) of the record at `*at`, which this file wrote. */
static PyObject *
row_at(const run_t *run, bytes_t *at, uint32_t number)
{
    bytes_t end = run->data + BATCH_OVERHEAD + run->used;
    int64_t ignored;
    bytes_t pos = get_varint(*at, end, &ignored) + 1;
    pos = get_varint(get_varint(pos, end, &ignored), end, &ignored);
    PyObject *key = NULL, *value = NULL, *headers = NULL, *row = NULL;
    if (get_nullable_bytes(&pos, end, &key) == 1 && get_nullable_bytes(&pos, end, &value) == 1 &&
        get_headers(&pos, end, &headers) == 1) {
        row = Py_BuildValue("(LOOO)", (long long)run_timestamp(run, number), key, value, headers);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    *at = pos;
    return row;
}

static PyObject *
run_rows(run_t *run, PyObject *args)
{
    Py_ssize_t start = 0;
    PyObject *end_or_none = Py_None;
    if (!PyArg_ParseTuple(args, "|nO", &start, &end_or_none)) {
        return NULL;
    }
    if (!run->is_closed) {
        PyErr_SetString(PyExc_AssertionError, "a run has rows when it is closed");
        return NULL;
    }
    Py_ssize_t end = end_or_none == Py_None ? (Py_ssize_t)run->count : PyNumber_AsSsize_t(end_or_none, NULL);
    if (end == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    if (rows == NULL || run->data == NULL || run->is_freed) {
        return rows;
    }
    /* Making objects may collect garbage, and that run code that drops the run: so it is held, and looked at again. */
    size_t place = 0;
    for (uint32_t number = 0; number < run->count && number < end; number++) {
        bytes_t at = run->data + BATCH_OVERHEAD + place, limit = run->data + BATCH_OVERHEAD + run->used;
        int64_t size = 0;
        bytes_t body = get_varint(at, limit, &size);
        place = (size_t)(body - run->data) - BATCH_OVERHEAD + (size_t)size;
        if (number < start) {
            continue;
        }
        run->exports++;
        PyObject *row = row_at(run, &at, number);
        run_releasebuffer(run, NULL);
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            Py_DECREF(rows);
            return NULL;
        }
        Py_DECREF(row);
        if (run->data == NULL) {
            break;
        }
    }
    return rows;
}

/* ---- the rest of BatchBuilder --------------------------------------------------------------------------------------------- */

static PyObject *
run_append(run_t *run, PyObject *args)
{
    entry_t entry = {0};
    long long timestamp;
    PyObject *key, *value;
    Py_ssize_t counted;
    if (!PyArg_ParseTuple(args, "LOOO!n", &timestamp, &key, &value, &PyTuple_Type, &entry.headers, &counted)) {
        return NULL;
    }
    entry.timestamp = timestamp;
    if (run->is_closed || !is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value)) {
        PyErr_SetString(PyExc_AssertionError, "an open run takes bytes or None");
        return NULL;
    }
    return run_put(run, &entry, counted, 0) < 0 ? NULL : PyLong_FromUnsignedLong(run->count - 1);
}

static PyObject *
run_close(run_t *run, PyObject *Py_UNUSED(none))
{
    run->is_closed = 1;
    Py_RETURN_NONE;
}

static PyObject *
run_drop(run_t *run, PyObject *count)
{
    unsigned long n = PyLong_AsUnsignedLong(count);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    run->dropped += (uint32_t)n;
    if (run->dropped >= run->count) {
        free_data(run);
    }
    Py_RETURN_NONE;
}

static PyObject *
run_size_bytes(run_t *run, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(run_size(run));
}

static Py_ssize_t
run_length(run_t *run)
{
    return (Py_ssize_t)run->count;
}

static PyMethodDef run_methods[] = {
    {"append", (PyCFunction)(void (*)(void))run_append, METH_VARARGS, "(timestamp, key, value, headers, counted)"},
    {"close", (PyCFunction)(void (*)(void))run_close, METH_NOARGS, "No record joins it from now on."},
    {"rows", (PyCFunction)(void (*)(void))run_rows, METH_VARARGS, "(start=0, end=None)"},
    {"body", (PyCFunction)(void (*)(void))run_body, METH_NOARGS, "Its records as in an uncompressed v2 batch."},
    {"batch", (PyCFunction)(void (*)(void))run_batch, METH_VARARGS, "(attributes, producer_id, epoch, sequence)"},
    {"drop", (PyCFunction)(void (*)(void))run_drop, METH_O, "So many more will not be asked for again."},
    {"resolve", (PyCFunction)(void (*)(void))run_resolve, METH_VARARGS, "(start, end, base, append_time, error)"},
    {"done", (PyCFunction)(void (*)(void))run_done, METH_O, "Whether a record's outcome is known."},
    {"outcome", (PyCFunction)(void (*)(void))run_outcome, METH_O, "(partition, offset, timestamp, error) | None"},
    {"outcomes", (PyCFunction)(void (*)(void))run_outcomes, METH_VARARGS, "(start, end) -> what is known of those"},
    {"report", (PyCFunction)(void (*)(void))run_report, METH_VARARGS, "(number, place, callback) -> bool"},
    {"add_waiter", (PyCFunction)(void (*)(void))run_add_waiter, METH_VARARGS, "(number, place, call, dispatch)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef run_members[] = {
    {"topic", T_OBJECT_EX, offsetof(run_t, topic), READONLY, NULL},
    {"terms", T_OBJECT_EX, offsetof(run_t, terms), READONLY, NULL},
    {"dispatch", T_OBJECT_EX, offsetof(run_t, dispatch), READONLY, NULL},
    {"since", T_OBJECT_EX, offsetof(run_t, since), 0, NULL},
    {"partition", T_INT, offsetof(run_t, partition), 0, NULL},
    {"is_closed", T_BOOL, offsetof(run_t, is_closed), READONLY, NULL},
    {"has_headers", T_BOOL, offsetof(run_t, has_headers), READONLY, NULL},
    {"buffered_bytes", T_PYSSIZET, offsetof(run_t, buffered_bytes), READONLY, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(run_t, bytes_max), READONLY, NULL},
    {"base_timestamp", T_LONGLONG, offsetof(run_t, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(run_t, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef run_properties[] = {
    {"size_bytes", (getter)run_size_bytes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_new, run_make},
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_methods, run_methods},
    {Py_tp_members, run_members},
    {Py_tp_getset, run_properties},
    {Py_sq_length, run_length},
    {Py_bf_getbuffer, run_getbuffer},
    {Py_bf_releasebuffer, run_releasebuffer},
    {0, NULL},
};

static PyType_Spec run_spec = {
    "kwire.wire._speedups.BatchBuilder", sizeof(run_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, run_slots,
};

int
add_runs(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&run_spec);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "BatchBuilder", type) < 0 || add_reports(module) < 0 ||
                 add_places(module, (PyTypeObject *)type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}
