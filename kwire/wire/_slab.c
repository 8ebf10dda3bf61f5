/* Objects whose bytes are in memory that goes round: columns, and what records decompress to.
 *
 * A slab exports bytes, for reading only; whoever made it writes them before anybody else sees it.
 */
#include "_consume.h"

#include "_memory.h"

/* Smaller ones are bytes: the allocator keeps their memory by itself. */
#define SLAB_BYTES_MIN (64 * 1024)

typedef struct {
    PyObject_HEAD
    unsigned char *bytes;
    Py_ssize_t size;
    size_t room;
} slab;

static void
free_slab(PyObject *object)
{
    slab *self = (slab *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->bytes != NULL) {
        memory_give(self->bytes, self->room);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int
export_slab(PyObject *object, Py_buffer *view, int flags)
{
    slab *self = (slab *)object;
    return PyBuffer_FillInfo(view, object, self->bytes, self->size, 1, flags);
}

static Py_ssize_t
slab_length(PyObject *object)
{
    return ((slab *)object)->size;
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, free_slab},
    {Py_bf_getbuffer, export_slab},
    {Py_sq_length, slab_length},
    {Py_tp_doc, "Bytes in memory that is used again."},
    {0, NULL},
};

PyType_Spec slab_spec = {
    "kwire.wire._speedups.Slab", sizeof(slab), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots,
};

unsigned char *
new_room(PyTypeObject *slab_type, Py_ssize_t size, PyObject **object)
{
    if (size < SLAB_BYTES_MIN) {
        *object = PyBytes_FromStringAndSize(NULL, size);
        return *object == NULL ? NULL : (unsigned char *)PyBytes_AsString(*object);
    }
    slab *made = (slab *)((allocfunc)PyType_GetSlot(slab_type, Py_tp_alloc))(slab_type, 0);
    if (made == NULL) {
        return NULL;
    }
    /* With up to an eighth to spare, so that the next that is nearly as large can have it. */
    size_t step = SLAB_BYTES_MIN / 8;
    while (step < (size_t)size / 16) {
        step *= 2;
    }
    made->room = ((size_t)size / step + 1) * step;
    made->bytes = memory_grow(NULL, 0, 0, &made->room);
    if (made->bytes == NULL) {
        Py_DECREF((PyObject *)made);
        PyErr_NoMemory();
        return NULL;
    }
    made->size = size;
    *object = (PyObject *)made;
    return made->bytes;
}

/* (size) -> (an object that has so many bytes, a view to write them through); see `_pure.room`. */
PyObject *
room(PyObject *module, PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    PyObject *type = PyObject_GetAttrString(module, "Slab"), *whole = NULL;
    unsigned char *bytes = type == NULL ? NULL : new_room((PyTypeObject *)type, size, &whole);
    Py_XDECREF(type);
    PyObject *view = bytes == NULL ? NULL : PyMemoryView_FromMemory((char *)bytes, size, PyBUF_WRITE);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, whole, view);
    Py_XDECREF(whole);
    Py_XDECREF(view);
    return pair;
}
