/* RecordAccumulator.send: see kwire/producer/accumulator.py.
 *
 * It runs for each record. No Python code runs between the lookup of the topic and the append, so the GIL is the only
 * lock. Unusual calls go to the slow path in Python, but fewer than in the Python twin, which also passes headers and
 * buffers to it.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "accumulator.h"

static PyObject *names[ARGUMENTS]; /* interned */

static PyObject *
by_slow_path(accumulator_t *accumulator, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(nargs), *keywords = kwnames == NULL ? NULL : PyDict_New(), *result = NULL;
    if (positional == NULL || (kwnames != NULL && keywords == NULL)) {
        goto done;
    }
    for (Py_ssize_t index = 0; index < nargs; index++) {
        Py_INCREF(args[index]);
        PyTuple_SetItem(positional, index, args[index]);
    }
    for (Py_ssize_t index = 0; kwnames != NULL && index < PyTuple_Size(kwnames); index++) {
        if (PyDict_SetItem(keywords, PyTuple_GetItem(kwnames, index), args[nargs + index]) < 0) {
            goto done;
        }
    }
    result = PyObject_Call(accumulator->slow_path, positional, keywords);
done:
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

/* Find the positions of a call's keywords; calls in a loop pass the same tuple. Return 0 for the slow path. */
static int
learn_keywords(keywords_t *keywords, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t count = PyTuple_Size(kwnames);
    Py_CLEAR(keywords->names); /* strings: runs no code */
    if (count > ARGUMENTS) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *name = PyTuple_GetItem(kwnames, index);
        Py_ssize_t at = nargs;
        while (at < ARGUMENTS && names[at] != name) { /* keyword names in code are interned */
            at++;
        }
        if (at == ARGUMENTS) {
            return 0;
        }
        keywords->at[index] = (unsigned char)at;
    }
    Py_INCREF(kwnames);
    keywords->names = kwnames;
    keywords->count = count;
    keywords->nargs = nargs;
    return 1;
}

/* Set the arguments by position, NULL or None if absent; return 0 for the slow path. */
static inline int
arguments(keywords_t *keywords, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **found)
{
    if (nargs > ARGUMENTS) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < nargs; index++) {
        found[index] = args[index] == Py_None ? NULL : args[index];
    }
    if (kwnames == NULL) {
        return 1;
    }
    if ((keywords->names != kwnames || keywords->nargs != nargs) && !learn_keywords(keywords, nargs, kwnames)) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < keywords->count; index++) {
        PyObject *given = args[nargs + index];
        found[keywords->at[index]] = given == Py_None ? NULL : given;
    }
    return 1;
}

/* References held while a record is copied: buffers, and headers as a tuple of (str, bytes or None). */
typedef struct {
    Py_buffer views[2];
    int views_used;
    PyObject *headers;
} held_t;

static void
let_go(held_t *held)
{
    while (held->views_used) {
        PyBuffer_Release(&held->views[--held->views_used]);
    }
    Py_CLEAR(held->headers);
}

