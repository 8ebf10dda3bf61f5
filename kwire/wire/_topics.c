/* The topics of a door in C: which partition a record gets, and the open run that it joins there. `_door.py` is the
 * specification.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include "_topics.h"

static uint32_t crc32_table[256];

/* ---- topics ------------------------------------------------------------------------------------------------------ */

static void
free_topic(PyObject *capsule)
{
    topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
    for (int index = 0; index < topic->open_room; index++) {
        Py_XDECREF(OBJECT(topic->open[index]));
    }
    Py_XDECREF(OBJECT(topic->undesignated));
    Py_XDECREF(OBJECT(topic->unrouted));
    PyMem_Free(topic->open);
    PyMem_Free(topic->ring);
    PyMem_Free(topic);
}

topic_t *
look_up_topic(door_t *door, PyObject *name)
{
    PyObject *capsule = PyDict_GetItemWithError(door->topics, name);
    if (capsule == NULL) {
        return NULL;
    }
    topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
    PyObject *old_name = door->last_name;
    Py_INCREF(name);
    door->last_name = name;
    door->last = topic;
    Py_XDECREF(old_name); /* a str: nothing runs */
    return topic;
}

topic_t *
get_topic(door_t *door, PyObject *name)
{
    topic_t *topic = find_topic(door, name);
    if (topic != NULL || PyErr_Occurred()) {
        return topic;
    }
    topic = PyMem_Calloc(1, sizeof(topic_t));
    if (topic == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    topic->bytes_max = door->batch_bytes;
    PyObject *capsule = PyCapsule_New(topic, NULL, free_topic);
    if (capsule == NULL) {
        PyMem_Free(topic);
        return NULL;
    }
    int failed = PyDict_SetItem(door->topics, name, capsule) < 0;
    Py_DECREF(capsule);
    return failed ? NULL : topic;
}

/* Nobody has a topic at hand while this runs, or it refuses: what is freed here, nobody looks at again. */
PyObject *
door_forget(door_t *door, PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a topic is a str");
        return NULL;
    }
    topic_t *topic = find_topic(door, name);
    if (topic == NULL) {
        return PyErr_Occurred() ? NULL : PyBool_FromLong(1);
    }
    if (door->users || topic->used_bytes || topic->is_awaited) {
        Py_RETURN_FALSE;
    }
    door->last = NULL;
    Py_CLEAR(door->last_name);
    return PyDict_DelItem(door->topics, name) < 0 ? NULL : PyBool_FromLong(1);
}

run_t **
place_of(topic_t *topic, int slot)
{
    if (slot < 0) {
        return slot == UNROUTED ? &topic->unrouted : &topic->undesignated;
    }
    if (slot >= topic->open_room) {
        if (slot >= PARTITIONS_MAX) {
            return NULL;
        }
        int room = slot + 1 > topic->count ? slot + 1 : topic->count;
        room = room > PARTITIONS_MAX ? PARTITIONS_MAX : room;
        run_t **open = PyMem_Realloc(topic->open, (size_t)room * sizeof(run_t *));
        if (open == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(open + topic->open_room, 0, (size_t)(room - topic->open_room) * sizeof(run_t *));
        topic->open = open;
        topic->open_room = room;
    }
    return &topic->open[slot];
}

/* ---- which partition -------------------------------------------------------------------------------------------- */

static int
murmur2_slot(span key, int count)
{
    return (int)((murmur2_of((bytes_t)key.at, (size_t)key.size) & 0x7FFFFFFF) % (uint32_t)count);
}

static int
crc32_slot(span key, int count)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (int64_t index = 0; index < key.size; index++) {
        crc = crc >> 8 ^ crc32_table[(crc ^ (unsigned char)key.at[index]) & 0xFF];
    }
    return (int)(~crc % (uint32_t)count);
}

int
slot_by_key(int hash, int count, span key)
{
    return hash == MURMUR2 ? murmur2_slot(key, count) : crc32_slot(key, count);
}

