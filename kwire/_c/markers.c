/* Markers of queues: `encode_starts`, `encode_ends` and `skim_marker` of kwire/queue/markers.py, which say what they do. */
#include "reader.h"

#define PREFIX "kwire-mq-"
#define ID "kwire-mq-id"
#define FIRST_AT "kwire-mq-first-at"
/* What `overhead` counts for a marker, and for each header. */
#define MARKER_BYTES 80
#define HEADER_BYTES 12
#define TOPIC_MAX 249

typedef struct {
    int64_t partition, offset;
} place;

static inline size_t
uvarint_size(uint64_t n)
{
    size_t size = 1;
    for (; n > 0x7F; n >>= 7) {
        size++;
    }
    return size;
}

static inline unsigned char *
put_uvarint(unsigned char *at, uint64_t n)
{
    for (; n > 0x7F; n >>= 7) {
        *at++ = (unsigned char)(n | 0x80);
    }
    *at++ = (unsigned char)n;
    return at;
}

static inline unsigned char *
put_bytes(unsigned char *at, const void *from, size_t size)
{
    memcpy(at, from, size);
    return at + size;
}

/* Return the size of a field of bytes with a tag of `tag_size` bytes. */
static inline size_t
field_size(size_t tag_size, size_t size)
{
    return tag_size + uvarint_size(size) + size;
}

static inline size_t
place_size(const place *at)
{
    return (at->partition ? 1 + uvarint_size((uint64_t)at->partition) : 0) +
           (at->offset ? 1 + uvarint_size((uint64_t)at->offset) : 0);
}

static unsigned char *
put_place(unsigned char *at, const place *where)
{
    *at++ = 0x1A;
    *at++ = (unsigned char)place_size(where);
    if (where->partition) {
        *at++ = 0x08;
        at = put_uvarint(at, (uint64_t)where->partition);
    }
    if (where->offset) {
        *at++ = 0x10;
        at = put_uvarint(at, (uint64_t)where->offset);
    }
    return at;
}

static unsigned char *
put_topic_id(unsigned char *at, span topic_id)
{
    if (topic_id.size) {
        at = put_bytes(at, "\x82\x01\x10", 3);
        at = put_bytes(at, topic_id.at, 16);
    }
    return at;
}

/* The size of a header's content: its name, unless it is empty, and its value, unless it is null. */
static size_t
header_size(span name, span value)
{
    return (name.size ? field_size(1, (size_t)name.size) : 0) + (value.size < 0 ? 0 : field_size(1, (size_t)value.size));
}

static unsigned char *
put_header(unsigned char *at, span name, span value)
{
    at = put_bytes(at, "\x8A\x01", 2);
    at = put_uvarint(at, header_size(name, value));
    if (name.size) {
        *at++ = 0x0A;
        at = put_uvarint(at, (uint64_t)name.size);
        at = put_bytes(at, name.at, (size_t)name.size);
    }
    if (value.size >= 0) {
        *at++ = 0x12;
        at = put_uvarint(at, (uint64_t)value.size);
        at = put_bytes(at, value.at, (size_t)value.size);
    }
    return at;
}

/* Names of attributes, and a class, fetched once a call. */
typedef struct {
    PyObject *topic, *partition, *offset, *timestamp_ms, *value, *headers;
    PyObject *lazy; /* the class of records that are made from a batch */
} names;

static void
free_names(names *of)
{
    Py_XDECREF(of->topic);
    Py_XDECREF(of->partition);
    Py_XDECREF(of->offset);
    Py_XDECREF(of->timestamp_ms);
    Py_XDECREF(of->value);
    Py_XDECREF(of->headers);
    Py_XDECREF(of->lazy);
}

