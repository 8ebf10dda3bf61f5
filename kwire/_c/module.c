/* The extension module kwire.wire._speedups: C counterparts of the hot loops, each file named like its Python twin.
 *
 * The Python files are the specification. A function returns None for unusual input (wrong data, types other than
 * bytes, int, str and tuple, numbers beyond 64 bits); Python then handles it, so that there is one set of errors.
 *
 * The limited API of Python 3.11 allows one build for all versions. No Python code runs between checking an object and
 * using it: types are exact, and the GIL is released only while large exported buffers are read or written.
 */
#include "module.h"

PyObject *
derived_class(PyObject *module, const char *base, PyObject *full_name, size_t size, PyType_Slot *slots)
{
    PyType_Spec spec = {
        PyUnicode_AsUTF8AndSize(full_name, NULL), (int)size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots,
    };
    if (spec.name == NULL) {
        return NULL;
    }
    PyObject *base_type = PyObject_GetAttrString(module, base);
    PyObject *made = base_type == NULL ? NULL : PyType_FromSpecWithBases(&spec, base_type);
    Py_XDECREF(base_type);
    return made;
}

static int
execute(PyObject *module)
{
    static int (*const ADD[])(PyObject *) = {add_checksums, add_encoder,     add_decoder, add_buffers, add_reader,
                                             add_builders,  add_accumulator, add_bulk,    add_channel, add_markers,
                                             add_backend};
    for (size_t index = 0; index < sizeof(ADD) / sizeof(*ADD); index++) {
        if (ADD[index](module) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_speedups",
    "The hot loops of kwire in C; see kwire/wire/accel.py.",
    0,
    NULL,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC
PyInit__speedups(void)
{
    return PyModuleDef_Init(&definition);
}
