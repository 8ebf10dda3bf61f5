/* What became of a run's records, in C: see `_run.py`, its specification.
 *
 * No Python code runs between looking at a run and changing it, so the interpreter's lock is all the lock there is:
 * `resolve` writes the outcome and takes those who asked in one step, `tell_late` looks for the outcome and notes who
 * asks in one step.
 */
#include "_speedups.h"

#include "_run.h"

const part_t *
run_part(const run_t *run, uint32_t number)
{
    for (uint32_t index = 0; index < run->parts_used; index++) {
        if (run->parts[index].start <= number && number < run->parts[index].end) {
            return &run->parts[index];
        }
    }
    return NULL;
}

static int
is_done(run_t *run, uint32_t number)
{
    const run_t *there = followed(run, &number);
    return run_part(there, number) != NULL;
}

PyObject *
run_done(run_t *run, PyObject *number)
{
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(n < run->count && is_done(run, (uint32_t)n));
}

PyObject *
run_outcome(run_t *self, PyObject *number_object)
{
    unsigned long n = PyLong_AsUnsignedLong(number_object);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    uint32_t number = (uint32_t)n;
    const run_t *run = followed(self, &number);
    const part_t *part = n < self->count ? run_part(run, number) : NULL;
    if (part == NULL) {
        Py_RETURN_NONE;
    }
    int64_t offset = part->base_offset < 0 ? -1 : part->base_offset + number - part->start;
    int64_t timestamp = part->append_time < 0 ? run_timestamp(run, number) : part->append_time;
    PyObject *error = part->error == NULL ? Py_None : part->error;
    return Py_BuildValue("(iLLO)", run->partition, (long long)offset, (long long)timestamp, error);
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

PyObject *
run_resolve(run_t *run, PyObject *args)
{
    unsigned int start, end;
    long long base_offset, append_time;
    PyObject *error;
    if (!PyArg_ParseTuple(args, "IILLO", &start, &end, &base_offset, &append_time, &error)) {
        return NULL;
    }
    /* All that is needed is made first: making it may run other code. */
    PyObject *taken = PyList_New(0), *left = PyList_New(0), *answer = NULL;
    reports_t *reports = run->callbacks.used ? reports_new(run) : NULL;
    part_t *parts = PyMem_Realloc(run->parts, (run->parts_used + 1) * sizeof(part_t));
    run->parts = parts == NULL ? run->parts : parts;
    if (taken == NULL || left == NULL || parts == NULL || PyErr_Occurred()) {
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        goto done;
    }
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
    PyObject *late = Py_None;
    if ((reports != NULL && reports_reserve(reports, start, end) < 0) ||
        (run->late != NULL && (late = take_late(run->late, taken, left, start, end)) == NULL)) {
        goto done;
    }
    parts[run->parts_used++] = (part_t){start, end, base_offset, append_time, error == Py_None ? NULL : error};
    if (error != Py_None) {
        Py_INCREF(error);
    }
    run->resolved += end > start ? end - start : 0;
    PyObject *before = run->late;
    run->late = NULL;
    if (PyList_Size(left)) {
        run->late = left;
        Py_INCREF(left);
    }
    int has_reports = reports != NULL && reports_take(reports, start, end);
    answer = PyTuple_Pack(2, has_reports ? OBJECT(reports) : Py_None, late);
    Py_XDECREF(before);
done:
    Py_XDECREF(OBJECT(reports));
    Py_XDECREF(taken);
    Py_XDECREF(left);
    return answer;
}

PyObject *
run_add_waiter(run_t *self, PyObject *args)
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
