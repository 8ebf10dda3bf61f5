/* RecordAccumulator and its topics: see kwire/producer/accumulator.py.
 *
 * No Python code runs between reading an accumulator and changing it, so the GIL is the only lock. After a call into
 * Python (`may_share`), all state is read again.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"
#include "accumulator.h"
#include "buffers.h"
#include <structmember.h>

static uint32_t crc32_table[256];

/* ---- topics ------------------------------------------------------------------------------------------------------ */

/* A builder that ends here may run code, which may add a topic or a builder. */
static void
drop_builders(topic_t *topic)
{
    for (int index = 0; index < topic->open_capacity; index++) {
        Py_CLEAR(topic->open[index]);
    }
    Py_CLEAR(topic->undesignated);
    Py_CLEAR(topic->unrouted);
}

static void
free_topic(PyObject *capsule)
{
    topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
    drop_builders(topic);
    PyMem_Free(topic->open);
    PyMem_Free(topic->ring);
    PyMem_Free(topic);
}

topic_t *
look_up_topic(accumulator_t *accumulator, PyObject *name)
{
    PyObject *capsule = PyDict_GetItemWithError(accumulator->topics, name);
    if (capsule == NULL) {
        return NULL;
    }
    topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
    PyObject *old_name = accumulator->last_name;
    Py_INCREF(name);
    accumulator->last_name = name;
    accumulator->last = topic;
    Py_XDECREF(old_name); /* a str: runs no code */
    return topic;
}

topic_t *
get_topic(accumulator_t *accumulator, PyObject *name)
{
    topic_t *topic = find_topic(accumulator, name);
    if (topic != NULL || PyErr_Occurred()) {
        return topic;
    }
    topic = PyMem_Calloc(1, sizeof(topic_t));
    if (topic == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    topic->bytes_max = accumulator->batch_bytes;
    PyObject *capsule = PyCapsule_New(topic, NULL, free_topic);
    if (capsule == NULL) {
        PyMem_Free(topic);
        return NULL;
    }
    int failed = PyDict_SetItem(accumulator->topics, name, capsule) < 0;
    Py_DECREF(capsule);
    return failed ? NULL : topic;
}

/* Do nothing while a call uses a topic; otherwise nothing refers to the memory freed here. */
PyObject *
accumulator_forget(accumulator_t *accumulator, PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a topic is a str");
        return NULL;
    }
    topic_t *topic = find_topic(accumulator, name);
    if (topic == NULL) {
        return PyErr_Occurred() ? NULL : PyBool_FromLong(1);
    }
    if (accumulator->users || topic->used_bytes || topic->is_awaited) {
        Py_RETURN_FALSE;
    }
    accumulator->last = NULL;
    Py_CLEAR(accumulator->last_name);
    return PyDict_DelItem(accumulator->topics, name) < 0 ? NULL : PyBool_FromLong(1);
}

static PyObject *
accumulator_drop_builders(accumulator_t *accumulator, PyObject *Py_UNUSED(none))
{
    PyObject *capsules = PyDict_Values(accumulator->topics);
    if (capsules == NULL) {
        return NULL;
    }
    for (Py_ssize_t index = 0; index < PyList_Size(capsules); index++) {
        drop_builders(PyCapsule_GetPointer(PyList_GetItem(capsules, index), NULL));
    }
    Py_DECREF(capsules);
    Py_RETURN_NONE;
}