static int
is_buffer(PyObject *object, span *found, held_t *held)
{
    Py_buffer *view = &held->views[held->views_used];
    if (!(PyByteArray_CheckExact(object) || PyMemoryView_Check(object)) ||
        PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    held->views_used++;
    *found = (span){view->buf == NULL ? "" : view->buf, view->len};
    return view->len <= INT32_MAX;
}

/* Set the data of bytes, a buffer, or text as UTF-8; size -1 for None. Return 0 for any other type. */
static inline int
is_data(PyObject *object, span *found, held_t *held)
{
    if (object == NULL) {
        *found = (span){NULL, -1};
        return 1;
    }
    if (PyBytes_CheckExact(object)) {
        return is_nullable_bytes(object, found);
    }
    return PyUnicode_CheckExact(object) ? is_text(object, found) : is_buffer(object, found, held);
}

/* Return a copy of the header pairs, which no other code can change; NULL, perhaps with an exception, on failure. */
static PyObject *
pairs_of(PyObject *headers)
{
    if (PyTuple_CheckExact(headers)) {
        Py_INCREF(headers);
        return headers;
    }
    if (PyList_CheckExact(headers)) {
        return PyList_AsTuple(headers);
    }
    PyObject *items = PyDict_CheckExact(headers) ? PyDict_Items(headers) : NULL;
    PyObject *pairs = items == NULL ? NULL : PyList_AsTuple(items);
    Py_XDECREF(items);
    return pairs;
}

/* Return the pair with its value as bytes; NULL, perhaps with an exception, unless it is (str, bytes | str | None). */
static PyObject *
header_of(PyObject *pair)
{
    if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2 || !PyUnicode_CheckExact(PyTuple_GetItem(pair, 1))) {
        Py_INCREF(pair); /* unchanged: `is_header` will check it */
        return pair;
    }
    PyObject *value = PyUnicode_AsUTF8String(PyTuple_GetItem(pair, 1));
    PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, PyTuple_GetItem(pair, 0), value);
    Py_XDECREF(value);
    return header;
}

static int
are_headers(PyObject *given, held_t *held, Py_ssize_t *size)
{
    PyObject *pairs = pairs_of(given);
    Py_ssize_t count = pairs == NULL ? 0 : PyTuple_Size(pairs);
    held->headers = pairs == NULL ? NULL : PyTuple_New(count);
    int is_fine = held->headers != NULL;
    for (Py_ssize_t index = 0; is_fine && index < count; index++) {
        span name = {NULL, -1}, value = {NULL, -1};
        PyObject *header = header_of(PyTuple_GetItem(pairs, index));
        is_fine = header != NULL && PyTuple_SetItem(held->headers, index, header) == 0 &&
                  is_header(held->headers, index, &name, &value);
        *size += counted_header(name, value);
    }
    Py_XDECREF(pairs);
    PyErr_Clear();
    return is_fine;
}

int
is_int(PyObject *object, int64_t limit, int64_t *found)
{
    int overflow;
    if (!PyLong_CheckExact(object)) {
        return 0;
    }
    *found = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *found >= 0 && *found <= limit;
}

static int
is_now(accumulator_t *accumulator, int64_t *found)
{
    if (accumulator->by_system) {
        *found = daytime_ms(&accumulator->daytime);
        return *found >= 0;
    }
    PyObject *result = PyObject_CallNoArgs(accumulator->time_ms);
    if (result == NULL) {
        PyErr_Clear();
        return 0;
    }
    int is_fine = is_int(result, INT64_MAX, found);
    Py_DECREF(result);
    return is_fine;
}

/* Return the open builder of a slot (borrowed) if a record may join it directly. */
static inline builder_t *
open_builder(const topic_t *topic, int slot)
{
    builder_t *builder = slot >= 0 ? (slot < topic->open_capacity ? topic->open[slot] : NULL)
                                   : (slot == UNROUTED ? topic->unrouted : topic->undesignated);
    return builder != NULL && builder->terms == Py_None ? builder : NULL;
}

/* Return a new future that has no builder yet. */
static inline future_t *
new_future(const accumulator_t *accumulator)
{
    return future_new(accumulator->future_type, NULL, 0);
}

/* Append a record that `builder_put_plain` does not handle: begin a builder, fill one, or grow its memory. Return the
 * builder (borrowed), or NULL with an exception. */
static builder_t *
send_slowly(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, const entry_t *entry, Py_ssize_t size,
            int *wakes)
{
    int is_new = 0, is_full = 0;
    builder_t *builder = joined(accumulator, name, topic, slot, size, Py_None, Py_None, &is_new, &is_full);
    if (builder == NULL || put(accumulator, topic, builder, slot, entry, size) < 0) {
        return NULL;
    }
    *wakes = must_wake(accumulator, is_new, is_full || builder->is_closed);
    return builder;
}

