/* RecordFuture in C: see `_run.py`, its specification, for what it is. */
#include "_speedups.h"

#include "_run.h"

#include <structmember.h>

static PyTypeObject *run_type; /* the same in every interpreter that imports the module */

/* The memory of places that have ended: most end before the next is made. */
static place_t *idle[64];
static size_t idle_used;

int
is_remade_type(PyTypeObject *type)
{
    PyObject *size = PyObject_GetAttrString(OBJECT(type), "__basicsize__");
    Py_ssize_t bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    Py_XDECREF(size);
    if (bytes == -1 && PyErr_Occurred()) {
        return -1;
    }
    return bytes == sizeof(place_t) && !(PyType_GetFlags(type) & Py_TPFLAGS_HAVE_GC);
}

place_t *
place_again(PyTypeObject *type, run_t *run, uint32_t number)
{
    place_t *place;
    if (idle_used) {
        place = (place_t *)PyObject_Init(OBJECT(idle[--idle_used]), type);
    }
    else {
        place = (place_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
        if (place == NULL) {
            return NULL;
        }
    }
    Py_XINCREF(OBJECT(run));
    place->run = run;
    place->number = number;
    place->is_plain = 1;
    return place;
}

static int
place_init(place_t *place, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *run;
    unsigned int number;
    if (!PyArg_ParseTuple(args, "O!I", run_type, &run, &number)) {
        return -1;
    }
    if (place->run != NULL) {
        PyErr_SetString(PyExc_TypeError, "a place stays the one that it is"); /* its run may have noted it */
        return -1;
    }
    Py_INCREF(run);
    place->run = (run_t *)run;
    place->number = number;
    return 0;
}

/* Where the run has noted the place for a report, it is made again for that. */
static void
forget(place_t *place)
{
    uint32_t number = place->number;
    callbacks_t *callbacks = &followed(place->run, &number)->callbacks;
    if (number < callbacks->places_used && callbacks->places[number] == (uintptr_t)place) {
        callbacks->places[number] = 0;
    }
}

static void
place_dealloc(place_t *place)
{
    PyTypeObject *type = Py_TYPE(OBJECT(place));
    if (place->run != NULL) {
        forget(place);
        Py_DECREF(OBJECT(place->run));
    }
    if (place->is_plain && idle_used < sizeof(idle) / sizeof(idle[0])) {
        idle[idle_used++] = place;
    }
    else {
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(place);
    }
    Py_DECREF(type);
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
    return run_part(run, number);
}

static PyObject *
place_done(place_t *place, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(part_of_place(place) != NULL);
}

/* The argument of `exception`, None if it is not given; NULL with an exception. */
static PyObject *
timeout_of(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t count = nargs + (kwnames == NULL ? 0 : PyTuple_Size(kwnames));
    if (count > 1) {
        PyErr_SetString(PyExc_TypeError, "exception() takes a timeout and nothing else");
        return NULL;
    }
    if (count > nargs && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(kwnames, 0), "timeout") != 0) {
        PyErr_Format(PyExc_TypeError, "exception() takes a timeout and no %R", PyTuple_GetItem(kwnames, 0));
        return NULL;
    }
    return count ? args[0] : Py_None;
}

static PyObject *
place_exception(place_t *place, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *timeout = nargs || kwnames != NULL ? timeout_of(args, nargs, kwnames) : Py_None;
    if (timeout == NULL) {
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
    if (part->error == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *shared = part->error;
    Py_INCREF(shared);
    PyObject *error = PyObject_CallMethod((PyObject *)place, "_own", "O", shared);
    Py_DECREF(shared);
    return error;
}

static PyObject *
place_own(PyObject *Py_UNUSED(place), PyObject *error)
{
    Py_INCREF(error);
    return error;
}

static PyMethodDef place_methods[] = {
    {"exception", (PyCFunction)(void (*)(void))place_exception, METH_FASTCALL | METH_KEYWORDS,
     "exception($self, /, timeout=None)\n--\n\n"
     "Wait as `result` does; answer the error instead of raising it, or None."},
    {"_own", place_own, METH_O, "What to hand out of an error that records share: for the heir to say."},
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
    "kwire.wire._speedups.RecordFuture", sizeof(place_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, place_slots,
};

/* (name) -> a class derived from RecordFuture
 *
 * One that is written in Python has a part for the garbage collector, which would look at each record that waits, again
 * and again, and could not follow it anyway: a run is not the collector's. */
static PyObject *
future_class(PyObject *module, PyObject *full_name)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, place_dealloc}, {Py_tp_methods, place_methods}, {0, NULL}};
    return derived_class(module, "RecordFuture", full_name, sizeof(place_t), slots);
}

static PyMethodDef place_functions[] = {
    {"future_class", future_class, METH_O, "future_class(full_name, /) -> type"},
    {NULL, NULL, 0, NULL},
};

int
add_places(PyObject *module, PyTypeObject *type_of_runs)
{
    run_type = type_of_runs;
    PyObject *type = PyType_FromSpec(&place_spec);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddFunctions(module, place_functions) < 0 || PyModule_AddObjectRef(module, "RecordFuture", type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}