static int
make_names(PyObject *module, names *of)
{
    *of = (names){
        PyUnicode_InternFromString("topic"),  PyUnicode_InternFromString("partition"),
        PyUnicode_InternFromString("offset"), PyUnicode_InternFromString("timestamp_ms"),
        PyUnicode_InternFromString("value"),  PyUnicode_InternFromString("headers"),
        PyObject_GetAttrString(module, "RecordFields"),
    };
    if (of->topic && of->partition && of->offset && of->timestamp_ms && of->value && of->headers && of->lazy) {
        return 0;
    }
    free_names(of);
    return -1;
}

/* Return 1 and set `*n`; 0 if the attribute is no int of 64 bits; -1 with an exception. */
static int
get_number(PyObject *record, PyObject *name, int64_t *n)
{
    PyObject *found = PyObject_GetAttr(record, name);
    if (found == NULL) {
        return -1;
    }
    int outcome = is_int64(found, n);
    Py_DECREF(found);
    return outcome;
}

/* Return the record's fields in its batch, from which no object needs to be made; NULL if it is another kind of object,
 * or Python has changed it. */
static const record *
as_lazy(PyObject *object, const names *of)
{
    const record *self = (const record *)object;
    int is_lazy = PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)of->lazy) && self->home != NULL;
    return is_lazy && self->assigned == NULL ? self : NULL;
}

static int
get_place(PyObject *object, const names *of, place *where)
{
    const record *lazy = as_lazy(object, of);
    if (lazy != NULL) {
        *where = (place){lazy->partition, lazy->where.offset};
        return 1;
    }
    int outcome = get_number(object, of->partition, &where->partition);
    return outcome == 1 ? get_number(object, of->offset, &where->offset) : outcome;
}

/* Write a number above 0 as text that ends at `end`; return where it begins. */
static char *
put_digits(char *end, int64_t n)
{
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return end;
}

/* ---- START ------------------------------------------------------------------------------------------------------- */

typedef struct {
    span queue, topic_id;
    int64_t after_ms, bytes_max;
} terms;

/* A position in the headers of a record: of a tuple, or, if that is NULL, in a batch. */
typedef struct {
    PyObject *tuple;
    bytes_t at;
    Py_ssize_t index, count;
} header_walk;

/* Go to the next header. Return 1; 0 after the last; -1 for one that Python must look at. */
static int
next_header(header_walk *on, span *name, span *value)
{
    if (on->index == on->count) {
        return 0;
    }
    if (on->tuple != NULL) {
        return is_header(on->tuple, on->index++, name, value) ? 1 : -1;
    }
    bytes_t start;
    int32_t size;
    on->index++;
    on->at = known_span(on->at, &start, &size);
    *name = (span){(const char *)start, size};
    on->at = known_span(on->at, &start, &size);
    *value = size < 0 ? (span){NULL, -1} : (span){(const char *)start, size};
    return 1;
}

/* Return the number of ids, 0 or 1, or -1 if the headers say more than an id. Add up what they need in a marker, and
 * what `overhead` counts. */
static int
count_ids(header_walk on, size_t *size, int64_t *counted)
{
    int ids = 0, outcome;
    span name, value;
    while ((outcome = next_header(&on, &name, &value)) != 0) {
        if (outcome < 0) {
            return -1;
        }
        if (name.size >= (int64_t)sizeof(PREFIX) - 1 && !memcmp(name.at, PREFIX, sizeof(PREFIX) - 1)) {
            if (name.size != sizeof(ID) - 1 || memcmp(name.at, ID, sizeof(ID) - 1) || value.size <= 0 ||
                ids++) {
                return -1;
            }
        }
        *size += field_size(2, header_size(name, value));
        *counted += name.size + (value.size > 0 ? value.size : 0) + HEADER_BYTES;
    }
    return ids;
}