/* Set a record's fields and upper bound; return 0 for the slow path. */
static inline int
is_record(accumulator_t *accumulator, PyObject *const *given, entry_t *entry, Py_ssize_t *size, held_t *held)
{
    if (!is_data(given[VALUE], &entry->value, held) || !is_data(given[KEY], &entry->key, held) ||
        (given[TIMESTAMP] != NULL ? !is_int(given[TIMESTAMP], INT64_MAX, &entry->timestamp)
                                  : !is_now(accumulator, &entry->timestamp))) {
        return 0;
    }
    *size = counted_record(entry->key, entry->value);
    if (given[HEADERS] == NULL) {
        return 1;
    }
    int is_fine = are_headers(given[HEADERS], held, size);
    entry->headers = held->headers;
    return is_fine;
}

/* Append a record and return its future; NULL with an exception, or without one for the slow path. */
static inline PyObject *
entered(accumulator_t *accumulator, PyObject *const *given, entry_t *entry, Py_ssize_t size)
{
    int64_t partition = -1;
    if (given[TOPIC] == NULL || !PyUnicode_CheckExact(given[TOPIC]) ||
        (given[PARTITION] != NULL && !is_int(given[PARTITION], INT32_MAX, &partition)) ||
        (given[ON_DELIVERY] != NULL && !PyCallable_Check(given[ON_DELIVERY]))) {
        return NULL;
    }
    future_t *future = new_future(accumulator); /* the last call that may run other code */
    if (future == NULL) {
        return NULL;
    }
    topic_t *topic = find_topic(accumulator, given[TOPIC]);
    if (topic == NULL || size > accumulator->record_bytes_max || !fits(accumulator, topic, size) || topic->is_awaited ||
        !accumulator->is_open) {
        Py_DECREF(OBJECT(future));
        return NULL;
    }
    int slot = slot_for(accumulator, topic, partition, entry), wakes = 0, failed = 0;
    builder_t *builder = open_builder(topic, slot);
    if (builder == NULL || entry->chosen || !builder_put_plain(builder, entry, size)) {
        accumulator->users++;
        builder = send_slowly(accumulator, given[TOPIC], topic, slot, entry, size, &wakes);
        accumulator->users--;
        if (builder == NULL) {
            Py_DECREF(OBJECT(future));
            return NULL;
        }
    }
    use(accumulator, topic, size);
    Py_INCREF(OBJECT(builder));
    future->builder = builder;
    future->number = builder->count - 1;
    if (given[ON_DELIVERY] != NULL) {
        int is_kept = accumulator->plain_future_type == NULL || slot == UNROUTED;
        failed =
            callbacks_add(&builder->callbacks, future->number, is_kept ? OBJECT(future) : NULL, given[ON_DELIVERY]) < 0;
    }
    if (wakes) {
        failed |= wake(accumulator) < 0;
    }
    if (failed) {
        Py_DECREF(OBJECT(future));
        return NULL;
    }
    return (PyObject *)future;
}

PyObject *
accumulator_send(accumulator_t *accumulator, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *given[ARGUMENTS] = {NULL}, *future = NULL;
    entry_t entry = {0};
    held_t held;
    held.views_used = 0;
    held.headers = NULL;
    Py_ssize_t size = 0;
    if (accumulator->is_open && arguments(&accumulator->keywords, args, nargs, kwnames, given) &&
        is_record(accumulator, given, &entry, &size, &held)) {
        future = entered(accumulator, given, &entry, size);
    }
    if (held.views_used || held.headers != NULL) {
        let_go(&held);
    }
    return future != NULL || PyErr_Occurred() ? future : by_slow_path(accumulator, args, nargs, kwnames);
}

int
add_send(void)
{
    static const char *const words[ARGUMENTS] = {"topic",     "value",        "key",        "headers",
                                                 "partition", "timestamp_ms", "on_delivery"};
    for (int index = 0; index < ARGUMENTS; index++) {
        names[index] = PyUnicode_InternFromString(words[index]);
        if (names[index] == NULL) {
            return -1;
        }
    }
    return 0;
}
