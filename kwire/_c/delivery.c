/* RecordFuture and the delivery callbacks of a batch builder: see kwire/producer/batch_builder.py.
 *
 * There may be a callback for every record, and then it is mostly the same for all: so calls are kept by stretches of
 * records. Most futures are thrown away at once. So none is kept for its callback alone where another that equals it can
 * be made when it is called.
 */
#include "module.h"
#include "batch_builder.h"
#include <structmember.h>

/* The same in every interpreter that imports the module. */
static PyTypeObject *run_type, *future_type;

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
future_new(PyTypeObject *type, run_t *run, uint32_t number)
{
    place_t *future = (place_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (future != NULL) {
        future->run = (run_t *)Py_XNewRef(OBJECT(run));
        future->number = number;
    }
    return future;
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

static void
place_dealloc(place_t *place)
{
    PyTypeObject *type = Py_TYPE(OBJECT(place));
    Py_XDECREF(OBJECT(place->run));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(place);
    Py_DECREF(type);
}

/* Futures of the same record are equal: a callback may get another one than `send` returned. */
static PyObject *
future_compare(PyObject *self, PyObject *other, int operator)
{
    if (!PyObject_TypeCheck(other, future_type) || (operator != Py_EQ && operator != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const place_t *one = (place_t *)self, *two = (place_t *)other;
    int is_same = one->run == two->run && one->number == two->number;
    return PyBool_FromLong(is_same == (operator == Py_EQ));
}

static Py_hash_t
future_hash(place_t *self)
{
    Py_hash_t hash = (Py_hash_t)((uintptr_t)self->run >> 4) ^ (Py_hash_t)self->number * 1000003;
    return hash == -1 ? -2 : hash;
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
    {Py_tp_richcompare, future_compare},
    {Py_tp_hash, future_hash},
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
    future_type = (PyTypeObject *)Py_XNewRef(type);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddFunctions(module, place_functions) < 0 || PyModule_AddObjectRef(module, "RecordFuture", type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}

#define FUTURES_MIN 64

/* ---- of a builder ------------------------------------------------------------------------------------------------- */

static int
reserve_futures(callbacks_t *all, uint32_t count)
{
    if (count <= all->futures_room) {
        return 0;
    }
    uint32_t room = all->futures_room ? all->futures_room * 2 : FUTURES_MIN;
    room = room < count ? count : room;
    PyObject **futures = PyMem_Realloc(all->futures, (size_t)room * sizeof(PyObject *));
    if (futures == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    all->futures = futures;
    all->futures_room = room;
    return 0;
}

int
callbacks_add(callbacks_t *all, uint32_t number, PyObject *future, PyObject *callback)
{
    call_t *last = all->used ? &all->calls[all->used - 1] : NULL;
    int is_next = last != NULL && last->callback == callback && last->to == number;
    if ((future != NULL && reserve_futures(all, number + 1) < 0) ||
        (!is_next && grow((void **)&all->calls, all->used, &all->room, sizeof(call_t)) < 0)) {
        return -1;
    }
    if (future != NULL) {
        while (all->futures_used < number) {
            all->futures[all->futures_used++] = NULL;
        }
        all->futures[all->futures_used++] = Py_NewRef(future);
    }
    if (is_next) {
        last->to++;
    }
    else {
        all->calls[all->used++] = (call_t){number, number + 1, Py_NewRef(callback)};
    }
    return 0;
}

void
callbacks_clear(callbacks_t *callbacks)
{
    callbacks_t all = *callbacks;
    *callbacks = (callbacks_t){0};
    for (uint32_t index = 0; index < all.futures_used; index++) {
        Py_XDECREF(all.futures[index]);
    }
    for (uint32_t index = 0; index < all.used; index++) {
        Py_XDECREF(all.calls[index].callback);
    }
    PyMem_Free(all.futures);
    PyMem_Free(all.calls);
}

/* Take the future that is kept for a record; NULL where none is. */
static PyObject *
take_kept(callbacks_t *all, uint32_t number)
{
    if (number - all->first >= all->futures_used) {
        return NULL;
    }
    PyObject *future = all->futures[number - all->first];
    all->futures[number - all->first] = NULL;
    return future;
}

int
callbacks_move(run_t *run, const child_t *children)
{
    callbacks_t *all = &run->callbacks;
    for (uint32_t index = 0; index < all->used; index++) {
        const call_t *call = &all->calls[index];
        for (uint32_t number = call->from; number < call->to; number++) {
            const child_t *child = &children[number];
            PyObject *future = take_kept(all, number);
            int failed = callbacks_add(&child->run->callbacks, child->number, future, call->callback) < 0;
            Py_XDECREF(future);
            if (failed) {
                return -1;
            }
        }
    }
    return 0;
}

/* (number, future, callback) -> bool */
PyObject *
run_report(run_t *run, PyObject *args)
{
    unsigned int number;
    PyObject *future, *callback;
    if (!PyArg_ParseTuple(args, "IOO", &number, &future, &callback)) {
        return NULL;
    }
    const callbacks_t *all = &run->callbacks;
    if (number >= run->count || run->children != NULL || run_part(run, number) != NULL ||
        (all->used && all->calls[all->used - 1].to > number)) {
        Py_RETURN_FALSE;
    }
    return callbacks_add(&run->callbacks, number, future, callback) < 0 ? NULL : Py_NewRef(Py_True);
}

/* ---- taken out --------------------------------------------------------------------------------------------------- */

static PyTypeObject *reports_type; /* the same in every interpreter that imports the module */

reports_t *
reports_new(run_t *run)
{
    reports_t *reports = (reports_t *)((allocfunc)PyType_GetSlot(reports_type, Py_tp_alloc))(reports_type, 0);
    if (reports != NULL) {
        Py_INCREF(OBJECT(run));
        reports->run = run;
    }
    return reports;
}

int
reports_reserve(reports_t *reports, uint32_t start, uint32_t end)
{
    const callbacks_t *of_run = &reports->run->callbacks;
    callbacks_t *all = &reports->all;
    if (start == 0 && end == reports->run->count) {
        return 0;
    }
    all->calls = PyMem_Calloc(of_run->used + 1, sizeof(call_t));
    all->futures = PyMem_Calloc((size_t)(end - start) + 1, sizeof(PyObject *));
    if (all->calls == NULL || all->futures == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Takes those of a part of the run; their stretches stay there until all is resolved. */
static void
take_part(callbacks_t *from, callbacks_t *into, uint32_t start, uint32_t end)
{
    into->first = start;
    for (uint32_t index = 0; index < from->used; index++) {
        call_t call = from->calls[index];
        call.from = call.from < start ? start : call.from;
        call.to = call.to > end ? end : call.to;
        if (call.from >= call.to) {
            continue;
        }
        Py_INCREF(call.callback);
        into->calls[into->used++] = call;
        for (uint32_t number = call.from; number < call.to; number++) {
            into->futures[number - start] = take_kept(from, number);
        }
        into->futures_used = call.to - start;
    }
}

int
reports_take(reports_t *reports, uint32_t start, uint32_t end)
{
    callbacks_t *all = &reports->all;
    run_t *run = reports->run;
    if (start == 0 && end == run->count) {
        *all = run->callbacks;
        run->callbacks = (callbacks_t){0};
    }
    else {
        take_part(&run->callbacks, all, start, end);
        if (run->resolved == run->count) {
            callbacks_clear(&run->callbacks);
        }
    }
    return all->used > 0;
}

/* A reference to the future of a record: the one that is kept, or one that equals the one that was not. */
static PyObject *
take_future(run_t *run, callbacks_t *all, uint32_t number)
{
    PyObject *kept = take_kept(all, number);
    return kept != NULL ? kept : OBJECT(future_new(run->future_type, run, number));
}

/* ---- DeliveryCallbacks ----------------------------------------------------------------------------------------------------- */

static PyObject *
reports_list(reports_t *self, PyObject *Py_UNUSED(none))
{
    callbacks_t *all = &self->all;
    PyObject *list = PyList_New(0);
    for (uint32_t index = 0; list != NULL && index < all->used; index++) {
        for (uint32_t number = all->calls[index].from; list != NULL && number < all->calls[index].to; number++) {
            PyObject *kept = number - all->first < all->futures_used ? all->futures[number - all->first] : NULL;
            PyObject *future = kept != NULL ? Py_NewRef(kept) : OBJECT(future_new(self->run->future_type, self->run, number));
            PyObject *item = future == NULL ? NULL : Py_BuildValue("(INO)", number, future, all->calls[index].callback);
            if (item == NULL || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    return list;
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

static int
call(PyObject *callback, PyObject *future, PyObject *on_error)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(callback, future, NULL);
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *error = caught();
        answer = error == NULL ? NULL : PyObject_CallFunctionObjArgs(on_error, error, future, NULL);
        Py_XDECREF(error);
    }
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static PyObject *
reports_tell(reports_t *self, PyObject *on_error)
{
    callbacks_t all = self->all;
    self->all = (callbacks_t){0}; /* each is called once, whatever happens here */
    int failed = 0;
    for (uint32_t index = 0; !failed && index < all.used; index++) {
        const call_t *stretch = &all.calls[index];
        for (uint32_t number = stretch->from; !failed && number < stretch->to; number++) {
            PyObject *future = take_future(self->run, &all, number);
            failed = future == NULL || call(stretch->callback, future, on_error) < 0;
            Py_XDECREF(future);
        }
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    callbacks_clear(&all);
    PyErr_Restore(type, value, traceback);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static void
reports_dealloc(reports_t *self)
{
    PyTypeObject *type = Py_TYPE(OBJECT(self));
    callbacks_clear(&self->all);
    Py_XDECREF(OBJECT(self->run));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef reports_methods[] = {
    {"all", (PyCFunction)(void (*)(void))reports_list, METH_NOARGS, "(number, place, callback) of each"},
    {"tell", (PyCFunction)(void (*)(void))reports_tell, METH_O, "tell(on_error): call them all"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reports_slots[] = {
    {Py_tp_dealloc, reports_dealloc},
    {Py_tp_methods, reports_methods},
    {0, NULL},
};

static PyType_Spec reports_spec = {
    "kwire.wire._speedups.DeliveryCallbacks", sizeof(reports_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    reports_slots,
};

int
add_reports(PyObject *module)
{
    reports_type = (PyTypeObject *)PyType_FromSpec(&reports_spec);
    return reports_type == NULL ? -1 : PyModule_AddObjectRef(module, "DeliveryCallbacks", (PyObject *)reports_type);
}
