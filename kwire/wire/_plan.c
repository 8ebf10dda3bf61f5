/* Shapes from plans, with the places of their slots. See _plan.h. */
#include "_speedups.h"

#include "_plan.h"

/* NULL or 0 with an exception set. */

static void
free_step(step *of)
{
    if (of->element != NULL) {
        free_step(of->element);
        PyMem_Free(of->element);
    }
    free_shape(of->inner);
}

static void
free_fields(field *fields, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; fields != NULL && index < count; index++) {
        free_step(&fields[index].from);
    }
    PyMem_Free(fields);
}

void
free_shape(shape *of)
{
    if (of != NULL) {
        free_fields(of->fields, of->field_count);
        free_fields(of->tagged, of->tagged_count);
        PyMem_Free(of);
    }
}

static void *
zeros(size_t count, size_t size)
{
    void *made = PyMem_Calloc(count ? count : 1, size);
    if (made == NULL) {
        PyErr_NoMemory();
    }
    return made;
}

/* Where the slot is in the instances of a class, `probe` being one of them. */
static int
find_slot(PyObject *probe, Py_ssize_t size, PyObject *name, Py_ssize_t *found)
{
    PyObject *mark = PyList_New(0);
    *found = 0;
    if (mark == NULL || PyObject_SetAttr(probe, name, mark) < 0) {
        Py_XDECREF(mark);
        return 0;
    }
    Py_ssize_t places = 0, last = size - (Py_ssize_t)sizeof mark;
    for (Py_ssize_t at = sizeof(PyObject); at <= last; at += sizeof mark) {
        if (*slot(probe, at) == mark) {
            *found = at;
            places++;
        }
    }
    Py_DECREF(mark);
    if (PyObject_DelAttr(probe, name) < 0) {
        return 0;
    }
    if (places != 1 || *slot(probe, *found) != NULL) {
        PyErr_SetString(PyExc_ValueError, "a slot that is not seen in the instance");
        return 0;
    }
    return 1;
}

static int
make_step(PyObject *plan, step *made)
{
    if (!PyTuple_Check(plan)) {
        PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(plan, "CpOn", &made->kind, &made->is_nullable, &made->detail, &made->number)) {
        return 0;
    }
    if (made->kind <= 0 || made->kind > 127 || strchr("bhiqHId?usyr[{=e", made->kind) == NULL) {
        PyErr_SetString(PyExc_ValueError, "a step of an unknown kind");
        return 0;
    }
    if (made->kind == 'u') {
        PyObject *kept, *class, *is_safe;
        if (!PyTuple_Check(made->detail)) {
            PyErr_SetString(PyExc_TypeError, "what is kept of UUIDs, and what they are, is a tuple");
            return 0;
        }
        return PyArg_ParseTuple(made->detail, "O!O!O", &PyDict_Type, &kept, &PyType_Type, &class, &is_safe);
    }
    if (made->kind == '{') {
        return (made->inner = make_shape(made->detail)) != NULL;
    }
    if (made->kind == '[') {
        if (made->number < 1) {
            PyErr_SetString(PyExc_ValueError, "a list of elements without size");
            return 0;
        }
        return (made->element = zeros(1, sizeof(step))) != NULL && make_step(made->detail, made->element);
    }
    return 1;
}

/* One of the fields, or of the tagged fields. */
static int
make_field(PyObject *plan, int is_tagged, PyObject *probe, Py_ssize_t size, field *made)
{
    PyObject *name, *from;
    unsigned long tag = 0;
    if (!PyTuple_Check(plan)) {
        PyErr_SetString(PyExc_TypeError, "a field is a tuple");
        return 0;
    }
    if (!(is_tagged ? PyArg_ParseTuple(plan, "kUO", &tag, &name, &from) : PyArg_ParseTuple(plan, "UO", &name, &from))) {
        return 0;
    }
    made->tag = (uint32_t)tag;
    return find_slot(probe, size, name, &made->offset) && make_step(from, &made->from);
}

static int
fill_shape(shape *made, PyObject *fields, PyObject *tagged, PyObject *unknown)
{
    PyObject *basic = PyObject_GetAttrString((PyObject *)made->class, "__basicsize__");
    Py_ssize_t size = basic ? PyLong_AsSsize_t(basic) : -1;
    Py_XDECREF(basic);
    PyObject *probe = size < 0 ? NULL : PyType_GenericAlloc(made->class, 0);
    if (probe == NULL) {
        return 0;
    }
    int is_made = find_slot(probe, size, unknown, &made->unknown);
    for (Py_ssize_t index = 0; is_made && index < made->field_count; index++) {
        is_made = make_field(PyTuple_GetItem(fields, index), 0, probe, size, &made->fields[index]);
    }
    for (Py_ssize_t index = 0; is_made && index < made->tagged_count; index++) {
        is_made = make_field(PyTuple_GetItem(tagged, index), 1, probe, size, &made->tagged[index]);
    }
    Py_DECREF(probe);
    return is_made;
}

shape *
make_shape(PyObject *plan)
{
    PyObject *class, *fields, *tagged, *unknown;
    if (!PyTuple_Check(plan)) {
        PyErr_SetString(PyExc_TypeError, "a shape is a tuple");
        return NULL;
    }
    if (!PyArg_ParseTuple(plan, "O!O!OU", &PyType_Type, &class, &PyTuple_Type, &fields, &tagged, &unknown)) {
        return NULL;
    }
    if (tagged != Py_None && (!PyTuple_Check(tagged) || PyTuple_Size(tagged) > TAGGED_MAX)) {
        PyErr_SetString(PyExc_ValueError, "tagged is a tuple of a few fields, or None");
        return NULL;
    }
    shape *made = zeros(1, sizeof(shape));
    if (made == NULL) {
        return NULL;
    }
    made->class = (PyTypeObject *)class;
    made->field_count = PyTuple_Size(fields);
    made->tagged_count = tagged == Py_None ? -1 : PyTuple_Size(tagged);
    if ((made->fields = zeros((size_t)made->field_count, sizeof(field))) == NULL ||
        (made->tagged = zeros(tagged == Py_None ? 0 : (size_t)made->tagged_count, sizeof(field))) == NULL ||
        !fill_shape(made, fields, tagged, unknown)) {
        free_shape(made);
        return NULL;
    }
    return made;
}