/* Return the marker; Py_None for a record that Python must look at; NULL with an exception. */
static PyObject *
start_of(PyObject *topic, const place *where, int64_t timestamp_ms, span content, const header_walk *headers,
         const terms *given)
{
    span topic_name;
    size_t size = 0;
    int64_t counted = MARKER_BYTES + given->queue.size;
    int ids = count_ids(*headers, &size, &counted);
    if (ids < 0 || timestamp_ms <= 0 || where->partition < 0 || where->offset < 0 ||
        !is_text(topic, &topic_name) || topic_name.size > TOPIC_MAX ||
        counted + (content.size > 0 ? content.size : 0) > given->bytes_max) {
        return Py_NewRef(Py_None);
    }
    char digits[24], *digits_end = digits + sizeof(digits), *begin = put_digits(digits_end, timestamp_ms);
    span first_at = {FIRST_AT, sizeof(FIRST_AT) - 1};
    span time = {begin, digits_end - begin};
    /* A message of another program has none: record_envelope in kwire/queue/backend.py names it likewise. */
    char text[TOPIC_MAX + 48], *text_end = text + sizeof(text);
    span id_name = {ID, sizeof(ID) - 1}, id = {text_end, 0};
    if (!ids) {
        begin = put_digits(text_end, where->offset);
        *--begin = '-';
        begin = put_digits(begin, where->partition);
        *--begin = '-';
        begin -= topic_name.size;
        memcpy(begin, topic_name.at, (size_t)topic_name.size);
        id = (span){begin, text_end - begin};
    }
    size += ids ? 0 : field_size(2, header_size(id_name, id));
    size += 2 + 1 + 1 + place_size(where) + field_size(2, header_size(first_at, time)) +
            (given->topic_id.size ? 3 + 16 : 0) + (given->after_ms ? 1 + uvarint_size((uint64_t)given->after_ms) : 0) +
            (given->queue.size ? field_size(1, (size_t)given->queue.size) : 0) +
            (content.size < 0 ? 0 : field_size(1, (size_t)content.size));
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made == NULL) {
        return NULL;
    }
    unsigned char *at = put_bytes((unsigned char *)PyBytes_AsString(made), "\x08\x01", 2);
    at = put_place(at, where);
    if (given->after_ms) {
        *at++ = 0x20;
        at = put_uvarint(at, (uint64_t)given->after_ms);
    }
    if (given->queue.size) {
        *at++ = 0x2A;
        at = put_uvarint(at, (uint64_t)given->queue.size);
        at = put_bytes(at, given->queue.at, (size_t)given->queue.size);
    }
    if (content.size >= 0) {
        *at++ = 0x32;
        at = put_uvarint(at, (uint64_t)content.size);
        at = put_bytes(at, content.at, (size_t)content.size);
    }
    at = put_topic_id(at, given->topic_id);
    span name, data;
    for (header_walk on = *headers; next_header(&on, &name, &data) > 0;) {
        at = put_header(at, name, data);
    }
    at = put_header(at, first_at, time);
    if (!ids) {
        put_header(at, id_name, id);
    }
    return made;
}

static PyObject *
start_of_record(PyObject *object, const names *of, const terms *given)
{
    place where;
    int64_t timestamp_ms = 0;
    int outcome = get_place(object, of, &where);
    const record *lazy = as_lazy(object, of);
    if (lazy != NULL) {
        const layout *in = &lazy->where;
        span content = in->value_size < 0 ? (span){NULL, -1} : (span){(const char *)in->value, in->value_size};
        header_walk on = {NULL, in->headers, 0, in->header_count};
        return start_of(lazy->topic, &where, in->timestamp, content, &on, given);
    }
    outcome = outcome == 1 ? get_number(object, of->timestamp_ms, &timestamp_ms) : outcome;
    if (outcome != 1) {
        return outcome < 0 ? NULL : Py_NewRef(Py_None);
    }
    span content;
    PyObject *topic = PyObject_GetAttr(object, of->topic);
    PyObject *value = topic == NULL ? NULL : PyObject_GetAttr(object, of->value);
    PyObject *headers = value == NULL ? NULL : PyObject_GetAttr(object, of->headers);
    PyObject *made = NULL;
    if (headers != NULL && PyTuple_CheckExact(headers) && is_nullable_bytes(value, &content)) {
        header_walk on = {headers, NULL, 0, PyTuple_Size(headers)};
        made = start_of(topic, &where, timestamp_ms, content, &on, given);
    }
    else if (headers != NULL) {
        made = Py_NewRef(Py_None);
    }
    Py_XDECREF(topic);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return made;
}

