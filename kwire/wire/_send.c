/* `Door.send` in C: see `_door.py`, its specification.
 *
 * It is what a program calls for each record: no Python code runs in it from the first look at a topic to the record in
 * its run, so that the interpreter's lock is all the lock there is. What is out of the ordinary it refers to Python.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include "_topics.h"

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

/* Bytes, or text as UTF-8; -1 in size for None. 0 for anything else. */
static int
is_data(PyObject *object, span *found)
{
    if (object == NULL) {
        *found = (span){NULL, -1};
        return 1;
    }
    return PyBytes_CheckExact(object) ? is_nullable_bytes(object, found) : is_text(object, found);
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
    return door->remade_type != NULL
               ? place_again(door->remade_type, NULL, 0)
               : (place_t *)((allocfunc)PyType_GetSlot(door->place_type, Py_tp_alloc))(door->place_type, 0);
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

PyObject *
door_send(door_t *door, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *given[ARGUMENTS] = {NULL};
    entry_t entry = {0};
    int64_t partition = 0;
    if (!arguments(&door->keywords, args, nargs, kwnames, given) || !door->is_open || given[HEADERS] != NULL || given[TOPIC] == NULL ||
        !PyUnicode_CheckExact(given[TOPIC]) || !is_data(given[VALUE], &entry.value) ||
        !is_data(given[KEY], &entry.key) ||
        (given[PARTITION] != NULL && !is_int(given[PARTITION], INT32_MAX, &partition)) ||
        (given[TIMESTAMP] != NULL ? !is_int(given[TIMESTAMP], INT64_MAX, &entry.timestamp)
                                  : !is_now(door, &entry.timestamp))) {
        return referred(door, args, nargs, kwnames);
    }
    Py_ssize_t size = RECORD_OVERHEAD_MAX + (entry.value.size > 0 ? (Py_ssize_t)entry.value.size : 0) +
                      (entry.key.size > 0 ? (Py_ssize_t)entry.key.size : 0);
    place_t *place = new_place(door); /* the last that may run other code */
    if (place == NULL) {
        return NULL;
    }
    topic_t *topic = find_topic(door, given[TOPIC]);
    if (topic == NULL || size > door->record_bytes_max || !has_room(door, size) || !door->is_open) {
        Py_DECREF(OBJECT(place));
        return PyErr_Occurred() ? NULL : referred(door, args, nargs, kwnames);
    }
    int slot = given[PARTITION] != NULL ? (int)partition : slot_of(door, topic, entry.key), wakes = 0;
    run_t *run = open_run(topic, slot);
    if ((run == NULL || !run_put_plain(run, &entry, size)) &&
        (run = send_slowly(door, given[TOPIC], topic, slot, &entry, size, &wakes)) == NULL) {
        Py_DECREF(OBJECT(place));
        return NULL;
    }
    door->used_bytes += size;
    Py_INCREF(OBJECT(run));
    place->run = run;
    place->number = run->count - 1;
    int failed = 0;
    if (given[ON_DELIVERY] != NULL) {
        uintptr_t kept = door->remade_type == NULL ? KEPT : 0;
        failed = callbacks_add(&run->callbacks, place->number, (uintptr_t)place | kept, given[ON_DELIVERY]) < 0;
        if (kept && !failed) {
            Py_INCREF(OBJECT(place));
        }
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
