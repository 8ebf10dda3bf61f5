/* Encoding and decoding of the parts of a v2 record (varints, nullable bytes, headers), and murmur2 for its key.
 *
 * Include module.h before.
 */

#ifndef KWIRE_RECORD_H
#define KWIRE_RECORD_H

static inline uint32_t
murmur2_of(bytes_t at, size_t size)
{
    const uint32_t m = 0x5BD1E995u;
    uint32_t h = 0x9747B28Cu ^ (uint32_t)size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t k = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (size) {
        for (size_t i = 0; i < size; i++) {
            h ^= (uint32_t)at[i] << 8 * i;
        }
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

static inline uint64_t
zigzag(int64_t n)
{
    return (uint64_t)n << 1 ^ (uint64_t)(n >> 63);
}

static inline int64_t
undone(uint64_t n)
{
    return (int64_t)(n >> 1) ^ -(int64_t)(n & 1);
}

static inline size_t
varint_size(int64_t n)
{
    uint64_t left = zigzag(n);
    size_t size = 1;
    for (; left > 0x7F; left >>= 7) {
        size++;
    }
    return size;
}

static inline unsigned char *
put_varint(unsigned char *at, int64_t n)
{
    uint64_t left = zigzag(n);
    for (; left > 0x7F; left >>= 7) {
        *at++ = (unsigned char)(left | 0x80);
    }
    *at++ = (unsigned char)left;
    return at;
}

/* Return the end of the varint at `at`, or NULL if it reaches `end` or has more than 64 bits. */
static inline bytes_t
get_varint(bytes_t at, bytes_t end, int64_t *n)
{
    if (at < end && *at < 0x80) { /* most have one byte */
        *n = undone(*at);
        return at + 1;
    }
    uint64_t found = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *n = undone(found);
            return at;
        }
    }
    return NULL;
}

/* Functions for objects. They return 0, without an exception, for objects that Python must handle. */

typedef struct {
    const char *at; /* NULL for null */
    int64_t size;   /* -1 for null */
} span;

static inline int
is_nullable_bytes(PyObject *object, span *found)
{
    if (object == Py_None) {
        *found = (span){NULL, -1};
        return 1;
    }
    if (!PyBytes_CheckExact(object)) {
        return 0;
    }
    char *at;
    Py_ssize_t size;
    PyBytes_AsStringAndSize(object, &at, &size);
    *found = (span){at, size};
    return size <= INT32_MAX;
}

static inline int
is_text(PyObject *object, span *found)
{
    if (!PyUnicode_CheckExact(object)) {
        return 0;
    }
    Py_ssize_t size;
    found->at = PyUnicode_AsUTF8AndSize(object, &size); /* cached by the object, which outlives this use */
    found->size = size;
    if (found->at == NULL) {
        PyErr_Clear(); /* lone surrogates */
        return 0;
    }
    return size <= INT32_MAX;
}

static inline size_t
span_size(span part)
{
    return varint_size(part.size) + (part.size > 0 ? (size_t)part.size : 0);
}

static inline unsigned char *
put_span(unsigned char *at, span part)
{
    at = put_varint(at, part.size);
    if (part.size > 0) {
        memcpy(at, part.at, (size_t)part.size);
        at += part.size;
    }
    return at;
}

static inline int
is_header(PyObject *headers, Py_ssize_t index, span *name, span *value)
{
    PyObject *header = PyTuple_GetItem(headers, index);
    return PyTuple_CheckExact(header) && PyTuple_Size(header) == 2 && is_text(PyTuple_GetItem(header, 0), name) &&
           is_nullable_bytes(PyTuple_GetItem(header, 1), value);
}

/* The functions below return 1 when done, 0 if Python must do it, and -1 with an exception. */

static inline int
get_nullable_bytes(bytes_t *at, bytes_t end, PyObject **found)
{
    int64_t size;
    *at = get_varint(*at, end, &size);
    if (*at == NULL || size < -1 || size > end - *at) {
        return 0;
    }
    if (size < 0) {
        *found = Py_None;
        Py_INCREF(Py_None);
        return 1;
    }
    *found = PyBytes_FromStringAndSize((const char *)*at, (Py_ssize_t)size);
    *at += size;
    return *found == NULL ? -1 : 1;
}

/* Set `*found` to a new tuple of the header. */
static inline int
get_header(bytes_t *at, bytes_t end, PyObject **found)
{
    int64_t size;
    *at = get_varint(*at, end, &size);
    if (*at == NULL || size < 0 || size > end - *at) {
        return 0;
    }
    PyObject *name = PyUnicode_DecodeUTF8((const char *)*at, (Py_ssize_t)size, "surrogateescape");
    if (name == NULL) {
        return -1;
    }
    *at += size;
    PyObject *value;
    int outcome = get_nullable_bytes(at, end, &value);
    if (outcome == 1) {
        *found = PyTuple_Pack(2, name, value);
        Py_DECREF(value);
        outcome = *found == NULL ? -1 : 1;
    }
    Py_DECREF(name);
    return outcome;
}

static inline int
get_headers(bytes_t *at, bytes_t end, PyObject **found)
{
    int64_t count;
    *at = get_varint(*at, end, &count);
    if (*at == NULL || count < 0 || count > (end - *at) / 2) {
        return 0;
    }
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    if (headers == NULL) {
        return -1;
    }
    for (int64_t index = 0; index < count; index++) {
        PyObject *header;
        int outcome = get_header(at, end, &header);
        if (outcome != 1) {
            Py_DECREF(headers);
            return outcome;
        }
        PyTuple_SetItem(headers, (Py_ssize_t)index, header);
    }
    *found = headers;
    return 1;
}

/* Return whether the object is an int of at most 64 bits. */
static inline int
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

#endif
