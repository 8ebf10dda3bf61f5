/* RecordAccumulator and its topics: see kwire/producer/accumulator.py.
 *
 * No Python code runs between looking at an accumulator and changing it, so that the GIL is all the lock there is. Where
 * Python is called in between (`may_share`), everything is looked at again afterwards.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "accumulator.h"
#include "buffers.h"
#include <structmember.h>

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

/* What the record's key and value and headers count as; they are as this code wrote them. */
static Py_ssize_t
tail_size(bytes_t at, bytes_t end, span *key, int *has_headers)
{
    Py_ssize_t size = RECORD_OVERHEAD_MAX;
    int64_t n = 0, headers = 0;
    at = get_varint(at, end, &n);
    *key = (span){(const char *)at, n};
    size += n > 0 ? (Py_ssize_t)n : 0;
    at += n > 0 ? n : 0;
    at = get_varint(at, end, &n);
    size += n > 0 ? (Py_ssize_t)n : 0;
    at = get_varint(at + (n > 0 ? n : 0), end, &headers);
    *has_headers = headers > 0;
    for (int64_t index = 0; index < headers * 2; index++) {
        at = get_varint(at, end, &n);
        size += n > 0 ? (Py_ssize_t)n : 0;
        at += n > 0 ? n : 0;
    }
    return size + (Py_ssize_t)headers * HEADER_OVERHEAD_MAX;
}

/* Hands what came after its records to where these are now. */
static int
move_late(run_t *run, const child_t *children)
{
    for (Py_ssize_t index = 0; run->late != NULL && index < PyList_Size(run->late); index++) {
        PyObject *one = PyList_GetItem(run->late, index);
        const child_t *child = &children[PyLong_AsUnsignedLong(PyTuple_GetItem(one, 0))];
        PyObject *moved = Py_BuildValue("(IOOO)", child->number, PyTuple_GetItem(one, 1), PyTuple_GetItem(one, 2),
                                        PyTuple_GetItem(one, 3));
        if (moved == NULL || (child->run->late == NULL && (child->run->late = PyList_New(0)) == NULL) ||
            PyList_Append(child->run->late, moved) < 0) {
            Py_XDECREF(moved);
            return -1;
        }
        Py_DECREF(moved);
    }
    return 0;
}