static int
is_topic_id(PyObject *given, span *found)
{
    if (!is_nullable_bytes(given, found) || (found->size != 0 && found->size != 16)) {
        PyErr_SetString(PyExc_ValueError, "a topic id is 16 bytes, or none");
        return 0;
    }
    return 1;
}

static PyObject *
encode_starts(PyObject *module, PyObject *args)
{
    PyObject *records, *queue, *topic_id;
    long long after_ms, bytes_max;
    terms given;
    names of;
    if (!PyArg_ParseTuple(args, "O!O!OLL", &PyList_Type, &records, &PyBytes_Type, &queue, &topic_id, &after_ms,
                          &bytes_max) ||
        !is_topic_id(topic_id, &given.topic_id) || make_names(module, &of) < 0) {
        return NULL;
    }
    given.queue = (span){PyBytes_AsString(queue), PyBytes_Size(queue)};
    given.after_ms = after_ms;
    given.bytes_max = bytes_max;
    PyObject *made = PyList_New(0);
    for (Py_ssize_t index = 0; made != NULL && index < PyList_Size(records); index++) {
        PyObject *record = Py_NewRef(PyList_GetItem(records, index));
        PyObject *start = start_of_record(record, &of, &given);
        Py_DECREF(record);
        if (start == NULL || PyList_Append(made, start) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(start);
    }
    free_names(&of);
    return made;
}

/* ---- END --------------------------------------------------------------------------------------------------------- */

static PyObject *
end_of_record(PyObject *record, const names *of, span topic_id)
{
    place where;
    int outcome = get_place(record, of, &where);
    if (outcome != 1) {
        if (!outcome) {
            PyErr_SetString(PyExc_TypeError, "partition and offset are whole numbers");
        }
        return NULL;
    }
    size_t size = 4 + 1 + 1 + place_size(&where) + (topic_id.size ? 3 + 16 : 0);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made != NULL) {
        unsigned char *at = put_bytes((unsigned char *)PyBytes_AsString(made), "\x08\x01\x10\x01", 4);
        put_topic_id(put_place(at, &where), topic_id);
    }
    return made;
}

static PyObject *
encode_ends(PyObject *module, PyObject *args)
{
    PyObject *records, *given;
    span topic_id;
    names of;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &records, &given) || !is_topic_id(given, &topic_id) ||
        make_names(module, &of) < 0) {
        return NULL;
    }
    PyObject *made = PyList_New(0);
    for (Py_ssize_t index = 0; made != NULL && index < PyList_Size(records); index++) {
        PyObject *record = Py_NewRef(PyList_GetItem(records, index));
        PyObject *end = end_of_record(record, &of, topic_id);
        Py_DECREF(record);
        if (end == NULL || PyList_Append(made, end) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(end);
    }
    free_names(&of);
    return made;
}

/* ---- skim -------------------------------------------------------------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* A field: `number` is the value of a varint, `at` and `size` are the content of others. */
typedef struct {
    uint64_t tag, number;
    bytes_t at;
    size_t size;
} field;

static int
get_uvarint(bytes_t *at, bytes_t end, uint64_t *found)
{
    *found = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end) {
            return 0;
        }
        unsigned char byte = *(*at)++;
        *found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0;
}

