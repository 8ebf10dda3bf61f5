/* Run, Place and Reports in C: see `_door.py`, their specification, for what they are.
 *
 * Records stand in a run in their final form, so that a batch needs no more than a header. No Python code runs between
 * looking at a run and changing it, so the interpreter's lock is all the lock there is: `resolve` writes the outcome and
 * takes those who asked in one step, `tell_late` looks for the outcome and notes who asks in one step.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include <structmember.h>

#define FIRST_ROOM 512

/* ---- filling ---------------------------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes in an array that doubles. */
static int
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
    unsigned char *data = PyMem_Realloc(run->data, room);
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
run_put(run_t *run, const entry_t *entry, Py_ssize_t size_bytes, size_t room_hint)
{
    int64_t after = 0;
    int is_marked = run->count == 0 || entry->timestamp != run->marks[run->marks_used - 1].timestamp;
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
        if (run->count == 0) {
            run->base_timestamp = run->max_timestamp = entry->timestamp;
        }
        else if (entry->timestamp > run->max_timestamp) {
            run->max_timestamp = entry->timestamp;
        }
    }
    run->count++;
    run->size_bytes += size_bytes;
    if (run->size_bytes >= run->bytes_max) {
        run->is_closed = 1;
    }
    return 0;
}

int
run_report(run_t *run, uint32_t number, PyObject *place, PyObject *callback)
{
    if (grow((void **)&run->reports, run->reports_used, &run->reports_room, sizeof(report_t)) < 0) {
        return -1;
    }
    Py_INCREF(place);
    Py_INCREF(callback);
    run->reports[run->reports_used++] = (report_t){number, place, callback};
    return 0;
}