builder_t **
open_slot(topic_t *topic, int slot)
{
    if (slot < 0) {
        return slot == UNROUTED ? &topic->unrouted : &topic->undesignated;
    }
    if (slot >= topic->open_capacity) {
        if (slot >= PARTITIONS_MAX) {
            return NULL;
        }
        int capacity = slot + 1 > topic->count ? slot + 1 : topic->count;
        capacity = capacity > PARTITIONS_MAX ? PARTITIONS_MAX : capacity;
        builder_t **open = PyMem_Realloc(topic->open, (size_t)capacity * sizeof(builder_t *));
        if (open == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(open + topic->open_capacity, 0, (size_t)(capacity - topic->open_capacity) * sizeof(builder_t *));
        topic->open = open;
        topic->open_capacity = capacity;
    }
    return &topic->open[slot];
}

/* ---- partition choice -------------------------------------------------------------------------------------------- */

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

/* ---- appending --------------------------------------------------------------------------------------------------- */

builder_t *
joined(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, Py_ssize_t size, PyObject *terms,
       PyObject *since, int *is_new, int *is_full)
{
    builder_t **future;
    for (;;) {
        future = open_slot(topic, slot);
        if (future == NULL && PyErr_Occurred()) {
            return NULL;
        }
        builder_t *builder = future == NULL ? NULL : *future;
        if (builder == NULL || builder->is_closed) {
            break;
        }
        if (builder_size(builder) + size > builder->bytes_max) {
            builder->is_closed = 1;
            *is_full = 1;
            topic->hint = builder->capacity;
            break;
        }
        if (builder->terms == Py_None && terms == Py_None) {
            return builder;
        }
        Py_INCREF(OBJECT(builder));
        PyObject *result = PyObject_CallFunctionObjArgs(accumulator->may_share, builder->terms, terms, NULL);
        int may_share = result == NULL ? -1 : PyObject_IsTrue(result);
        Py_XDECREF(result);
        future =
            open_slot(topic, slot); /* the slot may have moved, the builder may be full, closed or replaced */
        int is_same = future != NULL && *future == builder && !builder->is_closed &&
                      builder_size(builder) + size <= builder->bytes_max;
        if (may_share == 0 && is_same) {
            builder->is_closed = 1;
            *is_full = 1;
        }
        Py_DECREF(OBJECT(builder)); /* the future has it */
        if (may_share < 0) {
            return NULL;
        }
        if (is_same) {
            if (may_share) {
                return builder;
            }
            break;
        }
    }
    builder_t *builder = (builder_t *)builder_new(accumulator->builder_type, name, slot, topic->bytes_max, terms,
                                                  accumulator->dispatch, accumulator->plain_future_type);
    if (builder == NULL || PyList_Append(accumulator->fresh, (PyObject *)builder) < 0) {
        Py_XDECREF(OBJECT(builder));
        return NULL;
    }
    Py_INCREF(since);
    Py_DECREF(builder->since); /* None */
    builder->since = since;
    *is_new = 1;
    if (future == NULL) {
        Py_DECREF(OBJECT(builder)); /* the list has it */
        return builder;
    }
    builder_t *before = *future;
    *future = builder;
    Py_XDECREF(OBJECT(before)); /* the event loop or the list has it */
    return builder;
}

/* Make space for the partition that the builder's next record chose. */
static int
reserve_chosen(builder_t *builder)
{
    if (builder->count < builder->chosen_capacity) {
        return 0;
    }
    uint32_t capacity = builder->count + builder->count / 2 + 16;
    uint32_t *grown = PyMem_Realloc(builder->chosen, (size_t)capacity * sizeof(uint32_t));
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(grown + builder->chosen_capacity, 0, (size_t)(capacity - builder->chosen_capacity) * sizeof(uint32_t));
    builder->chosen = grown;
    builder->chosen_capacity = capacity;
    return 0;
}

int
put(accumulator_t *accumulator, topic_t *topic, builder_t *builder, int slot, const entry_t *entry, Py_ssize_t size)
{
    if ((entry->chosen && reserve_chosen(builder) < 0) || builder_put(builder, entry, size, topic->hint) < 0) {
        if (builder->count == 0) {
            builder_t **future = open_slot(topic, slot);
            if (future != NULL && *future == builder) {
                *future = NULL;
                Py_DECREF(OBJECT(builder));
            }
            Py_ssize_t last = PyList_Size(accumulator->fresh) - 1;
            PyList_SetSlice(accumulator->fresh, last, last + 1, NULL);
        }
        return -1;
    }
    if (entry->chosen) {
        builder->chosen[builder->count - 1] = entry->chosen;
    }
    if (slot >= PARTITIONS_MAX) {
        builder->is_closed = 1;
    }
    if (builder->is_closed) {
        topic->hint = builder->capacity;
    }
    accumulator_sum(accumulator, builder);
    return 0;
}

int
must_wake(accumulator_t *accumulator, int is_new, int is_full)
{
    if (accumulator->is_woken || !(is_full || (is_new && !accumulator->gathers))) {
        return 0;
    }
    accumulator->is_woken = 1;
    return 1;
}

/* Wake the loop, and keep a pending exception. An interrupt may have come before the wakeup: then wake it again, since
 * nothing else wakes it for this record. */
int
wake(accumulator_t *accumulator)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallNoArgs(accumulator->wakeup);
    if (result == NULL && type == NULL) {
        PyErr_Fetch(&type, &value, &traceback);
        result = PyObject_CallNoArgs(accumulator->wakeup);
    }
    Py_XDECREF(result);
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

/* Return the record's upper bound; this file wrote its key, value and headers. */
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

/* Move the waiters to the current builders of their records. */
static int
move_late(builder_t *builder, const child_t *children)
{
    for (Py_ssize_t index = 0; builder->waiters != NULL && index < PyList_Size(builder->waiters); index++) {
        PyObject *one = PyList_GetItem(builder->waiters, index);
        const child_t *child = &children[PyLong_AsUnsignedLong(PyTuple_GetItem(one, 0))];
        PyObject *moved = Py_BuildValue("(IOOO)", child->number, PyTuple_GetItem(one, 1), PyTuple_GetItem(one, 2),
                                        PyTuple_GetItem(one, 3));
        if (moved == NULL || (child->builder->waiters == NULL && (child->builder->waiters = PyList_New(0)) == NULL) ||
            PyList_Append(child->builder->waiters, moved) < 0) {
            Py_XDECREF(moved);
            return -1;
        }
        Py_DECREF(moved);
    }
    return 0;
}

static int
route_run(accumulator_t *accumulator, topic_t *topic, builder_t *builder)
{
    builder->is_closed = 1;
    child_t *children = PyMem_Calloc(builder->count ? builder->count : 1, sizeof(child_t));
    if (children == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t left = builder->buffered_bytes;
    bytes_t at = builder->data + BATCH_OVERHEAD, end = at + builder->used;
    uint32_t done = 0, mark = 0;
    for (; done < builder->count; done++) {
        int64_t n = 0;
        entry_t entry = {0};
        int is_new, is_full;
        bytes_t pos = get_varint(at, end, &n);
        bytes_t next = pos + n;
        pos = get_varint(get_varint(pos + 1, next, &n), next, &n);
        Py_ssize_t size = tail_size(pos, next, &entry.key, &entry.has_headers);
        while (mark + 1 < builder->marks_used && builder->marks[mark + 1].from <= done) {
            mark++;
        }
        entry.timestamp = builder->marks[mark].timestamp;
        entry.tail = (span){(const char *)pos, next - pos};
        uint32_t chosen = done < builder->chosen_capacity ? builder->chosen[done] : 0;
        int slot = slot_for(accumulator, topic, (int64_t)chosen - 1, &entry);
        builder_t *child =
            joined(accumulator, builder->topic, topic, slot, size, builder->terms, builder->since, &is_new, &is_full);
        if (child == NULL || put(accumulator, topic, child, slot, &entry, size) < 0) {
            break;
        }
        Py_INCREF(OBJECT(child));
        children[done] = (child_t){child, child->count - 1};
        left -= size;
        at = next;
    }
    if (done < builder->count || move_late(builder, children) < 0) {
        for (uint32_t index = 0; index < done; index++) {
            Py_DECREF(OBJECT(children[index].builder));
        }
        PyMem_Free(children);
        return -1;
    }
    if (builder->count) {
        children[builder->count - 1].builder->buffered_bytes += left; /* the sum stays the same */
    }
    builder->children = children;
    int failed =
        callbacks_move(builder, children) < 0; /* no code runs in between: each future that ends finds its entry */
    builder_forget(builder);
    return failed ? -1 : 0;
}

/* (topic, count, ring, waiting, apart) */
PyObject *
accumulator_route(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name, *ring_object, *waiting_object, *ring = NULL, *waiting = NULL, *result = NULL;
    int count, apart, *numbers = NULL;
    if (!PyArg_ParseTuple(args, "UiOOp", &name, &count, &ring_object, &waiting_object, &apart)) {
        return NULL;
    }
    accumulator->users++;
    topic_t *topic = get_topic(accumulator, name);
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
        if (!Py_IS_TYPE(PyList_GetItem(waiting, index), accumulator->builder_type)) {
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
        for (Py_ssize_t index = 0; index < PyList_Size(accumulator->fresh); index++) {
            PyObject *builder = PyList_GetItem(accumulator->fresh, index);
            int is_one = ((builder_t *)builder)->partition == UNROUTED &&
                         find_topic(accumulator, ((builder_t *)builder)->topic) == topic;
            if (PyList_Append(is_one ? untaken : others, builder) < 0) {
                goto done;
            }
        }
        PyList_SetSlice(accumulator->fresh, 0, PyList_Size(accumulator->fresh), others);
        builder_t *open = topic->unrouted;
        topic->unrouted = NULL;
        Py_XDECREF(OBJECT(open));
        for (Py_ssize_t index = 0; index < PyList_Size(waiting); index++) {
            if (route_run(accumulator, topic, (builder_t *)PyList_GetItem(waiting, index)) < 0) {
                goto done;
            }
        }
        for (int index = 0; apart && index < topic->open_capacity; index++) {
            if (topic->open[index] != NULL) {
                topic->open[index]->is_closed = 1;
            }
        }
        if (apart && topic->undesignated != NULL) {
            topic->undesignated->is_closed = 1;
        }
        for (Py_ssize_t index = 0; index < PyList_Size(untaken); index++) {
            if (route_run(accumulator, topic, (builder_t *)PyList_GetItem(untaken, index)) < 0) {
                goto done;
            }
        }
    }
    result = Py_None;
    Py_INCREF(result);
done:
    accumulator->users--;
    PyMem_Free(numbers);
    Py_XDECREF(others);
    Py_XDECREF(untaken);
    Py_XDECREF(ring);
    Py_XDECREF(waiting);
    return result;
}

static PyObject *
append(accumulator_t *accumulator, PyObject *name, int64_t partition, entry_t *entry, Py_ssize_t size, PyObject *terms)
{
    topic_t *topic = get_topic(accumulator, name);
    if (topic == NULL) {
        return NULL;
    }
    if (!fits(accumulator, topic, size)) {
        Py_RETURN_NONE;
    }
    int slot = slot_for(accumulator, topic, partition, entry), is_new = 0, is_full = 0;
    accumulator->users++;
    builder_t *builder = joined(accumulator, name, topic, slot, size, terms, Py_None, &is_new, &is_full);
    int failed = builder == NULL || put(accumulator, topic, builder, slot, entry, size) < 0;
    accumulator->users--;
    if (failed) {
        return NULL;
    }
    use(accumulator, topic, size);
    uint32_t number = builder->count - 1;
    Py_INCREF(OBJECT(builder));
    PyObject *result = NULL;
    if (!must_wake(accumulator, is_new, is_full || builder->is_closed) || wake(accumulator) == 0) {
        result = Py_BuildValue("(OI)", builder, number);
    }
    Py_DECREF(OBJECT(builder));
    return result;
}

/* (topic, partition | None, timestamp, key, value, headers, size, terms) -> (builder, number) | None */
static PyObject *
accumulator_append(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name, *partition, *key, *value, *headers, *terms;
    entry_t entry = {0};
    long long timestamp;
    Py_ssize_t size;
    int64_t requested = -1;
    if (!PyArg_ParseTuple(args, "UOLOOO!nO", &name, &partition, &timestamp, &key, &value, &PyTuple_Type, &headers,
                          &size, &terms)) {
        return NULL;
    }
    entry.timestamp = timestamp;
    if (!is_nullable_bytes(key, &entry.key) || !is_nullable_bytes(value, &entry.value) ||
        (partition != Py_None && !is_int(partition, INT32_MAX, &requested))) {
        PyErr_SetString(PyExc_TypeError, "a record has bytes or None, and a partition from 0 to 2**31 - 1 or None");
        return NULL;
    }
    entry.headers = sendable_headers(headers); /* before any state is read */
    if (entry.headers == NULL) {
        return NULL;
    }
    PyObject *result = append(accumulator, name, requested, &entry, size, terms);
    Py_DECREF(entry.headers);
    return result;
}

/* ---- for bulk.c -------------------------------------------------------------------------------------------------- */

topic_t *
accumulator_topic(accumulator_t *accumulator, PyObject *name)
{
    return get_topic(accumulator, name);
}

Py_ssize_t
accumulator_record_bytes_max(const accumulator_t *accumulator)
{
    return accumulator->record_bytes_max;
}

Py_ssize_t
accumulator_capacity(const accumulator_t *accumulator, const topic_t *topic)
{
    return available_to(accumulator, topic);
}

int
accumulator_is_first(const accumulator_t *accumulator, const topic_t *topic, Py_ssize_t size)
{
    return is_first(accumulator, topic, size);
}

void
accumulator_hold_topics(accumulator_t *accumulator, int change)
{
    accumulator->users += change;
}

void
accumulator_use(accumulator_t *accumulator, topic_t *topic, Py_ssize_t size)
{
    use(accumulator, topic, size);
}

void
accumulator_sum(const accumulator_t *accumulator, builder_t *builder)
{
    if (accumulator->sums) {
        builder_sum(builder);
    }
}

int
accumulator_takes_turns(const accumulator_t *accumulator)
{
    return accumulator->hash == TURNS;
}

int
accumulator_slot(const accumulator_t *accumulator, topic_t *topic, int64_t partition, entry_t *entry)
{
    return slot_for(accumulator, topic, partition, entry);
}

int
accumulator_admit(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, const entry_t *entry,
                  Py_ssize_t size, builder_t **builder, wakeup_t *wakeup_of)
{
    *builder = joined(accumulator, name, topic, slot, size, Py_None, Py_None, &wakeup_of->is_new, &wakeup_of->is_full);
    if (*builder == NULL || put(accumulator, topic, *builder, slot, entry, size) < 0) {
        return -1;
    }
    use(accumulator, topic, size);
    wakeup_of->is_full |= (*builder)->is_closed;
    return 0;
}

int
accumulator_tell(accumulator_t *accumulator, const wakeup_t *wakeup_of)
{
    return must_wake(accumulator, wakeup_of->is_new, wakeup_of->is_full) ? wake(accumulator) : 0;
}

/* ---- for the event loop ------------------------------------------------------------------------------------------ */

static PyObject *
accumulator_take(accumulator_t *accumulator, PyObject *Py_UNUSED(none))
{
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return NULL;
    }
    PyObject *taken = accumulator->fresh;
    accumulator->fresh = fresh;
    accumulator->is_woken = accumulator->gathers = 0;
    return taken;
}

static PyObject *
accumulator_untaken(accumulator_t *accumulator, PyObject *Py_UNUSED(none))
{
    Py_ssize_t total = 0;
    for (Py_ssize_t index = 0; index < PyList_Size(accumulator->fresh); index++) {
        total += (Py_ssize_t)((builder_t *)PyList_GetItem(accumulator->fresh, index))->count;
    }
    return PyLong_FromSsize_t(total);
}

static PyObject *
accumulator_gather(accumulator_t *accumulator, PyObject *Py_UNUSED(none))
{
    accumulator->gathers = 1;
    Py_RETURN_NONE;
}

static PyObject *
accumulator_release(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Un", &name, &size)) {
        return NULL;
    }
    topic_t *topic = find_topic(accumulator, name);
    if (topic == NULL || size > topic->used_bytes) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AssertionError, "more memory was given back than was taken");
        }
        return NULL;
    }
    use(accumulator, topic, -size);
    Py_RETURN_NONE;
}