/* Read a field and go behind it. Return 0 if it is none. */
static int
get_field(bytes_t *at, bytes_t end, field *found)
{
    uint64_t size;
    *found = (field){0, 0, *at, 0};
    if (!get_uvarint(at, end, &found->tag) || found->tag < 8) {
        return 0;
    }
    switch (found->tag & 7) {
    case VARINT:
        return get_uvarint(at, end, &found->number);
    case BYTES:
        if (!get_uvarint(at, end, &size)) {
            return 0;
        }
        break;
    case FIXED64:
        size = 8;
        break;
    case FIXED32:
        size = 4;
        break;
    default:
        return 0;
    }
    if (size > (uint64_t)(end - *at)) {
        return 0;
    }
    found->at = *at;
    found->size = (size_t)size;
    *at += size;
    return 1;
}

/* Return whether the content of a field has these numbers only in fields of this wire type. */
static int
is_made_of(const field *content, uint64_t wire_type, int64_t *first, int64_t *second)
{
    field inner;
    for (bytes_t at = content->at, end = at + content->size; at < end;) {
        if (!get_field(&at, end, &inner)) {
            return 0;
        }
        uint64_t number = inner.tag >> 3;
        if (number == 1 || number == 2) {
            if ((inner.tag & 7) != wire_type) {
                return 0;
            }
            int64_t *into = number == 1 ? first : second;
            if (into != NULL) {
                *into = (int64_t)inner.number;
            }
        }
    }
    return 1;
}

static inline int64_t
at_most(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

/* Return (type, topic id, partition, offset, redeliver_after_ms, is_uncounted, not_before_ms), or None: Python must look
 * what is wrong. */
static PyObject *
skim_marker(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!PyBytes_CheckExact(data)) {
        Py_RETURN_NONE;
    }
    int64_t type = 0, partition = 0, offset = 0, after_ms = 0, not_before_ms = 0;
    int is_uncounted = 0;
    const char *topic_id = "";
    Py_ssize_t topic_id_size = 0;
    field one;
    for (bytes_t at = (bytes_t)PyBytes_AsString(data), end = at + PyBytes_Size(data); at < end;) {
        if (!get_field(&at, end, &one)) {
            Py_RETURN_NONE;
        }
        uint64_t number = one.tag >> 3, wire_type = one.tag & 7;
        int is_number = number == 2 || number == 4 || number == 18 || number == 19;
        int is_content = number == 3 || number == 5 || number == 6 || number == 16 || number == 17;
        if ((is_number && wire_type != VARINT) || (is_content && wire_type != BYTES)) {
            Py_RETURN_NONE;
        }
        switch (number) {
        case 2:
            if (one.number > INT64_MAX) {
                Py_RETURN_NONE;
            }
            type = (int64_t)one.number;
            break;
        case 3:
            if (!is_made_of(&one, VARINT, &partition, &offset)) {
                Py_RETURN_NONE;
            }
            break;
        case 4:
            after_ms = at_most(one.number);
            break;
        case 16:
            if (one.size != 16) {
                Py_RETURN_NONE;
            }
            topic_id = (const char *)one.at;
            topic_id_size = 16;
            break;
        case 17:
            if (!is_made_of(&one, BYTES, NULL, NULL)) {
                Py_RETURN_NONE;
            }
            break;
        case 18:
            is_uncounted = one.number != 0;
            break;
        case 19:
            not_before_ms = at_most(one.number);
            break;
        default:
            break;
        }
    }
    return Py_BuildValue("(Ly#LLLNL)", (long long)type, topic_id, topic_id_size, (long long)partition,
                         (long long)offset, (long long)after_ms, PyBool_FromLong(is_uncounted),
                         (long long)not_before_ms);
}

static PyMethodDef functions[] = {
    {"encode_starts", encode_starts, METH_VARARGS, "encode_starts(records, queue, topic_id, after_ms, bytes_max, /)"},
    {"encode_ends", encode_ends, METH_VARARGS, "encode_ends(records, topic_id, /)"},
    {"skim_marker", skim_marker, METH_O, "skim_marker(data, /)"},
    {NULL, NULL, 0, NULL},
};

int
add_markers(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
