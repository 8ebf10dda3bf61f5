/* Messages from bytes, by a shape: see _plan.h.
 *
 * Such a reader answers None for bytes that are no message, whatever is wrong with them: which field it was, and why,
 * is for the reader in Python to say. It takes memory in proportion to the bytes that are there.
 */
#include "_speedups.h"

#include "_plan.h"

#define STRING_BYTES_MAX 32767 /* Kafka's classes refuse longer ones, even where a compact length could tell them */
#define RESERVED_MAX 1024      /* elements of a list for which there is room before they are seen */

typedef struct {
    PyObject_HEAD
    PyObject *plan; /* keeps alive whatever is borrowed from it */
    int is_flexible;
    shape *whole;
} reader;

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* NULL without an exception, or -1 for a number that cannot be below 0: these bytes are no message. */

typedef struct {
    bytes_t start, at, end;
    int is_flexible;
    PyObject *data, *view; /* view: of all data, made when first needed */
} cursor;

static PyObject *get_value(cursor *c, const step *from);

static PyObject *
same(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static uint64_t
big_endian(bytes_t at, int size)
{
    uint64_t n = 0;
    for (int index = 0; index < size; index++) {
        n = n << 8 | at[index];
    }
    return n;
}

/* A varint of up to 32 bits, or -1. */
static int64_t
get_uvarint(cursor *c)
{
    uint64_t n = 0;
    for (int shift = 0; shift < 35 && c->at < c->end; shift += 7) {
        unsigned char byte = *c->at++;
        n |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return n >> 32 ? -1 : (int64_t)n;
        }
    }
    return -1;
}

/* A length or count into `n`, -1 being null; answers whether it is one. */
static int
get_length(cursor *c, int size, int is_nullable, int64_t *n)
{
    if (c->is_flexible) {
        int64_t more = get_uvarint(c);
        if (more < 0) {
            return 0;
        }
        *n = more - 1;
    }
    else {
        if (c->end - c->at < size) {
            return 0;
        }
        *n = size == 2 ? (int16_t)big_endian(c->at, 2) : (int32_t)big_endian(c->at, 4);
        c->at += size;
    }
    return *n >= 0 || (*n == -1 && is_nullable);
}

/* A view of `size` bytes from `at`, of the data: no copy. */
static PyObject *
view_of(cursor *c, bytes_t at, int64_t size)
{
    if (c->view == NULL && (c->view = PyMemoryView_FromObject(c->data)) == NULL) {
        return NULL;
    }
    return PySequence_GetSlice(c->view, at - c->start, at - c->start + (Py_ssize_t)size);
}

static PyObject *
get_sized(cursor *c, const step *from)
{
    int64_t size;
    if (!get_length(c, from->kind == 's' ? 2 : 4, from->is_nullable, &size) || size > c->end - c->at) {
        return NULL;
    }
    if (size < 0) {
        return same(Py_None);
    }
    bytes_t at = c->at;
    c->at += size;
    if (from->kind == 'r') {
        return view_of(c, at, size);
    }
    if (from->kind == 'y') {
        return PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
    }
    if (size > STRING_BYTES_MAX) {
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
    }
    return text;
}

static PyObject *
get_fixed(cursor *c, const step *from, int size)
{
    bytes_t at = c->at;
    if (c->end - at < size) {
        return NULL;
    }
    c->at += size;
    uint64_t n = big_endian(at, size);
    switch (from->kind) {
    case 'b':
        return PyLong_FromLong((int8_t)n);
    case 'h':
        return PyLong_FromLong((int16_t)n);
    case 'i':
        return PyLong_FromLong((int32_t)n);
    case 'q':
        return PyLong_FromLongLong((int64_t)n);
    case 'd': {
        double real;
        memcpy(&real, &n, sizeof real);
        return PyFloat_FromDouble(real);
    }
    case '?':
        return PyBool_FromLong(n != 0);
    default:
        return PyLong_FromUnsignedLong((unsigned long)n); /* H and I */
    }
}