static PyObject *
accumulator_held(accumulator_t *accumulator, PyObject *name)
{
    topic_t *topic = PyUnicode_Check(name) ? find_topic(accumulator, name) : NULL;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(topic == NULL ? 0 : topic->used_bytes);
}

/* -> (topic, bytes) */
static PyObject *
accumulator_largest(accumulator_t *accumulator, PyObject *Py_UNUSED(none))
{
    PyObject *name, *capsule, *largest = NULL;
    Py_ssize_t at = 0, most = -1;
    while (PyDict_Next(accumulator->topics, &at, &name, &capsule)) {
        const topic_t *topic = PyCapsule_GetPointer(capsule, NULL);
        if (topic->used_bytes > most) {
            largest = name;
            most = topic->used_bytes;
        }
    }
    return largest == NULL ? Py_BuildValue("(sn)", "", (Py_ssize_t)0) : Py_BuildValue("(On)", largest, most);
}

static PyObject *
accumulator_await(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name;
    int is_awaited;
    if (!PyArg_ParseTuple(args, "Up", &name, &is_awaited)) {
        return NULL;
    }
    topic_t *topic = get_topic(accumulator, name);
    if (topic == NULL) {
        return NULL;
    }
    topic->is_awaited = (char)is_awaited;
    Py_RETURN_NONE;
}

