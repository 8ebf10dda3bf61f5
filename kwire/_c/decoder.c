/* The records of a v2 batch as tuples: see kwire/records/decoder.py. */
#include "module.h"
#include "record.h"

typedef struct {
    int64_t base_offset, base_timestamp, last_delta;
    PyObject *timestamp; /* of all records, or NULL */
} origin;

/* Return the tuple of the record at `*at`. */
static int
get_row(bytes_t *at, bytes_t data_end, const origin *from, PyObject **found)
{
    int64_t size, after, delta, timestamp, offset;
    bytes_t pos = get_varint(*at, data_end, &size);
    if (pos == NULL || size < 1 || size > data_end - pos) {
        return 0;
    }
    bytes_t end = pos + size;
    pos = get_varint(pos + 1, end, &after);
    pos = pos == NULL ? NULL : get_varint(pos, end, &delta);
    if (pos == NULL || delta < 0 || delta > from->last_delta) {
        return 0;
    }
    if (__builtin_add_overflow(from->base_timestamp, after, &timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, &offset)) {
        return 0;
    }
    PyObject *fields[5] = {NULL, NULL, NULL, NULL, NULL};
    int outcome = get_nullable_bytes(&pos, end, &fields[2]);
    outcome = outcome == 1 ? get_nullable_bytes(&pos, end, &fields[3]) : outcome;
    outcome = outcome == 1 ? get_headers(&pos, end, &fields[4]) : outcome;
    if (outcome == 1 && pos != end) {
        outcome = 0;
    }
    if (outcome == 1) {
        fields[0] = PyLong_FromLongLong(offset);
        fields[1] = from->timestamp ? from->timestamp : PyLong_FromLongLong(timestamp);
        Py_XINCREF(from->timestamp);
        PyObject *row = fields[0] && fields[1] ? PyTuple_New(5) : NULL;
        if (row != NULL) {
            for (Py_ssize_t index = 0; index < 5; index++) {
                PyTuple_SetItem(row, index, fields[index]);
            }
            *found = row;
            *at = pos;
            return 1;
        }
        outcome = -1;
    }
    for (int index = 0; index < 5; index++) {
        Py_XDECREF(fields[index]);
    }
    return outcome;
}

#define RECORD_BYTES_MIN 7

/* (data: bytes, pos, count, base_offset, base_timestamp, last_delta, timestamp | None) -> list | None */
static PyObject *
decode_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    int64_t pos, count;
    origin from;
    if (nargs != 7 || !PyBytes_CheckExact(args[0]) || !is_int64(args[1], &pos) || !is_int64(args[2], &count) ||
        !is_int64(args[3], &from.base_offset) || !is_int64(args[4], &from.base_timestamp) ||
        !is_int64(args[5], &from.last_delta)) {
        Py_RETURN_NONE;
    }
    from.timestamp = args[6] == Py_None ? NULL : args[6];
    int64_t size = PyBytes_Size(args[0]);
    if (pos < 0 || pos > size || count < 0 || count > (size - pos) / RECORD_BYTES_MIN) {
        Py_RETURN_NONE;
    }
    bytes_t start = (bytes_t)PyBytes_AsString(args[0]);
    bytes_t at = start + pos, end = start + size;
    PyObject *rows = PyList_New((Py_ssize_t)count);
    if (rows == NULL) {
        return NULL;
    }
    for (int64_t index = 0; index < count; index++) {
        PyObject *row;
        int outcome = get_row(&at, end, &from, &row);
        if (outcome != 1) {
            Py_DECREF(rows);
            if (outcome < 0) {
                return NULL;
            }
            Py_RETURN_NONE;
        }
        PyList_SetItem(rows, (Py_ssize_t)index, row);
    }
    if (at != end) {
        Py_DECREF(rows);
        Py_RETURN_NONE;
    }
    return rows;
}

static PyMethodDef functions[] = {
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL,
     "(data, pos, count, base_offset, base_timestamp, last_delta, timestamp, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_decoder(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