/* As UUID(bytes=...) makes it, without the Python code that this is. */
static PyObject *
make_uuid(bytes_t at, PyObject *detail)
{
    PyObject *high = PyLong_FromUnsignedLongLong(big_endian(at, 8)), *bits = PyLong_FromLong(64);
    PyObject *low = PyLong_FromUnsignedLongLong(big_endian(at + 8, 8));
    PyObject *raised = high && bits ? PyNumber_Lshift(high, bits) : NULL;
    PyObject *number = raised && low ? PyNumber_Or(raised, low) : NULL;
    PyObject *made = number ? PyType_GenericAlloc((PyTypeObject *)PyTuple_GetItem(detail, 1), 0) : NULL;
    for (int index = 0; made != NULL && index < 2; index++) { /* a UUID refuses to be changed by setattr */
        PyObject *name = PyUnicode_InternFromString(index ? "is_safe" : "int");
        if (name == NULL || PyObject_GenericSetAttr(made, name, index ? PyTuple_GetItem(detail, 2) : number) < 0) {
            Py_DECREF(made);
            made = NULL;
        }
        Py_XDECREF(name);
    }
    Py_XDECREF(high);
    Py_XDECREF(bits);
    Py_XDECREF(low);
    Py_XDECREF(raised);
    Py_XDECREF(number);
    return made;
}

static PyObject *
get_uuid(cursor *c, const step *from)
{
    bytes_t at = c->at;
    if (c->end - at < 16) {
        return NULL;
    }
    c->at += 16;
    PyObject *raw = PyBytes_FromStringAndSize((const char *)at, 16), *kept = PyTuple_GetItem(from->detail, 0);
    PyObject *value = raw ? PyDict_GetItemWithError(kept, raw) : NULL;
    Py_XINCREF(value);
    if (raw != NULL && value == NULL && !PyErr_Occurred() && (value = make_uuid(at, from->detail)) != NULL) {
        if (PyDict_Size(kept) >= from->number) {
            PyDict_Clear(kept);
        }
        if (PyDict_SetItem(kept, raw, value) < 0) {
            Py_DECREF(value);
            value = NULL;
        }
    }
    Py_XDECREF(raw);
    return value;
}

static PyObject *
get_list(cursor *c, const step *from)
{
    int64_t count;
    if (!get_length(c, 4, from->is_nullable, &count) || count > (c->end - c->at) / from->number) {
        return NULL;
    }
    if (count < 0) {
        return same(Py_None);
    }
    Py_ssize_t reserved = count < RESERVED_MAX ? (Py_ssize_t)count : RESERVED_MAX;
    PyObject *list = PyList_New(reserved);
    for (Py_ssize_t index = 0; list != NULL && index < count; index++) {
        PyObject *item = get_value(c, from->element);
        if (item != NULL && index < reserved) {
            PyList_SetItem(list, index, item);
            continue;
        }
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(item);
    }
    return list;
}

/* Put a tagged field that no slot is for into the dict that is or will be in the slot for such. */
static int
keep_unknown(cursor *c, PyObject **unknown, uint32_t tag, int64_t size)
{
    if (*unknown == Py_None) {
        PyObject *fresh = PyDict_New();
        if (fresh == NULL) {
            return 0;
        }
        Py_DECREF(*unknown);
        *unknown = fresh;
    }
    PyObject *key = PyLong_FromUnsignedLong(tag);
    PyObject *content = key ? PyBytes_FromStringAndSize((const char *)c->at, (Py_ssize_t)size) : NULL;
    c->at += size;
    int is_kept = content && PyDict_Contains(*unknown, key) == 0 && PyDict_SetItem(*unknown, key, content) == 0;
    Py_XDECREF(content);
    Py_XDECREF(key);
    return is_kept;
}

/* The section of tagged fields; answers whether it is one. */
static int
get_tagged(cursor *c, const shape *of, PyObject *instance)
{
    int64_t count = get_uvarint(c);
    if (count < 0 || count > (c->end - c->at) / 2) {
        return 0;
    }
    uint64_t seen = 0;
    for (; count > 0; count--) {
        int64_t tag = get_uvarint(c), size = tag < 0 ? -1 : get_uvarint(c);
        if (size < 0 || size > c->end - c->at) {
            return 0;
        }
        Py_ssize_t index = 0;
        while (index < of->tagged_count && of->tagged[index].tag != tag) {
            index++;
        }
        if (index == of->tagged_count) {
            if (!keep_unknown(c, slot(instance, of->unknown), (uint32_t)tag, size)) {
                return 0;
            }
            continue;
        }
        bytes_t stop = c->at + size;
        PyObject *value = seen >> index & 1 ? NULL : get_value(c, &of->tagged[index].from);
        if (value == NULL || c->at != stop) {
            Py_XDECREF(value);
            return 0;
        }
        seen |= (uint64_t)1 << index;
        PyObject **place = slot(instance, of->tagged[index].offset), *before = *place;
        *place = value;
        Py_DECREF(before);
    }
    return 1;
}