static PyObject *
accumulator_limit(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name;
    Py_ssize_t bytes_max;
    if (!PyArg_ParseTuple(args, "Un", &name, &bytes_max)) {
        return NULL;
    }
    topic_t *topic = get_topic(accumulator, name);
    if (topic == NULL) {
        return NULL;
    }
    topic->bytes_max = bytes_max < 1 ? 1 : bytes_max;
    Py_RETURN_NONE;
}

/* ---- the type ---------------------------------------------------------------------------------------------------- */

static PyObject *
accumulator_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"future_class",     "dispatch",  "batch_bytes", "bytes_max", "record_bytes_max",
                               "key_hash",  "may_share", "time_ms",     "wakeup",    "slow_path",
                               "by_system", "sums",      NULL};
    PyObject *future, *dispatch, *may_share, *time_ms, *wakeup, *slow_path;
    const char *hash;
    Py_ssize_t batch_bytes, bytes_max, record_bytes_max;
    int by_system, sums;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOnnnzOOOOpp", keywords, &future, &dispatch, &batch_bytes,
                                     &bytes_max, &record_bytes_max, &hash, &may_share, &time_ms, &wakeup, &slow_path,
                                     &by_system, &sums)) {
        return NULL;
    }
    PyObject *module = PyType_GetModule(type);
    PyObject *builder_type = module == NULL ? NULL : PyObject_GetAttrString(module, "BatchBuilder");
    PyObject *base = builder_type == NULL ? NULL : PyObject_GetAttrString(module, "RecordFuture");
    accumulator_t *accumulator = NULL;
    int is_plain = 0;
    if (base != NULL && (!PyType_Check(future) || !PyType_IsSubtype((PyTypeObject *)future, (PyTypeObject *)base))) {
        PyErr_SetString(PyExc_TypeError, "future_class must be a subclass of RecordFuture");
    }
    else if (base != NULL && (is_plain = is_plain_future_type((PyTypeObject *)future)) >= 0) {
        accumulator = (accumulator_t *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    }
    Py_XDECREF(base);
    if (accumulator == NULL) {
        Py_XDECREF(builder_type);
        return NULL;
    }
    pool_add_user(POOL_OF_BUILDERS);
    accumulator->builder_type = (PyTypeObject *)builder_type;
    accumulator->future_type = (PyTypeObject *)future;
    accumulator->plain_future_type = is_plain ? accumulator->future_type : NULL;
    accumulator->dispatch = dispatch;
    accumulator->may_share = may_share;
    accumulator->time_ms = time_ms;
    accumulator->wakeup = wakeup;
    accumulator->slow_path = slow_path;
    PyObject *held[] = {future, dispatch, may_share, time_ms, wakeup, slow_path};
    for (size_t index = 0; index < sizeof(held) / sizeof(held[0]); index++) {
        Py_INCREF(held[index]);
    }
    accumulator->batch_bytes = batch_bytes;
    accumulator->bytes_max = bytes_max;
    accumulator->record_bytes_max = record_bytes_max;
    accumulator->hash = hash == NULL                 ? TURNS
                        : strcmp(hash, "crc32") == 0 ? CRC32
                        : strcmp(hash, "") == 0      ? KEYS_IGNORED
                                                     : MURMUR2;
    accumulator->by_system = (char)by_system;
    accumulator->sums = (char)sums;
    accumulator->fresh = PyList_New(0);
    accumulator->topics = PyDict_New();
    if (accumulator->fresh == NULL || accumulator->topics == NULL) {
        Py_DECREF(OBJECT(accumulator));
        return NULL;
    }
    return (PyObject *)accumulator;
}

