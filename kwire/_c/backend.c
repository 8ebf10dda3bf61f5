/* Messages under a lease: `DeliveryFields` and `new_deliveries` of kwire/queue/backend.py, which say what they are. */
#include "module.h"
#include <stddef.h>
#include <structmember.h>

/* No garbage collector header: nothing that a delivery refers to refers to it. */
typedef struct {
    PyObject_HEAD PyObject *record, *lease, *envelope, *handed_out_at; /* NULL is None */
    char is_settled, is_let_go;
} delivery;

static void
free_delivery(PyObject *object)
{
    delivery *self = (delivery *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->record);
    Py_XDECREF(self->lease);
    Py_XDECREF(self->envelope);
    Py_XDECREF(self->handed_out_at);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define MEMBER(name, type, field) {name, type, offsetof(delivery, field), 0, NULL}

static PyMemberDef members[] = {
    MEMBER("record", T_OBJECT_EX, record),
    MEMBER("lease", T_OBJECT_EX, lease),
    MEMBER("_envelope", T_OBJECT, envelope),
    MEMBER("handed_out_at", T_OBJECT, handed_out_at),
    MEMBER("is_settled", T_BOOL, is_settled),
    MEMBER("is_let_go", T_BOOL, is_let_go),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot fields_slots[] = {
    {Py_tp_members, members},
    {Py_tp_dealloc, free_delivery},
    {Py_tp_doc, "The fields of a message under a lease."},
    {0, NULL},
};

static PyType_Spec fields_spec = {
    "kwire.wire._speedups.DeliveryFields", sizeof(delivery), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fields_slots,
};

static PyObject *
delivery_class(PyObject *module, PyObject *full_name)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, free_delivery}, {0, NULL}};
    return derived_class(module, "DeliveryFields", full_name, sizeof(delivery), slots);
}

static PyObject *
new_deliveries(PyObject *module, PyObject *args)
{
    PyObject *kind, *records, *lease;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyType_Type, &kind, &PyList_Type, &records, &lease)) {
        return NULL;
    }
    PyObject *fields = PyObject_GetAttrString(module, "DeliveryFields");
    int is_kind = fields == NULL ? -1 : PyType_IsSubtype((PyTypeObject *)kind, (PyTypeObject *)fields);
    Py_XDECREF(fields);
    if (is_kind != 1) {
        if (!is_kind) {
            PyErr_SetString(PyExc_TypeError, "kind is a class derived from DeliveryFields");
        }
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)kind, Py_tp_alloc);
    PyObject *made = PyList_New(0);
    for (Py_ssize_t index = 0; made != NULL && index < PyList_Size(records); index++) {
        delivery *one = (delivery *)allocate((PyTypeObject *)kind, 0);
        if (one != NULL) {
            one->record = Py_NewRef(PyList_GetItem(records, index));
            one->lease = Py_NewRef(lease);
        }
        if (one == NULL || PyList_Append(made, (PyObject *)one) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF((PyObject *)one);
    }
    return made;
}

static PyMethodDef functions[] = {
    {"delivery_class", delivery_class, METH_O, "delivery_class(full_name, /) -> type"},
    {"new_deliveries", new_deliveries, METH_VARARGS, "new_deliveries(kind, records, lease, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_backend(PyObject *module)
{
    PyObject *fields = PyType_FromSpec(&fields_spec);
    int outcome = fields == NULL ? -1 : PyModule_AddObjectRef(module, "DeliveryFields", fields);
    Py_XDECREF(fields);
    return outcome < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
