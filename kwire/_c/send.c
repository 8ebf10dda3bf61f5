/* RecordAccumulator.send: see kwire/producer/accumulator.py.
 *
 * A program calls it for each record. No Python code runs from the first look at a topic to the record in its batch
 * builder, so that the GIL is all the lock there is. What is unusual goes to Python's slow path: that is less than the
 * Python twin sends there, which leaves headers and buffers to it.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "accumulator.h"

static PyObject *names[ARGUMENTS]; /* interned */

static PyObject *
referred(door_t *door, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(nargs), *keywords = kwnames == NULL ? NULL : PyDict_New(), *answer = NULL;
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
    answer = PyObject_Call(door->refer, positional, keywords);
done:
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return answer;
}

/* Where a call's keywords belong; a call in a loop has the same tuple of them each time. 0 for what is to be referred. */
static int
learn_keywords(keywords_t *keywords, Py_ssize_t nargs, PyObject *kwnames)
{
    Py_ssize_t count = PyTuple_Size(kwnames);
    Py_CLEAR(keywords->names); /* of strings: nothing runs */
    if (count > ARGUMENTS) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *name = PyTuple_GetItem(kwnames, index);
        Py_ssize_t at = nargs;
        while (at < ARGUMENTS && names[at] != name) { /* names in code are interned */
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

/* The arguments by their place, NULL or None for those left out; 0 for what is to be referred. */
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

/* What is held while a record is copied: buffers, and headers as a tuple of (str, bytes or None). */
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

/* Bytes, a buffer of them, or text as UTF-8; -1 in size for None. 0 for anything else. */
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

/* The pairs as they are now, so that nobody changes them meanwhile; NULL, perhaps with an exception, for anything else. */
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

/* The pair, its text as bytes; NULL, perhaps with an exception, for what is no pair of str and bytes, str or None. */
static PyObject *
header_of(PyObject *pair)
{
    if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2 || !PyUnicode_CheckExact(PyTuple_GetItem(pair, 1))) {
        Py_INCREF(pair); /* as it is: `is_header` will look at it */
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
is_now(door_t *door, int64_t *found)
{
    if (door->by_system) {
        *found = daytime_ms(&door->daytime);
        return *found >= 0;
    }
    PyObject *answer = PyObject_CallNoArgs(door->time_ms);
    if (answer == NULL) {
        PyErr_Clear();
        return 0;
    }
    int is_fine = is_int(answer, INT64_MAX, found);
    Py_DECREF(answer);
    return is_fine;
}

/* The open run of a slot, if a record may join it just so; borrowed. */
static inline run_t *
open_run(const topic_t *topic, int slot)
{
    run_t *run = slot >= 0 ? (slot < topic->open_room ? topic->open[slot] : NULL)
                           : (slot == UNROUTED ? topic->unrouted : topic->undesignated);
    return run != NULL && run->terms == Py_None ? run : NULL;
}

/* A place that is still nowhere. */
static inline place_t *
new_place(const door_t *door)
{
    return future_new(door->place_type, NULL, 0);
}

/* As `run_put_plain` does not: begins a run, fills one, gives it memory. The run (borrowed), or NULL with an exception. */
static run_t *
send_slowly(door_t *door, PyObject *name, topic_t *topic, int slot, const entry_t *entry, Py_ssize_t size, int *wakes)
{
    int is_new = 0, is_full = 0;
    run_t *run = joined(door, name, topic, slot, size, Py_None, Py_None, &is_new, &is_full);
    if (run == NULL || put(door, topic, run, slot, entry, size) < 0) {
        return NULL;
    }
    *wakes = must_wake(door, is_new, is_full || run->is_closed);
    return run;
}

/* What a record is and counts as; 0 for what is to be referred. */
static inline int
is_record(door_t *door, PyObject *const *given, entry_t *entry, Py_ssize_t *size, held_t *held)
{
    if (!is_data(given[VALUE], &entry->value, held) || !is_data(given[KEY], &entry->key, held) ||
        (given[TIMESTAMP] != NULL ? !is_int(given[TIMESTAMP], INT64_MAX, &entry->timestamp)
                                  : !is_now(door, &entry->timestamp))) {
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

/* Takes a record in, and answers its place; NULL with an exception, or without one for what is to be referred. */
static inline PyObject *
entered(door_t *door, PyObject *const *given, const entry_t *entry, Py_ssize_t size)
{
    int64_t partition = 0;
    if (given[TOPIC] == NULL || !PyUnicode_CheckExact(given[TOPIC]) ||
        (given[PARTITION] != NULL && !is_int(given[PARTITION], INT32_MAX, &partition)) ||
        (given[ON_DELIVERY] != NULL && !PyCallable_Check(given[ON_DELIVERY]))) {
        return NULL;
    }
    place_t *place = new_place(door); /* the last that may run other code */
    if (place == NULL) {
        return NULL;
    }
    topic_t *topic = find_topic(door, given[TOPIC]);
    if (topic == NULL || size > door->record_bytes_max || !has_room(door, topic, size) || topic->is_awaited ||
        !door->is_open) {
        Py_DECREF(OBJECT(place));
        return NULL;
    }
    int slot = given[PARTITION] != NULL ? (int)partition : slot_of(door, topic, entry->key), wakes = 0, failed = 0;
    run_t *run = open_run(topic, slot);
    if (run == NULL || !run_put_plain(run, entry, size)) {
        door->users++;
        run = send_slowly(door, given[TOPIC], topic, slot, entry, size, &wakes);
        door->users--;
        if (run == NULL) {
            Py_DECREF(OBJECT(place));
            return NULL;
        }
    }
    use(door, topic, size);
    Py_INCREF(OBJECT(run));
    place->run = run;
    place->number = run->count - 1;
    if (given[ON_DELIVERY] != NULL) {
        int is_kept = door->remade_type == NULL || slot == UNROUTED;
        failed = callbacks_add(&run->callbacks, place->number, is_kept ? OBJECT(place) : NULL, given[ON_DELIVERY]) < 0;
    }
    if (wakes) {
        failed |= wake(door) < 0;
    }
    if (failed) {
        Py_DECREF(OBJECT(place));
        return NULL;
    }
    return (PyObject *)place;
}

PyObject *
door_send(door_t *door, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *given[ARGUMENTS] = {NULL}, *place = NULL;
    entry_t entry = {0};
    held_t held;
    held.views_used = 0;
    held.headers = NULL;
    Py_ssize_t size = 0;
    if (door->is_open && arguments(&door->keywords, args, nargs, kwnames, given) &&
        is_record(door, given, &entry, &size, &held)) {
        place = entered(door, given, &entry, size);
    }
    if (held.views_used || held.headers != NULL) {
        let_go(&held);
    }
    return place != NULL || PyErr_Occurred() ? place : referred(door, args, nargs, kwnames);
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