int
slot_by_turn(topic_t *topic)
{
    int at = 0, end = topic->ring_used;
    while (at < end) {
        int middle = at + (end - at) / 2;
        if (topic->ring[middle] < topic->next) {
            at = middle + 1;
        }
        else {
            end = middle;
        }
    }
    int chosen = topic->ring[at < topic->ring_used ? at : 0];
    topic->next = chosen + 1;
    return chosen;
}

/* ---- into a run -------------------------------------------------------------------------------------------------- */

run_t *
joined(door_t *door, PyObject *name, topic_t *topic, int slot, Py_ssize_t size, PyObject *terms, PyObject *since,
       int *is_new, int *is_full)
{
    run_t **place;
    for (;;) {
        place = place_of(topic, slot);
        if (place == NULL && PyErr_Occurred()) {
            return NULL;
        }
        run_t *run = place == NULL ? NULL : *place;
        if (run == NULL || run->is_closed) {
            break;
        }
        if (run_size(run) + size > run->bytes_max) {
            run->is_closed = 1;
            *is_full = 1;
            topic->hint = run->room;
            break;
        }
        if (run->terms == Py_None && terms == Py_None) {
            return run;
        }
        Py_INCREF(OBJECT(run));
        PyObject *answer = PyObject_CallFunctionObjArgs(door->may_share, run->terms, terms, NULL);
        int may_share = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        place = place_of(topic, slot); /* it may have moved, and the run may have been filled, closed or replaced */
        int is_same = place != NULL && *place == run && !run->is_closed && run_size(run) + size <= run->bytes_max;
        if (may_share == 0 && is_same) {
            run->is_closed = 1;
            *is_full = 1;
        }
        Py_DECREF(OBJECT(run)); /* the place has it */
        if (may_share < 0) {
            return NULL;
        }
        if (is_same) {
            if (may_share) {
                return run;
            }
            break;
        }
    }
    run_t *run = (run_t *)run_new(door->run_type, name, slot, topic->bytes_max, terms, door->dispatch, door->remade_type);
    if (run == NULL || PyList_Append(door->fresh, (PyObject *)run) < 0) {
        Py_XDECREF(OBJECT(run));
        return NULL;
    }
    Py_INCREF(since);
    Py_DECREF(run->since); /* None */
    run->since = since;
    *is_new = 1;
    if (place == NULL) {
        Py_DECREF(OBJECT(run)); /* the list has it */
        return run;
    }
    run_t *before = *place;
    *place = run;
    Py_XDECREF(OBJECT(before)); /* whoever drains has it, or the list */
    return run;
}

int
put(door_t *door, topic_t *topic, run_t *run, int slot, const entry_t *entry, Py_ssize_t size)
{
    if (run_put(run, entry, size, topic->hint) < 0) {
        if (run->count == 0) {
            run_t **place = place_of(topic, slot);
            if (place != NULL && *place == run) {
                *place = NULL;
                Py_DECREF(OBJECT(run));
            }
            Py_ssize_t last = PyList_Size(door->fresh) - 1;
            PyList_SetSlice(door->fresh, last, last + 1, NULL);
        }
        return -1;
    }
    if (slot >= PARTITIONS_MAX) {
        run->is_closed = 1;
    }
    if (run->is_closed) {
        topic->hint = run->room;
    }
    door_sum(door, run);
    return 0;
}

int
must_wake(door_t *door, int is_new, int is_full)
{
    if (door->is_woken || !(is_full || (is_new && !door->gathers))) {
        return 0;
    }
    door->is_woken = 1;
    return 1;
}

/* An exception that is there stays. One from the call, which can only be an interrupt, may have come before the bell was
 * rung; nobody else rings for this record, so it is rung again. */
int
wake(door_t *door)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *answer = PyObject_CallNoArgs(door->wakeup);
    if (answer == NULL && type == NULL) {
        PyErr_Fetch(&type, &value, &traceback);
        answer = PyObject_CallNoArgs(door->wakeup);
    }
    Py_XDECREF(answer);
    PyErr_Restore(type, value, traceback);
    return type == NULL ? 0 : -1;
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

void
add_topics(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
        crc32_table[n] = crc;
    }
}
