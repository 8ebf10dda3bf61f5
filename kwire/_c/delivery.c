/* RecordFuture and the delivery callbacks of a batch builder: see kwire/producer/batch_builder.py.
 *
 * Every record may have a callback, and it is usually the same one: so callbacks are stored once per range of records.
 * Most futures are discarded at once: so a future is not kept for its callback if an equal one can be created later.
 */
#include "module.h"
#include "batch_builder.h"
#include <structmember.h>

/* The same in every interpreter that imports the module. */
static PyTypeObject *builder_type, *future_type;

int
is_plain_future_type(PyTypeObject *type)
{
    PyObject *size = PyObject_GetAttrString(OBJECT(type), "__basicsize__");
    Py_ssize_t bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    Py_XDECREF(size);
    if (bytes == -1 && PyErr_Occurred()) {
        return -1;
    }
    return bytes == sizeof(future_t) && !(PyType_GetFlags(type) & Py_TPFLAGS_HAVE_GC);
}

future_t *
future_new(PyTypeObject *type, builder_t *builder, uint32_t number)
{
    future_t *future = (future_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (future != NULL) {
        future->builder = (builder_t *)Py_XNewRef(OBJECT(builder));
        future->number = number;
    }
    return future;
}

static int
future_init(future_t *future, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *builder;
    unsigned int number;
    if (!PyArg_ParseTuple(args, "O!I", builder_type, &builder, &number)) {
        return -1;
    }
    if (future->builder != NULL) {
        PyErr_SetString(PyExc_TypeError, "a future stays the one that it is");
        return -1;
    }
    Py_INCREF(builder);
    future->builder = (builder_t *)builder;
    future->number = number;
    return 0;
}

static void
future_dealloc(future_t *future)
{
    PyTypeObject *type = Py_TYPE(OBJECT(future));
    Py_XDECREF(OBJECT(future->builder));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(future);
    Py_DECREF(type);
}

/* Futures of the same record are equal: a callback may get another one than `send` returned. */
static PyObject *
future_compare(PyObject *self, PyObject *other, int operator)
{
    if (!PyObject_TypeCheck(other, future_type) || (operator != Py_EQ && operator != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const future_t *one = (future_t *)self, *two = (future_t *)other;
    int is_same = one->builder == two->builder && one->number == two->number;
    return PyBool_FromLong(is_same == (operator == Py_EQ));
}

static Py_hash_t
future_hash(future_t *self)
{
    Py_hash_t hash = (Py_hash_t)((uintptr_t)self->builder >> 4) ^ (Py_hash_t)self->number * 1000003;
    return hash == -1 ? -2 : hash;
}

/* Return the part that resolved a future; NULL while there is none. */
static const part_t *
part_of_future(const future_t *future)
{
    if (future->builder == NULL) {
        return NULL;
    }
    uint32_t number = future->number;
    const builder_t *builder = followed(future->builder, &number);
    return builder_part(builder, number);
}

static PyObject *
future_done(future_t *future, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(part_of_future(future) != NULL);
}

/* Return the argument of `exception`, None if it is absent; NULL with an exception. */
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
future_exception(future_t *future, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *timeout = nargs || kwnames != NULL ? timeout_of(args, nargs, kwnames) : Py_None;
    if (timeout == NULL) {
        return NULL;
    }
    const part_t *part = part_of_future(future);
    if (part == NULL) {
        PyObject *waited = PyObject_CallMethod((PyObject *)future, "_wait", "O", timeout);
        if (waited == NULL) {
            return NULL;
        }
        Py_DECREF(waited);
        part = part_of_future(future);
        if (part == NULL) {
            PyErr_SetString(PyExc_AssertionError, "the wait ended without an outcome");
            return NULL;
        }
    }
    if (part->error == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *shared = part->error;
    Py_INCREF(shared);
    PyObject *error = PyObject_CallMethod((PyObject *)future, "_own", "O", shared);
    Py_DECREF(shared);
    return error;
}

static PyObject *
future_own(PyObject *Py_UNUSED(future), PyObject *error)
{
    Py_INCREF(error);
    return error;
}

static PyMethodDef future_methods[] = {
    {"exception", (PyCFunction)(void (*)(void))future_exception, METH_FASTCALL | METH_KEYWORDS,
     "exception($self, /, timeout=None)\n--\n\n"
     "Wait as `result` does; return the error instead of raising it, or None."},
    {"_own", future_own, METH_O, "The exception to raise for an error that records share; subclasses decide."},
    {"done", (PyCFunction)(void (*)(void))future_done, METH_NOARGS, "Whether the outcome is known; never blocks."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef future_members[] = {
    {"_builder", T_OBJECT_EX, offsetof(future_t, builder), READONLY, NULL},
    {"_number", T_UINT, offsetof(future_t, number), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot future_slots[] = {
    {Py_tp_init, future_init},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_methods, future_methods},
    {Py_tp_members, future_members},
    {Py_tp_richcompare, future_compare},
    {Py_tp_hash, future_hash},
    {0, NULL},
};

static PyType_Spec future_spec = {
    "kwire.wire._speedups.RecordFuture", sizeof(future_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, future_slots,
};

/* (name) -> a class derived from RecordFuture
 *
 * A subclass written in Python has a garbage collector header: each collection would visit every pending record, and
 * find nothing, since builders are not tracked. */
static PyObject *
future_class(PyObject *module, PyObject *full_name)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, future_dealloc}, {Py_tp_methods, future_methods}, {0, NULL}};
    return derived_class(module, "RecordFuture", full_name, sizeof(future_t), slots);
}

static PyMethodDef future_functions[] = {
    {"future_class", future_class, METH_O, "future_class(full_name, /) -> type"},
    {NULL, NULL, 0, NULL},
};

int
add_futures(PyObject *module, PyTypeObject *type_of_runs)
{
    builder_type = type_of_runs;
    PyObject *type = PyType_FromSpec(&future_spec);
    future_type = (PyTypeObject *)Py_XNewRef(type);
    if (type == NULL) {
        return -1;
    }
    int failed =
        PyModule_AddFunctions(module, future_functions) < 0 || PyModule_AddObjectRef(module, "RecordFuture", type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}

#define FUTURES_MIN 64

/* ---- callbacks of a builder -------------------------------------------------------------------------------------- */

static int
reserve_futures(callbacks_t *all, uint32_t count)
{
    if (count <= all->futures_capacity) {
        return 0;
    }
    uint32_t capacity = all->futures_capacity ? all->futures_capacity * 2 : FUTURES_MIN;
    capacity = capacity < count ? count : capacity;
    PyObject **futures = PyMem_Realloc(all->futures, (size_t)capacity * sizeof(PyObject *));
    if (futures == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    all->futures = futures;
    all->futures_capacity = capacity;
    return 0;
}

int
callbacks_add(callbacks_t *all, uint32_t number, PyObject *future, PyObject *callback)
{
    call_t *last = all->used ? &all->calls[all->used - 1] : NULL;
    int is_next = last != NULL && last->callback == callback && last->to == number;
    if ((future != NULL && reserve_futures(all, number + 1) < 0) ||
        (!is_next && grow((void **)&all->calls, all->used, &all->capacity, sizeof(call_t)) < 0)) {
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

/* Remove and return the future that is kept for a record, or NULL. */
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
callbacks_move(builder_t *builder, const child_t *children)
{
    callbacks_t *all = &builder->callbacks;
    for (uint32_t index = 0; index < all->used; index++) {
        const call_t *call = &all->calls[index];
        for (uint32_t number = call->from; number < call->to; number++) {
            const child_t *child = &children[number];
            PyObject *future = take_kept(all, number);
            int failed = callbacks_add(&child->builder->callbacks, child->number, future, call->callback) < 0;
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
builder_report(builder_t *builder, PyObject *args)
{
    unsigned int number;
    PyObject *future, *callback;
    if (!PyArg_ParseTuple(args, "IOO", &number, &future, &callback)) {
        return NULL;
    }
    const callbacks_t *all = &builder->callbacks;
    if (number >= builder->count || builder->children != NULL || builder_part(builder, number) != NULL ||
        (all->used && all->calls[all->used - 1].to > number)) {
        Py_RETURN_FALSE;
    }
    return callbacks_add(&builder->callbacks, number, future, callback) < 0 ? NULL : Py_NewRef(Py_True);
}

/* ---- callbacks taken from a builder ------------------------------------------------------------------------------ */

static PyTypeObject *delivery_type; /* the same in every interpreter that imports the module */

delivery_t *
delivery_new(builder_t *builder)
{
    delivery_t *delivery = (delivery_t *)((allocfunc)PyType_GetSlot(delivery_type, Py_tp_alloc))(delivery_type, 0);
    if (delivery != NULL) {
        Py_INCREF(OBJECT(builder));
        delivery->builder = builder;
    }
    return delivery;
}

int
delivery_reserve(delivery_t *delivery, uint32_t start, uint32_t end)
{
    const callbacks_t *of_run = &delivery->builder->callbacks;
    callbacks_t *all = &delivery->all;
    if (start == 0 && end == delivery->builder->count) {
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

/* Take the callbacks of a part of the builder; their ranges stay there until all records are resolved. */
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
delivery_take(delivery_t *delivery, uint32_t start, uint32_t end)
{
    callbacks_t *all = &delivery->all;
    builder_t *builder = delivery->builder;
    if (start == 0 && end == builder->count) {
        *all = builder->callbacks;
        builder->callbacks = (callbacks_t){0};
    }
    else {
        take_part(&builder->callbacks, all, start, end);
        if (builder->resolved == builder->count) {
            callbacks_clear(&builder->callbacks);
        }
    }
    return all->used > 0;
}

/* Return a new reference to the kept future of a record, or to a new equal one. */
static PyObject *
take_future(builder_t *builder, callbacks_t *all, uint32_t number)
{
    PyObject *kept = take_kept(all, number);
    return kept != NULL ? kept : OBJECT(future_new(builder->future_type, builder, number));
}

/* ---- DeliveryCallbacks ------------------------------------------------------------------------------------------- */

static PyObject *
delivery_list(delivery_t *self, PyObject *Py_UNUSED(none))
{
    callbacks_t *all = &self->all;
    PyObject *list = PyList_New(0);
    for (uint32_t index = 0; list != NULL && index < all->used; index++) {
        for (uint32_t number = all->calls[index].from; list != NULL && number < all->calls[index].to; number++) {
            PyObject *kept = number - all->first < all->futures_used ? all->futures[number - all->first] : NULL;
            PyObject *future =
                kept != NULL ? Py_NewRef(kept) : OBJECT(future_new(self->builder->future_type, self->builder, number));
            PyObject *item = future == NULL ? NULL : Py_BuildValue("(INO)", number, future, all->calls[index].callback);
            if (item == NULL || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    return list;
}

/* Clear the current exception and return it with its traceback. */
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
call_back(PyObject *callback, PyObject *future, PyObject *on_error)
{
    PyObject *result = PyObject_CallFunctionObjArgs(callback, future, NULL);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *error = caught();
        result = error == NULL ? NULL : PyObject_CallFunctionObjArgs(on_error, error, future, NULL);
        Py_XDECREF(error);
    }
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *
delivery_run(delivery_t *self, PyObject *on_error)
{
    callbacks_t all = self->all;
    self->all = (callbacks_t){0}; /* each is called once, even after an error */
    int failed = 0;
    for (uint32_t index = 0; !failed && index < all.used; index++) {
        const call_t *call = &all.calls[index];
        for (uint32_t number = call->from; !failed && number < call->to; number++) {
            PyObject *future = take_future(self->builder, &all, number);
            failed = future == NULL || call_back(call->callback, future, on_error) < 0;
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
delivery_dealloc(delivery_t *self)
{
    PyTypeObject *type = Py_TYPE(OBJECT(self));
    callbacks_clear(&self->all);
    Py_XDECREF(OBJECT(self->builder));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef delivery_methods[] = {
    {"all", (PyCFunction)(void (*)(void))delivery_list, METH_NOARGS, "(number, future, callback) of each"},
    {"run", (PyCFunction)(void (*)(void))delivery_run, METH_O, "run(on_error): call them all"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot delivery_slots[] = {
    {Py_tp_dealloc, delivery_dealloc},
    {Py_tp_methods, delivery_methods},
    {0, NULL},
};

static PyType_Spec delivery_spec = {
    "kwire.wire._speedups.DeliveryCallbacks",
    sizeof(delivery_t),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    delivery_slots,
};

int
add_delivery(PyObject *module)
{
    delivery_type = (PyTypeObject *)PyType_FromSpec(&delivery_spec);
    return delivery_type == NULL ? -1 : PyModule_AddObjectRef(module, "DeliveryCallbacks", (PyObject *)delivery_type);
}