static int
accumulator_traverse(accumulator_t *accumulator, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(OBJECT(accumulator)));
    Py_VISIT(accumulator->dispatch);
    Py_VISIT(accumulator->may_share);
    Py_VISIT(accumulator->time_ms);
    Py_VISIT(accumulator->wakeup);
    Py_VISIT(accumulator->slow_path);
    Py_VISIT(accumulator->fresh);
    Py_VISIT(accumulator->topics);
    Py_VISIT(accumulator->future_type);
    Py_VISIT(accumulator->builder_type);
    return 0;
}

static int
accumulator_clear(accumulator_t *accumulator)
{
    accumulator->is_open = 0; /* `send` needs the objects freed below */
    accumulator->last = NULL;
    Py_CLEAR(accumulator->last_name);
    Py_CLEAR(accumulator->keywords.names);
    Py_CLEAR(accumulator->dispatch);
    Py_CLEAR(accumulator->may_share);
    Py_CLEAR(accumulator->time_ms);
    Py_CLEAR(accumulator->wakeup);
    Py_CLEAR(accumulator->slow_path);
    Py_CLEAR(accumulator->fresh);
    Py_CLEAR(accumulator->topics);
    return 0;
}

static void
accumulator_dealloc(accumulator_t *accumulator)
{
    PyTypeObject *type = Py_TYPE(OBJECT(accumulator));
    PyObject_GC_UnTrack(accumulator);
    accumulator_clear(accumulator);
    pool_remove_user(POOL_OF_BUILDERS);
    Py_CLEAR(accumulator->future_type);
    Py_CLEAR(accumulator->builder_type);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(accumulator);
    Py_DECREF(type);
}