static int
route_run(door_t *door, topic_t *topic, run_t *run)
{
    run->is_closed = 1;
    child_t *children = PyMem_Calloc(run->count ? run->count : 1, sizeof(child_t));
    if (children == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t left = run->buffered_bytes;
    bytes_t at = run->data + BATCH_OVERHEAD, end = at + run->used;
    uint32_t done = 0, mark = 0;
    for (; done < run->count; done++) {
        int64_t n = 0;
        entry_t entry = {0};
        int is_new, is_full;
        bytes_t pos = get_varint(at, end, &n);
        bytes_t next = pos + n;
        pos = get_varint(get_varint(pos + 1, next, &n), next, &n);
        Py_ssize_t size = tail_size(pos, next, &entry.key, &entry.has_headers);
        while (mark + 1 < run->marks_used && run->marks[mark + 1].from <= done) {
            mark++;
        }
        entry.timestamp = run->marks[mark].timestamp;
        entry.tail = (span){(const char *)pos, next - pos};
        int slot = slot_of(door, topic, entry.key);
        run_t *child = joined(door, run->topic, topic, slot, size, run->terms, run->since, &is_new, &is_full);
        if (child == NULL || put(door, topic, child, slot, &entry, size) < 0) {
            break;
        }
        Py_INCREF(OBJECT(child));
        children[done] = (child_t){child, child->count - 1};
        left -= size;
        at = next;
    }
    if (done < run->count || move_late(run, children) < 0) {
        for (uint32_t index = 0; index < done; index++) {
            Py_DECREF(OBJECT(children[index].run));
        }
        PyMem_Free(children);
        return -1;
    }
    if (run->count) {
        children[run->count - 1].run->buffered_bytes += left; /* what came in is what is given back */
    }
    run->children = children;
    int failed = callbacks_move(run, children) < 0; /* nothing runs between these two: a place that ends finds its note */
    run_forget(run);
    return failed ? -1 : 0;
}

/* (topic, count, ring, waiting, apart) */
PyObject *
door_route(door_t *door, PyObject *args)
{
    PyObject *name, *ring_object, *waiting_object, *ring = NULL, *waiting = NULL, *answer = NULL;
    int count, apart, *numbers = NULL;
    if (!PyArg_ParseTuple(args, "UiOOp", &name, &count, &ring_object, &waiting_object, &apart)) {
        return NULL;
    }
    door->users++;
    topic_t *topic = get_topic(door, name);
    PyObject *others = PyList_New(0), *untaken = PyList_New(0);
    ring = PySequence_List(ring_object);
    waiting = PySequence_List(waiting_object);
    if (topic == NULL || others == NULL || untaken == NULL || ring == NULL || waiting == NULL) {
        goto done;
    }
    Py_ssize_t ring_used = PyList_Size(ring);
    numbers = PyMem_Calloc(ring_used ? (size_t)ring_used : 1, sizeof(int));
    if (numbers == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t index = 0; index < ring_used; index++) {
        numbers[index] = (int)PyLong_AsLong(PyList_GetItem(ring, index));
    }
    for (Py_ssize_t index = 0; index < PyList_Size(waiting); index++) {
        if (!Py_IS_TYPE(PyList_GetItem(waiting, index), door->run_type)) {
            PyErr_SetString(PyExc_TypeError, "only runs wait");
        }
    }
    if (PyErr_Occurred()) {
        goto done;
    }
    topic->count = count;
    PyMem_Free(topic->ring);
    topic->ring = numbers;
    topic->ring_used = (int)ring_used;
    numbers = NULL;
    if (count) {
        for (Py_ssize_t index = 0; index < PyList_Size(door->fresh); index++) {
            PyObject *run = PyList_GetItem(door->fresh, index);
            int is_one = ((run_t *)run)->partition == UNROUTED && find_topic(door, ((run_t *)run)->topic) == topic;
            if (PyList_Append(is_one ? untaken : others, run) < 0) {
                goto done;
            }
        }
        PyList_SetSlice(door->fresh, 0, PyList_Size(door->fresh), others);
        run_t *open = topic->unrouted;
        topic->unrouted = NULL;
        Py_XDECREF(OBJECT(open));
        for (Py_ssize_t index = 0; index < PyList_Size(waiting); index++) {
            if (route_run(door, topic, (run_t *)PyList_GetItem(waiting, index)) < 0) {
                goto done;
            }
        }
        for (int index = 0; apart && index < topic->open_room; index++) {
            if (topic->open[index] != NULL) {
                topic->open[index]->is_closed = 1;
            }
        }
        if (apart && topic->undesignated != NULL) {
            topic->undesignated->is_closed = 1;
        }
        for (Py_ssize_t index = 0; index < PyList_Size(untaken); index++) {
            if (route_run(door, topic, (run_t *)PyList_GetItem(untaken, index)) < 0) {
                goto done;
            }
        }
    }
    answer = Py_None;
    Py_INCREF(answer);
done:
    door->users--;
    PyMem_Free(numbers);
    Py_XDECREF(others);
    Py_XDECREF(untaken);
    Py_XDECREF(ring);
    Py_XDECREF(waiting);
    return answer;
}

/* (topic, partition | None, timestamp, key, value, headers, size, terms) -> (run, number) | None */
static PyObject *
door_append(door_t *door, PyObject *args)
{
    PyObject *name, *partition, *key, *value, *terms;
    entry_t entry = {0};
    long long timestamp;
    Py_ssize_t size;
    int64_t asked = 0;
    if (!PyArg_ParseTuple(args, "UOLOOO!nO", &name, &partition, &timestamp, &key, &value, &PyTuple_Type, &entry.headers,
                          &size, &terms)) {
        return NULL;
    }
    entry.timestamp = timestamp;
    if (!is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value) ||
        (partition != Py_None && !is_int(partition, INT32_MAX, &asked))) {
        PyErr_SetString(PyExc_TypeError, "a record has bytes or None, and a partition from 0 to 2**31 - 1 or None");
        return NULL;
    }
    topic_t *topic = get_topic(door, name);
    if (topic == NULL) {
        return NULL;
    }
    if (!has_room(door, topic, size)) {
        Py_RETURN_NONE;
    }
    int slot = partition == Py_None ? slot_of(door, topic, entry.key) : (int)asked, is_new = 0, is_full = 0;
    door->users++;
    run_t *run = joined(door, name, topic, slot, size, terms, Py_None, &is_new, &is_full);
    int failed = run == NULL || put(door, topic, run, slot, &entry, size) < 0;
    door->users--;
    if (failed) {
        return NULL;
    }
    use(door, topic, size);
    uint32_t number = run->count - 1;
    Py_INCREF(OBJECT(run));
    PyObject *answer = NULL;
    if (!must_wake(door, is_new, is_full || run->is_closed) || wake(door) == 0) {
        answer = Py_BuildValue("(OI)", run, number);
    }
    Py_DECREF(OBJECT(run));
    return answer;
}