/* ---- Reports ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    report_t *reports;
    uint32_t used;
} reports_t;

static void
clear_reports(report_t *reports, uint32_t used)
{
    for (uint32_t index = 0; index < used; index++) {
        Py_XDECREF(reports[index].place);
        Py_XDECREF(reports[index].callback);
    }
    PyMem_Free(reports);
}

static void
reports_dealloc(reports_t *self)
{
    PyTypeObject *type = Py_TYPE(OBJECT(self));
    clear_reports(self->reports, self->used);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
reports_all(reports_t *self, PyObject *Py_UNUSED(none))
{
    PyObject *all = PyList_New(0);
    for (uint32_t index = 0; all != NULL && index < self->used; index++) {
        report_t *one = &self->reports[index];
        PyObject *item = Py_BuildValue("(IOO)", one->number, one->place, one->callback);
        if (item == NULL || PyList_Append(all, item) < 0) {
            Py_CLEAR(all);
        }
        Py_XDECREF(item);
    }
    return all;
}

/* The exception that is set, as an object with its traceback; it is set no more. */
static PyObject *
caught(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL && value != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *
reports_tell(reports_t *self, PyObject *on_error)
{
    report_t *reports = self->reports;
    uint32_t used = self->used, index = 0;
    self->reports = NULL; /* told once, whatever happens here */
    self->used = 0;
    int is_fine = 1;
    for (; is_fine && index < used; index++) {
        PyObject *answer = PyObject_CallFunctionObjArgs(reports[index].callback, reports[index].place, NULL);
        if (answer == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyObject *error = caught();
            answer = error == NULL ? NULL : PyObject_CallFunctionObjArgs(on_error, error, NULL);
            Py_XDECREF(error);
        }
        is_fine = answer != NULL;
        Py_XDECREF(answer);
        Py_CLEAR(reports[index].callback);
        Py_CLEAR(reports[index].place);
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    clear_reports(reports, used);
    PyErr_Restore(type, value, traceback);
    if (!is_fine) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef reports_methods[] = {
    {"all", (PyCFunction)(void (*)(void))reports_all, METH_NOARGS, "(number, place, callback) of each"},
    {"tell", (PyCFunction)(void (*)(void))reports_tell, METH_O, "tell(on_error): call them all"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reports_slots[] = {
    {Py_tp_dealloc, reports_dealloc},
    {Py_tp_methods, reports_methods},
    {0, NULL},
};

static PyType_Spec reports_spec = {
    "kwire.wire._speedups.Reports", sizeof(reports_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    reports_slots,
};

/* ---- making and ending ------------------------------------------------------------------------------------------ */

PyObject *
run_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms, PyObject *dispatch)
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
    run->partition = partition;
    run->bytes_max = bytes_max;
    run->size_bytes = BATCH_OVERHEAD;
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
    return run_new(type, topic, partition, bytes_max < 1 ? 1 : bytes_max, terms, dispatch);
}

static void
free_data(run_t *run)
{
    run->is_freed = 1;
    if (run->exports == 0) {
        PyMem_Free(run->data);
        run->data = NULL;
        run->room = 0;
    }
}

void
run_forget(run_t *run)
{
    report_t *reports = run->reports;
    uint32_t used = run->reports_used;
    PyObject *late = run->late;
    run->reports = NULL;
    run->late = NULL;
    run->reports_used = run->reports_room = 0;
    free_data(run);
    clear_reports(reports, used);
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
    clear_reports(run->reports, run->reports_used);
    Py_XDECREF(run->topic);
    Py_XDECREF(run->terms);
    Py_XDECREF(run->dispatch);
    Py_XDECREF(run->since);
    Py_XDECREF(run->late);
    PyMem_Free(run->data);
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

/* In place, unless somebody holds the bytes as they were. */
static PyObject *
run_headed(run_t *run, PyObject *header)
{
    if (!PyBytes_CheckExact(header) || PyBytes_Size(header) != BATCH_OVERHEAD) {
        PyErr_SetString(PyExc_TypeError, "a header has 61 bytes");
        return NULL;
    }
    if (run->exports == 0 && run->data != NULL && run->is_closed) {
        memcpy(run->data, PyBytes_AsString(header), BATCH_OVERHEAD);
        return PyMemoryView_FromObject((PyObject *)run);
    }
    PyObject *body = run_body(run, NULL);
    PyObject *bytes = body == NULL ? NULL : PyBytes_FromObject(body);
    Py_XDECREF(body);
    if (bytes == NULL) {
        return NULL;
    }
    PyObject *whole = PySequence_Concat(header, bytes);
    Py_DECREF(bytes);
    return whole;
}

static int64_t
timestamp_of(const run_t *run, uint32_t number)
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
        row = Py_BuildValue("(LOOO)", (long long)timestamp_of(run, number), key, value, headers);
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

/* ---- outcomes --------------------------------------------------------------------------------------------------- */

static const part_t *
part_of(const run_t *run, uint32_t number)
{
    for (uint32_t index = 0; index < run->parts_used; index++) {
        if (run->parts[index].start <= number && number < run->parts[index].end) {
            return &run->parts[index];
        }
    }
    return NULL;
}

/* The run that has the record now, and its number there. */
static const run_t *
followed(const run_t *run, uint32_t *number)
{
    while (run->children != NULL && *number < run->count) {
        child_t child = run->children[*number];
        run = child.run;
        *number = child.number;
    }
    return run;
}

static int
is_done(const run_t *run, uint32_t number)
{
    run = followed(run, &number);
    return part_of(run, number) != NULL;
}

static PyObject *
run_done(run_t *run, PyObject *number)
{
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(n < run->count && is_done(run, (uint32_t)n));
}

static PyObject *
run_outcome(run_t *self, PyObject *number_object)
{
    unsigned long n = PyLong_AsUnsignedLong(number_object);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    uint32_t number = (uint32_t)n;
    const run_t *run = followed(self, &number);
    const part_t *part = n < self->count ? part_of(run, number) : NULL;
    if (part == NULL) {
        Py_RETURN_NONE;
    }
    int64_t offset = part->base_offset < 0 ? -1 : part->base_offset + number - part->start;
    int64_t timestamp = part->append_time < 0 ? timestamp_of(run, number) : part->append_time;
    PyObject *error = part->error == NULL ? Py_None : part->error;
    return Py_BuildValue("(iLLO)", run->partition, (long long)offset, (long long)timestamp, error);
}

static PyTypeObject *reports_type; /* the same in every interpreter that imports the module */

/* Takes the reports of start .. end - 1, whose order is that in which they came; None where there are none. */
static PyObject *
take_reports(run_t *run, uint32_t start, uint32_t end, reports_t *into)
{
    uint32_t kept = 0;
    report_t *all = run->reports;
    if (start == 0 && end == run->count) {
        into->reports = all;
        into->used = run->reports_used;
        run->reports = NULL;
        run->reports_used = run->reports_room = 0;
    }
    else {
        for (uint32_t index = 0; index < run->reports_used; index++) {
            if (start <= all[index].number && all[index].number < end) {
                into->reports[into->used++] = all[index];
            }
            else {
                all[kept++] = all[index];
            }
        }
        run->reports_used = kept;
    }
    if (into->used == 0) {
        Py_DECREF(OBJECT(into));
        Py_RETURN_NONE;
    }
    return (PyObject *)into;
}

/* Takes the late ones of start .. end - 1 out of `late` into `taken`; None where there are none. */
static PyObject *
take_late(PyObject *late, PyObject *taken, PyObject *left, uint32_t start, uint32_t end)
{
    for (Py_ssize_t index = 0; index < PyList_Size(late); index++) {
        PyObject *one = PyList_GetItem(late, index);
        unsigned long number = PyLong_AsUnsignedLong(PyTuple_GetItem(one, 0));
        if (PyList_Append(start <= number && number < end ? taken : left, one) < 0) {
            return NULL;
        }
    }
    return PyList_Size(taken) ? taken : Py_None;
}

static PyObject *
run_resolve(run_t *run, PyObject *args)
{
    unsigned int start, end;
    long long base_offset, append_time;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "IILLO", &start, &end, &base_offset, &append_time, &error)) {
        return NULL;
    }
    /* All that is needed is made first: making it may run other code. */
    PyObject *taken = PyList_New(0), *left = PyList_New(0), *answer = NULL, *reports = NULL;
    reports_t *into = (reports_t *)((allocfunc)PyType_GetSlot(reports_type, Py_tp_alloc))(reports_type, 0);
    part_t *parts = PyMem_Realloc(run->parts, (run->parts_used + 1) * sizeof(part_t));
    if (taken == NULL || left == NULL || into == NULL || parts == NULL) {
        run->parts = parts == NULL ? run->parts : parts;
        PyErr_NoMemory();
        goto done;
    }
    run->parts = parts;
    for (uint32_t index = 0; index < run->parts_used; index++) {
        if (start < parts[index].end && parts[index].start < end) {
            PyErr_SetString(PyExc_AssertionError, "a record resolves exactly once");
            goto done;
        }
    }
    if (!run->is_closed || end > run->count) {
        PyErr_SetString(PyExc_AssertionError, "a run resolves when it is closed");
        goto done;
    }
    if (run->reports_used && !(start == 0 && end == run->count)) {
        into->reports = PyMem_Malloc(run->reports_used * sizeof(report_t));
        if (into->reports == NULL) {
            PyErr_NoMemory();
            goto done;
        }
    }
    PyObject *late = Py_None;
    if (run->late != NULL && (late = take_late(run->late, taken, left, start, end)) == NULL) {
        goto done;
    }
    parts[run->parts_used++] = (part_t){start, end, base_offset, append_time, error == Py_None ? NULL : error};
    if (error != Py_None) {
        Py_INCREF(error);
    }
    PyObject *before = run->late;
    run->late = NULL;
    if (PyList_Size(left)) {
        run->late = left;
        Py_INCREF(left);
    }
    reports = take_reports(run, start, end, into);
    into = NULL;
    answer = PyTuple_Pack(2, reports, late);
    Py_DECREF(reports);
    Py_XDECREF(before);
done:
    Py_XDECREF(OBJECT(into));
    Py_XDECREF(taken);
    Py_XDECREF(left);
    return answer;
}

static PyObject *
run_tell_late(run_t *self, PyObject *args)
{
    unsigned int number;
    PyObject *place, *call, *dispatch;
    if (!PyArg_ParseTuple(args, "IOOO", &number, &place, &call, &dispatch)) {
        return NULL;
    }
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return NULL;
    }
    PyObject *item = NULL;
    run_t *run;
    for (;;) { /* making the item may run code that moves the record to another run */
        uint32_t there = number;
        run = (run_t *)followed(self, &there);
        if (item != NULL && PyLong_AsUnsignedLong(PyTuple_GetItem(item, 0)) == there) {
            break;
        }
        Py_XDECREF(item);
        item = Py_BuildValue("(IOOO)", there, place, call, dispatch);
        if (item == NULL) {
            Py_DECREF(fresh);
            return NULL;
        }
    }
    int is_told = !is_done(self, number), failed = 0;
    if (is_told) {
        if (run->late == NULL) {
            run->late = fresh;
            Py_INCREF(fresh);
        }
        failed = PyList_Append(run->late, item) < 0;
    }
    Py_DECREF(item);
    Py_DECREF(fresh);
    return failed ? NULL : PyBool_FromLong(is_told);
}

static PyObject *
run_report_method(run_t *run, PyObject *args)
{
    unsigned int number;
    PyObject *place, *callback;
    if (!PyArg_ParseTuple(args, "IOO", &number, &place, &callback)) {
        return NULL;
    }
    if (run->children != NULL || part_of(run, number) != NULL ||
        (run->reports_used && run->reports[run->reports_used - 1].number >= number)) {
        Py_RETURN_FALSE;
    }
    return run_report(run, number, place, callback) < 0 ? NULL : PyBool_FromLong(1);
}

/* ---- the rest of Run --------------------------------------------------------------------------------------------- */

static PyObject *
run_append(run_t *run, PyObject *args)
{
    entry_t entry = {0};
    long long timestamp;
    PyObject *key, *value;
    Py_ssize_t size_bytes;
    if (!PyArg_ParseTuple(args, "LOOO!n", &timestamp, &key, &value, &PyTuple_Type, &entry.headers, &size_bytes)) {
        return NULL;
    }
    entry.timestamp = timestamp;
    if (run->is_closed || !is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value)) {
        PyErr_SetString(PyExc_AssertionError, "an open run takes bytes or None");
        return NULL;
    }
    return run_put(run, &entry, size_bytes, 0) < 0 ? NULL : PyLong_FromUnsignedLong(run->count - 1);
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

static Py_ssize_t
run_length(run_t *run)
{
    return (Py_ssize_t)run->count;
}

static PyMethodDef run_methods[] = {
    {"append", (PyCFunction)(void (*)(void))run_append, METH_VARARGS, "(timestamp, key, value, headers, size)"},
    {"close", (PyCFunction)(void (*)(void))run_close, METH_NOARGS, "No record joins it from now on."},
    {"rows", (PyCFunction)(void (*)(void))run_rows, METH_VARARGS, "(start=0, end=None)"},
    {"body", (PyCFunction)(void (*)(void))run_body, METH_NOARGS, "Its records as in an uncompressed v2 batch."},
    {"headed", (PyCFunction)(void (*)(void))run_headed, METH_O, "The header and the body in one."},
    {"drop", (PyCFunction)(void (*)(void))run_drop, METH_O, "So many more will not be asked for again."},
    {"resolve", (PyCFunction)(void (*)(void))run_resolve, METH_VARARGS, "(start, end, base, append_time, error)"},
    {"done", (PyCFunction)(void (*)(void))run_done, METH_O, "Whether a record's outcome is known."},
    {"outcome", (PyCFunction)(void (*)(void))run_outcome, METH_O, "(partition, offset, timestamp, error) | None"},
    {"outcomes", (PyCFunction)(void (*)(void))run_outcomes, METH_VARARGS, "(start, end) -> what is known of those"},
    {"report", (PyCFunction)(void (*)(void))run_report_method, METH_VARARGS, "(number, place, callback) -> bool"},
    {"tell_late", (PyCFunction)(void (*)(void))run_tell_late, METH_VARARGS, "(number, place, call, dispatch)"},
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
    {"size_bytes", T_PYSSIZET, offsetof(run_t, size_bytes), READONLY, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(run_t, bytes_max), READONLY, NULL},
    {"base_timestamp", T_LONGLONG, offsetof(run_t, base_timestamp), READONLY, NULL},
    {"max_timestamp", T_LONGLONG, offsetof(run_t, max_timestamp), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_new, run_make},
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_methods, run_methods},
    {Py_tp_members, run_members},
    {Py_sq_length, run_length},
    {Py_bf_getbuffer, run_getbuffer},
    {Py_bf_releasebuffer, run_releasebuffer},
    {0, NULL},
};

static PyType_Spec run_spec = {
    "kwire.wire._speedups.Run", sizeof(run_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, run_slots,
};

/* ---- Place ------------------------------------------------------------------------------------------------------ */

static PyTypeObject *run_type;

static int
place_init(place_t *place, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *run;
    unsigned int number;
    if (!PyArg_ParseTuple(args, "O!I", run_type, &run, &number)) {
        return -1;
    }
    PyObject *before = (PyObject *)place->run;
    Py_INCREF(run);
    place->run = (run_t *)run;
    place->number = number;
    Py_XDECREF(before);
    return 0;
}

static void
place_dealloc(place_t *place)
{
    PyTypeObject *type = Py_TYPE(OBJECT(place));
    Py_XDECREF(OBJECT(place->run));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(place);
    Py_DECREF(type);
}

static PyObject *
place_done(place_t *place, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(place->run != NULL && is_done(place->run, place->number));
}

/* The part that has a place's outcome; NULL while there is none. */
static const part_t *
part_of_place(const place_t *place)
{
    if (place->run == NULL) {
        return NULL;
    }
    uint32_t number = place->number;
    const run_t *run = followed(place->run, &number);
    return part_of(run, number);
}

static PyObject *
place_exception(place_t *place, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    if ((kwargs != NULL || PyTuple_Size(args)) &&
        !PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &timeout)) {
        return NULL;
    }
    const part_t *part = part_of_place(place);
    if (part == NULL) {
        PyObject *waited = PyObject_CallMethod((PyObject *)place, "_wait", "O", timeout);
        if (waited == NULL) {
            return NULL;
        }
        Py_DECREF(waited);
        part = part_of_place(place);
        if (part == NULL) {
            PyErr_SetString(PyExc_AssertionError, "who has waited knows the outcome");
            return NULL;
        }
    }
    PyObject *error = part->error == NULL ? Py_None : part->error;
    Py_INCREF(error);
    return error;
}

static PyMethodDef place_methods[] = {
    {"exception", (PyCFunction)(void (*)(void))place_exception, METH_VARARGS | METH_KEYWORDS,
     "exception($self, /, timeout=None)\n--\n\n"
     "Wait as `result` does; answer the error instead of raising it, or None."},
    {"done", (PyCFunction)(void (*)(void))place_done, METH_NOARGS, "Whether the outcome is known; never blocks."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef place_members[] = {
    {"_run", T_OBJECT_EX, offsetof(place_t, run), READONLY, NULL},
    {"_number", T_UINT, offsetof(place_t, number), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot place_slots[] = {
    {Py_tp_init, place_init},
    {Py_tp_dealloc, place_dealloc},
    {Py_tp_methods, place_methods},
    {Py_tp_members, place_members},
    {0, NULL},
};

static PyType_Spec place_spec = {
    "kwire.wire._speedups.Place", sizeof(place_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, place_slots,
};

/* (name) -> a class derived from Place
 *
 * One that is written in Python has a part for the garbage collector, which would look at each record that waits, again
 * and again, and could not follow it anyway: a run is not the collector's. */
static PyObject *
place_class(PyObject *module, PyObject *full_name)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, place_dealloc}, {0, NULL}};
    PyType_Spec spec = {
        PyUnicode_AsUTF8AndSize(full_name, NULL), sizeof(place_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots,
    };
    if (spec.name == NULL) {
        return NULL;
    }
    PyObject *place_type = PyObject_GetAttrString(module, "Place");
    PyObject *made = place_type == NULL ? NULL : PyType_FromSpecWithBases(&spec, place_type);
    Py_XDECREF(place_type);
    return made;
}

static PyMethodDef run_functions[] = {
    {"place_class", place_class, METH_O, "place_class(full_name, /) -> type"},
    {NULL, NULL, 0, NULL},
};

int
add_runs(PyObject *module)
{
    run_type = (PyTypeObject *)PyType_FromSpec(&run_spec);
    reports_type = (PyTypeObject *)PyType_FromSpec(&reports_spec);
    PyObject *place_type = PyType_FromSpec(&place_spec);
    if (run_type == NULL || reports_type == NULL || place_type == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, run_functions) < 0 ||
                   PyModule_AddObjectRef(module, "Run", (PyObject *)run_type) < 0 ||
                   PyModule_AddObjectRef(module, "Reports", (PyObject *)reports_type) < 0 ||
                   PyModule_AddObjectRef(module, "Place", place_type) < 0
               ? -1
               : 0;
}