static PyMethodDef accumulator_methods[] = {
    {"send", (PyCFunction)(void (*)(void))accumulator_send, METH_FASTCALL | METH_KEYWORDS,
     "send($self, /, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None)\n"
     "--\n\nHand over one record; see kwire.Producer.send."},
    {"append", (PyCFunction)(void (*)(void))accumulator_append, METH_VARARGS,
     "Append a record; None: there is no memory for it."},
    {"append_many", (PyCFunction)(void (*)(void))accumulator_append_many, METH_VARARGS, "(topic, columns, start, end)"},
    {"take", (PyCFunction)(void (*)(void))accumulator_take, METH_NOARGS,
     "The builders that are new since the last call."},
    {"untaken", (PyCFunction)(void (*)(void))accumulator_untaken, METH_NOARGS, "How many records are in those."},
    {"gather", (PyCFunction)(void (*)(void))accumulator_gather, METH_NOARGS, "Wake only for a full builder."},
    {"release", (PyCFunction)(void (*)(void))accumulator_release, METH_VARARGS, "(topic, bytes): give back memory."},
    {"held", (PyCFunction)(void (*)(void))accumulator_held, METH_O, "How much of the memory a topic holds, in bytes."},
    {"largest", (PyCFunction)(void (*)(void))accumulator_largest, METH_NOARGS,
     "The topic that holds most, and how much."},
    {"set_awaited", (PyCFunction)(void (*)(void))accumulator_await, METH_VARARGS, "(topic, is_awaited)"},
    {"limit", (PyCFunction)(void (*)(void))accumulator_limit, METH_VARARGS, "(topic, bytes_max)"},
    {"forget", (PyCFunction)accumulator_forget, METH_O, "Drop what is known of a topic; False: not now."},
    {"drop_builders", (PyCFunction)accumulator_drop_builders, METH_NOARGS, "Drop the builders that records join."},
    {"route", (PyCFunction)(void (*)(void))accumulator_route, METH_VARARGS, "(topic, count, ring, waiting, apart)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef accumulator_members[] = {
    {"is_open", T_BOOL, offsetof(accumulator_t, is_open), 0, NULL},
    {"is_short", T_BOOL, offsetof(accumulator_t, is_short), 0, NULL},
    {"bytes_max", T_PYSSIZET, offsetof(accumulator_t, bytes_max), 0, NULL},
    {"used_bytes", T_PYSSIZET, offsetof(accumulator_t, used_bytes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot accumulator_slots[] = {
    {Py_tp_new, accumulator_make},
    {Py_tp_traverse, accumulator_traverse},
    {Py_tp_clear, accumulator_clear},
    {Py_tp_dealloc, accumulator_dealloc},
    {Py_tp_methods, accumulator_methods},
    {Py_tp_members, accumulator_members},
    {0, NULL},
};

static PyType_Spec accumulator_spec = {
    "kwire.wire._speedups.RecordAccumulator",
    sizeof(accumulator_t),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    accumulator_slots,
};

int
add_accumulator(PyObject *module)
{
    add_topics();
    PyObject *type = add_send() < 0 ? NULL : PyType_FromModuleAndSpec(module, &accumulator_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddObjectRef(module, "RecordAccumulator", type) < 0;
    Py_DECREF(type);
    return failed ? -1 : 0;
}