/* ---- many at once: for _bulk.c ------------------------------------------------------------------------------------ */

topic_t *
door_topic(door_t *door, PyObject *name)
{
    return get_topic(door, name);
}

Py_ssize_t
door_record_bytes_max(const door_t *door)
{
    return door->record_bytes_max;
}

Py_ssize_t
door_room(const door_t *door, const topic_t *topic)
{
    return room_of(door, topic);
}

int
door_is_first(const door_t *door, const topic_t *topic, Py_ssize_t size)
{
    return is_first(door, topic, size);
}

void
door_hold_topics(door_t *door, int change)
{
    door->users += change;
}

void
door_use(door_t *door, topic_t *topic, Py_ssize_t size)
{
    use(door, topic, size);
}

void
door_sum(const door_t *door, run_t *run)
{
    if (door->sums) {
        run_sum(run);
    }
}

int
door_takes_turns(const door_t *door)
{
    return door->hash == TURNS;
}

int
door_slot(const door_t *door, topic_t *topic, span key)
{
    return slot_of(door, topic, key);
}

int
door_admit(door_t *door, PyObject *name, topic_t *topic, int slot, const entry_t *entry, Py_ssize_t size, run_t **run,
           news_t *news)
{
    *run = joined(door, name, topic, slot, size, Py_None, Py_None, &news->is_new, &news->is_full);
    if (*run == NULL || put(door, topic, *run, slot, entry, size) < 0) {
        return -1;
    }
    use(door, topic, size);
    news->is_full |= (*run)->is_closed;
    return 0;
}

int
door_tell(door_t *door, const news_t *news)
{
    return must_wake(door, news->is_new, news->is_full) ? wake(door) : 0;
}

/* ---- for who drains ---------------------------------------------------------------------------------------------- */

static PyObject *
door_take(door_t *door, PyObject *Py_UNUSED(none))
{
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return NULL;
    }
    PyObject *taken = door->fresh;
    door->fresh = fresh;
    door->is_woken = door->gathers = 0;
    return taken;
}

static PyObject *
door_untaken(door_t *door, PyObject *Py_UNUSED(none))
{
    Py_ssize_t total = 0;
    for (Py_ssize_t index = 0; index < PyList_Size(door->fresh); index++) {
        total += (Py_ssize_t)((run_t *)PyList_GetItem(door->fresh, index))->count;
    }
    return PyLong_FromSsize_t(total);
}

static PyObject *
door_gather(door_t *door, PyObject *Py_UNUSED(none))
{
    door->gathers = 1;
    Py_RETURN_NONE;
}

static PyObject *
door_release(door_t *door, PyObject *args)
{
    PyObject *name;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Un", &name, &size)) {
        return NULL;
    }
    topic_t *topic = find_topic(door, name);
    if (topic == NULL || size > topic->used_bytes) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AssertionError, "more memory was given back than was taken");
        }
        return NULL;
    }
    use(door, topic, -size);
    Py_RETURN_NONE;
}

static PyObject *
door_held(door_t *door, PyObject *name)
{
    topic_t *topic = PyUnicode_Check(name) ? find_topic(door, name) : NULL;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(topic == NULL ? 0 : topic->used_bytes);
}

