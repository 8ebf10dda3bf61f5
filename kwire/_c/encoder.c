/* The records of a v2 batch to bytes: see kwire/records/encoder.py. */
#include "module.h"
#include "record.h"

/* Functions return 0, without an exception, for what Python must handle. */

typedef struct {
    int64_t after, delta; /* timestamp delta and offset delta */
    span key, value;
    PyObject *headers;
    size_t size; /* without the size field */
} new_record;

static int
is_record(PyObject *record, int64_t base_timestamp, int64_t delta, new_record *found)
{
    int64_t timestamp;
    if (!PyTuple_CheckExact(record) || PyTuple_Size(record) != 4 || !is_int64(PyTuple_GetItem(record, 0), &timestamp) ||
        !is_nullable_bytes(PyTuple_GetItem(record, 1), &found->key) ||
        !is_nullable_bytes(PyTuple_GetItem(record, 2), &found->value)) {
        return 0;
    }
    if (timestamp > INT64_MAX / 2 || timestamp < INT64_MIN / 2) {
        return 0; /* with such a small base, the difference fits */
    }
    found->after = timestamp - base_timestamp;
    found->delta = delta;
    found->headers = PyTuple_GetItem(record, 3);
    if (!PyTuple_CheckExact(found->headers)) {
        return 0;
    }
    Py_ssize_t count = PyTuple_Size(found->headers);
    found->size = 1 + varint_size(found->after) + varint_size(delta) + span_size(found->key) + span_size(found->value) +
                  varint_size(count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        if (!is_header(found->headers, index, &name, &value)) {
            return 0;
        }
        found->size += span_size(name) + span_size(value);
    }
    return found->size <= INT32_MAX;
}

static unsigned char *
put_record(unsigned char *at, const new_record *record)
{
    at = put_varint(at, (int64_t)record->size);
    *at++ = 0; /* attributes */
    at = put_varint(at, record->after);
    at = put_varint(at, record->delta);
    at = put_span(at, record->key);
    at = put_span(at, record->value);
    Py_ssize_t count = PyTuple_Size(record->headers);
    at = put_varint(at, count);
    for (Py_ssize_t index = 0; index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        is_header(record->headers, index, &name, &value);
        at = put_span(put_span(at, name), value);
    }
    return at;
}

/* (records: list, base_timestamp) -> bytes | None */
static PyObject *
encode_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t base_timestamp;
    if (nargs != 2 || !PyList_CheckExact(args[0]) || !is_int64(args[1], &base_timestamp) ||
        base_timestamp > INT64_MAX / 2 || base_timestamp < INT64_MIN / 2) {
        Py_RETURN_NONE;
    }
    Py_ssize_t count = PyList_Size(args[0]);
    if (count > INT32_MAX) {
        Py_RETURN_NONE;
    }
    new_record *records = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(new_record));
    if (records == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *encoded = NULL;
    size_t total = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        if (!is_record(PyList_GetItem(args[0], index), base_timestamp, index, &records[index])) {
            encoded = Py_None;
            Py_INCREF(encoded);
            goto done;
        }
        total += varint_size((int64_t)records[index].size) + records[index].size;
    }
    if (total > (size_t)PY_SSIZE_T_MAX) {
        PyErr_NoMemory();
        goto done;
    }
    encoded = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (encoded != NULL) {
        unsigned char *at = (unsigned char *)PyBytes_AsString(encoded);
        for (Py_ssize_t index = 0; index < count; index++) {
            at = put_record(at, &records[index]);
        }
    }
done:
    PyMem_Free(records);
    return encoded;
}

static PyMethodDef functions[] = {
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL, "(records, base_timestamp, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_encoder(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
