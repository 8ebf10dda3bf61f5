/* What a consumer does for every record, in C: the iteration over cursors, room for frames, and all of it in the module.
 *
 * A batch is looked through in _look.c, the way through it is in _cursor.c, records are in _consumed.c, columns are in
 * _columns.c, and their memory is in _slab.c.
 */
#include "_consume.h"

#include "_memory.h"

/* ---- iteration ------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *reading; /* the cursor, or NULL */
    int is_done;       /* it needs no memory for records any more */
} stream;

static PyObject *
new_stream(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords))
{
    PyObject *made = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL) {
        memory_enter(MEMORY_OF_RECORDS);
    }
    return made;
}

static PyObject *
end_stream(PyObject *object, PyObject *Py_UNUSED(nothing))
{
    stream *self = (stream *)object;
    if (!self->is_done) {
        self->is_done = 1;
        memory_leave(MEMORY_OF_RECORDS);
    }
    Py_RETURN_NONE;
}

static PyObject *
stream_next(PyObject *object)
{
    stream *self = (stream *)object;
    for (;;) {
        if (self->reading != NULL) {
            PyObject *from = Py_NewRef(self->reading); /* it may be taken away meanwhile */
            PyObject *found = PyIter_Next(from);
            int is_same = from == self->reading;
            Py_DECREF(from);
            if (found != NULL || PyErr_Occurred()) {
                return found;
            }
            if (!is_same) {
                continue;
            }
            Py_CLEAR(self->reading);
        }
        PyObject *next = PyObject_CallMethod(object, "_next_cursor", NULL);
        if (next == NULL) {
            return NULL;
        }
        PyObject *old = self->reading;
        self->reading = next;
        Py_XDECREF(old);
    }
}

static PyObject *
stream_reading(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *reading = ((stream *)object)->reading;
    return Py_NewRef(reading == NULL ? Py_None : reading);
}

static int
stream_read(PyObject *object, PyObject *cursor_or_none, void *Py_UNUSED(closure))
{
    stream *self = (stream *)object;
    PyObject *old = self->reading;
    self->reading = cursor_or_none == NULL || cursor_or_none == Py_None ? NULL : Py_NewRef(cursor_or_none);
    Py_XDECREF(old);
    return 0;
}

static void
free_stream(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((stream *)object)->reading);
    Py_DECREF(end_stream(object, NULL));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef stream_methods[] = {
    {"_end", end_stream, METH_NOARGS, "_end(): nothing more will be read"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_attributes[] = {
    {"_reading", stream_reading, stream_read, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_new, new_stream},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_attributes},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, stream_next},
    {Py_tp_dealloc, free_stream},
    {Py_tp_doc, "Iterates over cursors that `_next_cursor` answers."},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    "kwire.wire._speedups.RecordIterator", sizeof(stream), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, stream_slots,
};

/* ---- frames ---------------------------------------------------------------------------------------------------- */

/* (size) -> (bytes that nobody has written yet, a view to write them through). The view must not outlive the bytes, and
 * nobody may look at them before it is gone: see `_pure.blank`. */
static PyObject *
blank(PyObject *Py_UNUSED(module), PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    PyObject *view = whole == NULL ? NULL : PyMemoryView_FromMemory(PyBytes_AsString(whole), size, PyBUF_WRITE);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, whole, view);
    Py_XDECREF(whole);
    Py_XDECREF(view);
    return pair;
}

/* ---- the module ------------------------------------------------------------------------------------------------ */

static PyMethodDef functions[] = {
    {"open_cursor", (PyCFunction)(void (*)(void))open_cursor, METH_FASTCALL,
     "(kind, topic, partition, timestamp_type, position, next_offset, data, pos, count, base_offset, base_timestamp, "
     "last_delta, timestamp, /)"},
    {"open_batches", (PyCFunction)(void (*)(void))open_batches, METH_FASTCALL,
     "(kind, topic, partition, position, data, pos, check_crc, enough, /)"},
    {"record_class", record_class, METH_O, "record_class(full_name, /) -> type"},
    {"alloc", blank, METH_O, "blank(size, /) -> (bytes, memoryview)"},
    {"alloc_pooled", room, METH_O, "room(size, /) -> (bytes or Slab, memoryview)"},
    {"columns", (PyCFunction)(void (*)(void))columns, METH_FASTCALL, "(pieces, has_headers, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_consume(PyObject *module)
{
    static const struct {
        const char *name;
        PyType_Spec *spec;
    } TYPES[] = {{"RecordFields", &record_spec},
                 {"RecordReader", &cursor_spec},
                 {"RecordSlice", &piece_spec},
                 {"RecordIterator", &stream_spec},
                 {"Slab", &slab_spec}};
    for (size_t index = 0; index < sizeof(TYPES) / sizeof(*TYPES); index++) {
        PyObject *type = PyType_FromSpec(TYPES[index].spec);
        int outcome = type == NULL ? -1 : PyModule_AddObjectRef(module, TYPES[index].name, type);
        Py_XDECREF(type);
        if (outcome < 0) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, functions);
}
