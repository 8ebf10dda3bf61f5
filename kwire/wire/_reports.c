/* The callbacks that came with records of a run, in C: see `_run.py`, its specification.
 *
 * There may be one for every record, and then it is mostly the same for all: so calls are kept by stretches of records,
 * and a place only where somebody has it besides. For the others a place is made when it is their turn, which nobody can
 * tell from the one that was thrown away; and as long as no callback keeps it, it is the same one for all.
 */
#include "_speedups.h"

#include "_run.h"

#define FIRST_PLACES 64

/* ---- of a run ---------------------------------------------------------------------------------------------------- */

static int
reserve_places(callbacks_t *all, uint32_t count)
{
    if (count <= all->places_room) {
        return 0;
    }
    uint32_t room = all->places_room ? all->places_room * 2 : FIRST_PLACES;
    room = room < count ? count : room;
    uintptr_t *places = PyMem_Realloc(all->places, (size_t)room * sizeof(uintptr_t));
    if (places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    all->places = places;
    all->places_room = room;
    return 0;
}

int
callbacks_add(callbacks_t *all, uint32_t number, uintptr_t place, PyObject *callback)
{
    call_t *last = all->used ? &all->calls[all->used - 1] : NULL;
    int is_next = last != NULL && last->callback == callback && last->to == number;
    if ((number >= all->places_room && reserve_places(all, number + 1) < 0) ||
        (!is_next && grow((void **)&all->calls, all->used, &all->room, sizeof(call_t)) < 0)) {
        return -1;
    }
    while (all->places_used < number) {
        all->places[all->places_used++] = 0;
    }
    all->places[all->places_used++] = place;
    if (is_next) {
        last->to++;
    }
    else {
        Py_INCREF(callback);
        all->calls[all->used++] = (call_t){number, number + 1, callback};
    }
    return 0;
}

void
callbacks_clear(callbacks_t *callbacks)
{
    callbacks_t all = *callbacks;
    *callbacks = (callbacks_t){0};
    for (uint32_t index = 0; index < all.places_used; index++) {
        if (all.places[index] & KEPT) {
            Py_DECREF((PyObject *)(all.places[index] - KEPT));
        }
    }
    for (uint32_t index = 0; index < all.used; index++) {
        Py_XDECREF(all.calls[index].callback);
    }
    PyMem_Free(all.places);
    PyMem_Free(all.calls);
}

int
callbacks_move(run_t *run, const child_t *children)
{
    callbacks_t *all = &run->callbacks;
    for (uint32_t index = 0; index < all->used; index++) {
        const call_t *call = &all->calls[index];
        for (uint32_t number = call->from; number < call->to; number++) {
            const child_t *child = &children[number];
            if (callbacks_add(&child->run->callbacks, child->number, all->places[number], call->callback) < 0) {
                return -1;
            }
            all->places[number] = 0;
        }
    }
    return 0;
}

/* Whether a place is the same when it is made again, and finds its note when it ends. */
static int
is_remade(run_t *run, uint32_t number, PyObject *place)
{
    if (run->place_type == NULL || !Py_IS_TYPE(place, run->place_type) || ((place_t *)place)->run == NULL) {
        return 0;
    }
    uint32_t there = ((place_t *)place)->number;
    return followed(((place_t *)place)->run, &there) == run && there == number;
}

/* (number, place, callback) -> bool */
PyObject *
run_report(run_t *run, PyObject *args)
{
    unsigned int number;
    PyObject *place, *callback;
    if (!PyArg_ParseTuple(args, "IOO", &number, &place, &callback)) {
        return NULL;
    }
    const callbacks_t *all = &run->callbacks;
    if (number >= run->count || run->children != NULL || run_part(run, number) != NULL ||
        (all->used && all->calls[all->used - 1].to > number)) {
        Py_RETURN_FALSE;
    }
    uintptr_t noted = (uintptr_t)place | (is_remade(run, number, place) ? 0 : KEPT);
    if (callbacks_add(&run->callbacks, number, noted, callback) < 0) {
        return NULL;
    }
    if (noted & KEPT) {
        Py_INCREF(place);
    }
    Py_RETURN_TRUE;
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
    all->places = PyMem_Calloc((size_t)(end - start) + 1, sizeof(uintptr_t));
    if (all->calls == NULL || all->places == NULL) {
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
            into->places[number - start] = from->places[number];
            from->places[number] = 0;
        }
        into->places_used = call.to - start;
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
    for (uint32_t index = 0; index < all->places_used; index++) {
        uintptr_t place = all->places[index];
        if (place != 0 && !(place & KEPT)) {
            int is_there = Py_REFCNT((PyObject *)place) > 0; /* else it is about to end */
            all->places[index] = is_there ? place | KEPT : 0;
            if (is_there) {
                Py_INCREF((PyObject *)place);
            }
        }
    }
    return all->used > 0;
}

/* A reference to the place of a record. */
static PyObject *
take_place(run_t *run, callbacks_t *all, uint32_t number)
{
    uintptr_t *noted = &all->places[number - all->first];
    PyObject *place = *noted ? (PyObject *)(*noted - KEPT) : OBJECT(place_again(run->place_type, run, number));
    *noted = 0;
    return place;
}

/* ---- DeliveryCallbacks ----------------------------------------------------------------------------------------------------- */

static PyObject *
reports_list(reports_t *self, PyObject *Py_UNUSED(none))
{
    callbacks_t *all = &self->all;
    PyObject *list = PyList_New(0);
    for (uint32_t index = 0; list != NULL && index < all->used; index++) {
        for (uint32_t number = all->calls[index].from; list != NULL && number < all->calls[index].to; number++) {
            PyObject *place = take_place(self->run, all, number);
            if (place != NULL) {
                all->places[number - all->first] = (uintptr_t)place | KEPT;
            }
            PyObject *item = place == NULL ? NULL : Py_BuildValue("(IOO)", number, place, all->calls[index].callback);
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

/* Sets `*args` to the arguments for a record. The last ones are used again, if nobody has kept them. */
static int
address(PyObject **args, run_t *run, callbacks_t *all, uint32_t number)
{
    int is_ours = *args != NULL && Py_REFCNT(*args) == 1;
    if (is_ours && all->places[number - all->first] == 0) {
        place_t *last = (place_t *)PyTuple_GetItem(*args, 0);
        if (Py_REFCNT(OBJECT(last)) == 1 && Py_IS_TYPE(OBJECT(last), run->place_type) && last->run == run) {
            last->number = number;
            return 0;
        }
    }
    PyObject *place = take_place(run, all, number);
    if (place == NULL) {
        return -1;
    }
    if (is_ours) {
        return PyTuple_SetItem(*args, 0, place);
    }
    Py_XDECREF(*args);
    *args = PyTuple_Pack(1, place);
    Py_DECREF(place);
    return *args == NULL ? -1 : 0;
}

static int
call(PyObject *callback, PyObject *args, PyObject *on_error)
{
    PyObject *answer = PyObject_Call(callback, args, NULL);
    if (answer == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *error = caught();
        answer = error == NULL ? NULL : PyObject_CallFunctionObjArgs(on_error, error, PyTuple_GetItem(args, 0), NULL);
        Py_XDECREF(error);
    }
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static PyObject *
reports_tell(reports_t *self, PyObject *on_error)
{
    callbacks_t all = self->all;
    self->all = (callbacks_t){0}; /* told once, whatever happens here */
    PyObject *args = NULL;
    int failed = 0;
    for (uint32_t index = 0; !failed && index < all.used; index++) {
        const call_t *stretch = &all.calls[index];
        for (uint32_t number = stretch->from; !failed && number < stretch->to; number++) {
            failed = address(&args, self->run, &all, number) < 0 || call(stretch->callback, args, on_error) < 0;
        }
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(args);
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
