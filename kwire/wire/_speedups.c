/* The hot loops of kwire.wire in C: CRC-32C, murmur2, and the records of a v2 batch to and from bytes.
 *
 * `_pure` is the specification. encode_records and decode_records answer None for whatever is out of the ordinary:
 * wrong data, other types than bytes, int, str and tuple, numbers beyond 64 bits. `accel` then lets the specification
 * answer or raise, so that there is one set of errors and of their words. What is left to C is what it is for.
 *
 * Limited API of Python 3.11, so that one build serves all versions. No Python code runs between looking at an object
 * and using it: types are exact, and the interpreter's lock is held but in crc32c over large buffers, which are
 * exported to it meanwhile.
 */
#include "_speedups.h"

#include "_crc32c.h"
#include "_record.h"

/* ---- CRC-32C --------------------------------------------------------------------------------------------------- */

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

/* ---- murmur2 --------------------------------------------------------------------------------------------------- */

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

/* ---- encoding -------------------------------------------------------------------------------------------------- */

/* Everything below answers 0 for what is to be left to the specification; no exception is set then. */

static int
is_int64(PyObject *object, int64_t *n)
{
    if (!PyLong_CheckExact(object)) {
        return 0;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    *n = value;
    return !overflow;
}

typedef struct {
    int64_t after, delta; /* timestamp and offset, from the batch's */
    span key, value;
    PyObject *headers;
    size_t size; /* but for the size itself */
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
        return 0; /* with a base as small, the difference fits */
    }
    found->after = timestamp - base_timestamp;
    found->delta = delta;
    found->headers = PyTuple_GetItem(record, 3);
    if (!PyTuple_CheckExact(found->headers)) {
        return 0;
    }
    Py_ssize_t count = PyTuple_Size(found->headers);
    found->size = 1 + varint_size(found->after) + varint_size(delta) + span_size(found->key) +
                  span_size(found->value) + varint_size(count);
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

/* ---- decoding -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t base_offset, base_timestamp, last_delta;
    PyObject *timestamp; /* of all records, or NULL */
} origin;

/* The tuple of the record at `*at`. */
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

/* ---- the module ------------------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"crc32c", (PyCFunction)(void (*)(void))crc32c, METH_FASTCALL, "crc32c(data, value=0, /) -> int"},
    {"crc32c_by_table", (PyCFunction)(void (*)(void))crc32c_by_table, METH_FASTCALL, "crc32c without the instruction"},
    {"murmur2", murmur2, METH_O, "murmur2(data, /) -> int"},
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL, "(records, base_timestamp, /)"},
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL,
     "(data, pos, count, base_offset, base_timestamp, last_delta, timestamp, /)"},
    {NULL, NULL, 0, NULL},
};

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
    prepare_crc();
    int failed = add_consume(module) < 0 || add_runs(module) < 0 || add_door(module) < 0 ||
                 add_bulk(module) < 0;
    return failed ? -1 : add_sockets(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_speedups", "The hot loops in C; see accel.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__speedups(void)
{
    return PyModuleDef_Init(&definition);
}
