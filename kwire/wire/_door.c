/* RecordAccumulator in C: see `_door.py`, its specification, for what it is.
 *
 * No Python code runs between looking at a door and changing it, so that the interpreter's lock is all the lock there is.
 * Where Python is asked in between (`may_share`), everything is looked at again afterwards.
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

#include "_topics.h"

#include "_memory.h"

#include <structmember.h>

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
add_door(PyObject *module)
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
