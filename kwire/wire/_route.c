/* `RecordAccumulator.route` in C: a topic's partitions become known, and the records that wait for that go where they belong.
 * `_door.py` is the specification.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include "_topics.h"

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
