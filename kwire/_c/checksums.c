/* CRC-32C and murmur2: see kwire/wire/checksums.py. */
#include "module.h"
#include "crc32c.h"
#include "record.h"

/* ---- CRC-32C ----------------------------------------------------------------------------------------------------- */

uint32_t
crc32c_of(bytes_t at, size_t size)
{
    return ~crc_fastest(~(uint32_t)0, at, size);
}

uint32_t
crc32c_state(uint32_t state, bytes_t at, size_t size)
{
    return crc_fastest(state, at, size);
}

uint32_t
crc32c_zeros(uint32_t state, size_t count)
{
    return crc_of_zeros(state, count);
}

static PyObject *
crc32c_over(PyObject *const *args, Py_ssize_t nargs, uint32_t (*over)(uint32_t, bytes_t, size_t))
{
    if (nargs < 1 || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c takes data and, optionally, the CRC of what stands before it");
        return NULL;
    }
    unsigned long before = 0;
    if (nargs == 2) {
        before = PyLong_AsUnsignedLongMask(args[1]);
        if (before == (unsigned long)-1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint32_t crc = ~(uint32_t)before;
    if (view.len >= CRC_WITHOUT_LOCK_MIN) {
        Py_BEGIN_ALLOW_THREADS
        crc = over(crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    else {
        crc = over(crc, view.buf, (size_t)view.len);
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(~crc & 0xFFFFFFFFu);
}

static PyObject *
crc32c(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    return crc32c_over(args, nargs, crc_fastest);
}

static PyObject *
crc32c_by_table(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    return crc32c_over(args, nargs, crc_by_table);
}

/* ---- murmur2 ----------------------------------------------------------------------------------------------------- */

static PyObject *
murmur2(PyObject *Py_UNUSED(module), PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint32_t hash = murmur2_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromLong((long)(int32_t)hash);
}

static PyMethodDef functions[] = {
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, "crc32c(data, value=0, /) -> int"},
    {"crc32c_by_table", (PyCFunction)(void (*)(void))crc32c_by_table, METH_FASTCALL, "crc32c without the instruction"},
    {"murmur2", murmur2, METH_O, "murmur2(data, /) -> int"},
    {NULL, NULL, 0, NULL},
};

int
add_checksums(PyObject *module)
{
    prepare_crc();
    return PyModule_AddFunctions(module, functions);
}