/* -> (topic, bytes) */
static PyObject *
door_largest(door_t *door, PyObject *Py_UNUSED(none))
{
    PyObject *name, *capsule, *largest = NULL;
    Py_ssize_t at = 0, most = -1;
    while (PyDict_Next(door->topics, &at, &name, &capsule)) {
        const topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
        if (topic->used_bytes > most) {
            largest = name;
            most = topic->used_bytes;
        }
    }
    return largest == NULL ? Py_BuildValue("(sn)", "", (Py_ssize_t)0) : Py_BuildValue("(On)", largest, most);
}

static PyObject *
door_await(door_t *door, PyObject *args)
{
    PyObject *name;
    int is_awaited;
    if (!PyArg_ParseTuple(args, "Up", &name, &is_awaited)) {
        return NULL;
    }
    topic_t *topic = get_topic(door, name);
    if (topic == NULL) {
        return NULL;
    }
    topic->is_awaited = (char)is_awaited;
    Py_RETURN_NONE;
}

static PyObject *
door_limit(door_t *door, PyObject *args)
{
    PyObject *name;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTuple(args, "Un", &name, &bytes_max)) {
        return NULL;
    }
    topic_t *topic = get_topic(door, name);
    if (topic == NULL) {
        return NULL;
    }
    topic->bytes_max = bytes_max < 1 ? 1 : bytes_max;
    Py_RETURN_NONE;
}

/* ---- the type ---------------------------------------------------------------------------------------------------- */

static PyObject *
door_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"place", "dispatch", "batch_bytes", "bytes_max", "record_bytes_max", "key_hash",
                               "may_share", "time_ms", "wakeup", "refer", "by_system", "sums", NULL};
    PyObject *place, *dispatch, *may_share, *time_ms, *wakeup, *refer;
    const char *hash;
    Py_ssize_t batch_bytes, bytes_max, record_bytes_max;
    int by_system, sums;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOnnnzOOOOpp", keywords, &place, &dispatch, &batch_bytes, &bytes_max,
                                     &record_bytes_max, &hash, &may_share, &time_ms, &wakeup, &refer, &by_system, &sums)) {
        return NULL;
    }
    PyObject *module = PyType_GetModule(type);
    PyObject *run_type = module == NULL ? NULL : PyObject_GetAttrString(module, "BatchBuilder");
    PyObject *base = run_type == NULL ? NULL : PyObject_GetAttrString(module, "RecordFuture");
    door_t *door = NULL;
    int is_remade = 0;
    if (base != NULL && (!PyType_Check(place) || !PyType_IsSubtype((PyTypeObject *)place, (PyTypeObject *)base))) {
        PyErr_SetString(PyExc_TypeError, "place is to be a kind of RecordFuture");
    }
    else if (base != NULL && (is_remade = is_remade_type((PyTypeObject *)place)) >= 0) {
        door = (door_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    }
    Py_XDECREF(base);
    if (door == NULL) {
        Py_XDECREF(run_type);
        return NULL;
    }
    memory_enter(MEMORY_OF_RUNS);
    door->run_type = (PyTypeObject *)run_type;
    door->place_type = (PyTypeObject *)place;
    door->remade_type = is_remade ? door->place_type : NULL;
    door->dispatch = dispatch;
    door->may_share = may_share;
    door->time_ms = time_ms;
    door->wakeup = wakeup;
    door->refer = refer;
    PyObject *held[] = {place, dispatch, may_share, time_ms, wakeup, refer};
    for (size_t index = 0; index < sizeof(held) / sizeof(held[0]); index++) {
        Py_INCREF(held[index]);
    }
    door->batch_bytes = batch_bytes;
    door->bytes_max = bytes_max;
    door->record_bytes_max = record_bytes_max;
    door->hash = hash == NULL ? TURNS : strcmp(hash, "crc32") == 0 ? CRC32 : strcmp(hash, "") == 0 ? KEYS_IGNORED : MURMUR2;
    door->by_system = (char)by_system;
    door->sums = (char)sums;
    door->fresh = PyList_New(0);
    door->topics = PyDict_New();
    if (door->fresh == NULL || door->topics == NULL) {
        Py_DECREF(OBJECT(door));
        return NULL;
    }
    return (PyObject *)door;
}