static PyObject *
get_struct(cursor *c, const shape *of)
{
    PyObject *instance = PyType_GenericAlloc(of->class, 0); /* its slots are NULL */
    if (instance == NULL) {
        return NULL;
    }
    *slot(instance, of->unknown) = same(Py_None);
    for (const field *each = of->fields, *end = each + of->field_count; each < end; each++) {
        PyObject *value = get_value(c, &each->from);
        if (value == NULL) {
            Py_DECREF(instance);
            return NULL;
        }
        *slot(instance, each->offset) = value;
    }
    if (of->tagged_count >= 0 && !get_tagged(c, of, instance)) {
        Py_DECREF(instance);
        return NULL;
    }
    return instance;
}

static PyObject *
get_struct_or_none(cursor *c, const step *from)
{
    if (from->is_nullable) {
        int marker = c->at < c->end ? *c->at++ : -1;
        if (marker == from->number) {
            return same(Py_None);
        }
        if (marker != 1) {
            return NULL;
        }
    }
    return get_struct(c, from->inner);
}

static PyObject *
get_value(cursor *c, const step *from)
{
    switch (from->kind) {
    case 'b':
    case '?':
        return get_fixed(c, from, 1);
    case 'h':
    case 'H':
        return get_fixed(c, from, 2);
    case 'i':
    case 'I':
        return get_fixed(c, from, 4);
    case 'q':
    case 'd':
        return get_fixed(c, from, 8);
    case 'u':
        return get_uuid(c, from);
    case '[':
        return get_list(c, from);
    case '{':
        return get_struct_or_none(c, from);
    case '=':
        return same(from->detail);
    case 'e':
        return PyList_New(0);
    default:
        return get_sized(c, from);
    }
}

/* The message that is `data` from `from` to its end; NULL is an exception, or without one no message. */
static PyObject *
message_in(const reader *self, PyObject *whole, const Py_buffer *data, Py_ssize_t from)
{
    bytes_t start = data->buf;
    cursor c = {start, start + from, start + data->len, self->is_flexible, whole, NULL};
    /* Python 3.11 looks for garbage after every so many new objects, of which a message has none: a third of the time it
     * takes to read a large one, so that the collector is off meanwhile, as no code in Python runs, which could ask for
     * it or switch it. (From 3.12 it never runs in the middle of C.) */
    int is_collected = PyGC_Disable();
    PyObject *message = get_struct(&c, self->whole);
    if (is_collected) {
        PyGC_Enable();
    }
    Py_XDECREF(c.view);
    if (message != NULL && c.at != c.end) {
        Py_CLEAR(message);
    }
    return message;
}

/* (data: bytes or what else nobody writes to, start) -> the message that is `data` from `start` to its end | None */
static PyObject *
read_message(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyObject_CheckBuffer(args[0]) || !PyLong_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "read takes bytes and where to start");
        return NULL;
    }
    Py_buffer data;
    Py_ssize_t from = PyLong_AsSsize_t(args[1]);
    if ((from == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *message = NULL;
    if (!data.readonly) {
        PyErr_SetString(PyExc_TypeError, "what is read must not change");
    }
    else if (from >= 0 && from <= data.len) {
        message = message_in((const reader *)self, args[0], &data, from);
    }
    PyBuffer_Release(&data);
    return message != NULL || PyErr_Occurred() ? message : Py_NewRef(Py_None);
}

/* ---- the type -------------------------------------------------------------------------------------------------- */

static PyObject *
reader_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *plan, *whole;
    int is_flexible;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &plan) || !PyArg_ParseTuple(plan, "pO", &is_flexible, &whole)) {
        return NULL;
    }
    reader *made = (reader *)PyType_GenericAlloc(type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->plan = same(plan);
    made->is_flexible = is_flexible;
    made->whole = make_shape(whole);
    if (made->whole == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    return (PyObject *)made;
}

/* The classes that a plan names hold their readers. */
static int
reader_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((reader *)self)->plan);
    return 0;
}

static void
reader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_shape(((reader *)self)->whole);
    Py_XDECREF(((reader *)self)->plan);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef reader_methods[] = {
    {"read", (PyCFunction)(void (*)(void))read_message, METH_FASTCALL, "read(data, start, /) -> message | None"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "MessageReader(plan, /)"},
    {Py_tp_new, reader_new},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    "kwire.wire._speedups.MessageReader", sizeof(reader), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, reader_slots,
};

int
add_messages(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &reader_spec, NULL);
    int outcome = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return outcome;
}