static int
door_traverse(door_t *door, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(OBJECT(door)));
    Py_VISIT(door->dispatch);
    Py_VISIT(door->may_share);
    Py_VISIT(door->time_ms);
    Py_VISIT(door->wakeup);
    Py_VISIT(door->refer);
    Py_VISIT(door->fresh);
    Py_VISIT(door->topics);
    Py_VISIT(door->place_type);
    Py_VISIT(door->run_type);
    return 0;
}

static int
door_clear(door_t *door)
{
    door->is_open = 0; /* `send` needs what is let go */
    door->last = NULL;
    Py_CLEAR(door->last_name);
    Py_CLEAR(door->keywords.names);
    Py_CLEAR(door->dispatch);
    Py_CLEAR(door->may_share);
    Py_CLEAR(door->time_ms);
    Py_CLEAR(door->wakeup);
    Py_CLEAR(door->refer);
    Py_CLEAR(door->fresh);
    Py_CLEAR(door->topics);
    return 0;
}

static void
door_dealloc(door_t *door)
{
    PyTypeObject *type = Py_TYPE(OBJECT(door));
    PyObject_GC_UnTrack(door);
    door_clear(door);
    memory_leave(MEMORY_OF_RUNS);
    Py_CLEAR(door->place_type);
    Py_CLEAR(door->run_type);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(door);
    Py_DECREF(type);
}

static PyMethodDef door_methods[] = {
    {"send", (PyCFunction)(void (*)(void))door_send, METH_FASTCALL | METH_KEYWORDS,
     "send($self, /, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None)\n"
     "--\n\nHand over one record; see kwire.Producer.send."},
    {"append", (PyCFunction)(void (*)(void))door_append, METH_VARARGS, "Take a record in; None: there is no room."},
    {"append_many", (PyCFunction)(void (*)(void))door_append_many, METH_VARARGS, "(topic, columns, start, end)"},
    {"take", (PyCFunction)(void (*)(void))door_take, METH_NOARGS, "The runs that are new since the last time."},
    {"untaken", (PyCFunction)(void (*)(void))door_untaken, METH_NOARGS, "How many records are in those."},
    {"gather", (PyCFunction)(void (*)(void))door_gather, METH_NOARGS, "Wake only for a full run."},
    {"release", (PyCFunction)(void (*)(void))door_release, METH_VARARGS, "(topic, bytes): give back memory."},
    {"held", (PyCFunction)(void (*)(void))door_held, METH_O, "How much of the memory a topic holds, in bytes."},
    {"largest", (PyCFunction)(void (*)(void))door_largest, METH_NOARGS, "The topic that holds most, and how much."},
    {"set_awaited", (PyCFunction)(void (*)(void))door_await, METH_VARARGS, "(topic, is_awaited)"},
    {"limit", (PyCFunction)(void (*)(void))door_limit, METH_VARARGS, "(topic, bytes_max)"},
    {"forget", (PyCFunction)door_forget, METH_O, "Drop what is known of a topic; False: not now."},
    {"route", (PyCFunction)(void (*)(void))door_route, METH_VARARGS, "(topic, count, ring, waiting, apart)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef door_members[] = {
    {"is_open", T_BOOL, offsetof(door_t, is_open), 0, NULL},
    {"is_short", T_BOOL, offsetof(door_t, is_short), 0, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(door_t, bytes_max), 0, NULL},
    {"used_bytes", T_PYSSIZET, offsetof(door_t, used_bytes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot door_slots[] = {
    {Py_tp_new, door_make},
    {Py_tp_traverse, door_traverse},
    {Py_tp_clear, door_clear},
    {Py_tp_dealloc, door_dealloc},
    {Py_tp_methods, door_methods},
    {Py_tp_members, door_members},
    {0, NULL},
};

static PyType_Spec door_spec = {
    "kwire.wire._speedups.RecordAccumulator", sizeof(door_t), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, door_slots,
};

int
add_accumulator(PyObject *module)
{
    add_topics();
    PyObject *type = add_send() < 0 ? NULL : PyType_FromModuleAndSpec(module, &door_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "RecordAccumulator", type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}
