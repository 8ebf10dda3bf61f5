/* A door and its topics, as _door.c, _topics.c, _route.c and _send.c share them. `_door.py` is the specification.
 *
 * Include bulk.h before.
 */
#ifndef KWIRE_TOPICS_H
#define KWIRE_TOPICS_H

#include "clock.h"

enum { TURNS, MURMUR2, CRC32, KEYS_IGNORED };

/* The arguments of `send`. */
enum { TOPIC, VALUE, KEY, HEADERS, PARTITION, TIMESTAMP, ON_DELIVERY, ARGUMENTS };

typedef struct {
    PyObject *names; /* NULL or the tuple that a call had */
    Py_ssize_t nargs, count;
    unsigned char at[ARGUMENTS];
} keywords_t;

struct topic {
    int count, ring_used, open_room, next;
    int *ring;
    Py_ssize_t bytes_max;
    Py_ssize_t used_bytes; /* of the memory: what its records count as that are not resolved */
    char is_awaited;       /* senders wait for memory for it: whoever comes now is behind them */
    size_t hint;           /* the room that the last full run had */
    run_t **open;
    run_t *undesignated, *unrouted;
};

struct door {
    PyObject_HEAD
    char is_open, is_short, is_woken, gathers, by_system, sums, hash;
    Py_ssize_t bytes_max, used_bytes, batch_bytes, record_bytes_max;
    PyObject *dispatch, *may_share, *time_ms, *wakeup, *refer, *fresh;
    daytime_t daytime;
    PyObject *topics;      /* name: capsule of topic_t */
    PyObject *last_name;   /* the name that was given last, found again by its address */
    topic_t *last;
    keywords_t keywords; /* of the last call of `send` that had some */
    PyTypeObject *place_type, *run_type;
    int users; /* calls that have a topic_t at hand and may run other code meanwhile: no topic is freed then */
    PyTypeObject *remade_type; /* `place_type` where nobody can tell a place from one that is made again, else NULL */
};

/* ---- _topics.c --------------------------------------------------------------------------------------------------- */

/* NULL without an exception when it is not there. */
topic_t *look_up_topic(door_t *door, PyObject *name);
/* NULL with an exception. */
topic_t *get_topic(door_t *door, PyObject *name);
PyObject *door_forget(door_t *door, PyObject *name);
/* Where the open run of a slot is kept; NULL with an exception, or without one where none is kept. */
run_t **place_of(topic_t *topic, int slot);
int slot_by_key(int hash, int count, span key);
int slot_by_turn(topic_t *topic);
/* The run that a record of `slot` joins, a new one where it may not join the open one; borrowed. No Python code runs but
 * where somebody has terms. Sets `*is_new` and `*is_full` where it began or filled a run. */
run_t *joined(door_t *door, PyObject *name, topic_t *topic, int slot, Py_ssize_t size, PyObject *terms, PyObject *since,
              int *is_new, int *is_full);
/* Puts a record into the run that `joined` has found. After an error a run that was new may be left empty: it is taken
 * out again. */
int put(door_t *door, topic_t *topic, run_t *run, int slot, const entry_t *entry, Py_ssize_t size);
/* Whether who drains is to be woken; then it is as good as done. */
int must_wake(door_t *door, int is_new, int is_full);
int wake(door_t *door);
void add_topics(void);

static inline topic_t *
find_topic(door_t *door, PyObject *name)
{
    return name == door->last_name ? door->last : look_up_topic(door, name);
}

static inline int
slot_of(const door_t *door, topic_t *topic, span key)
{
    if (topic->count < 2) {
        return topic->count ? 0 : UNROUTED;
    }
    if (door->hash == TURNS) {
        return slot_by_turn(topic);
    }
    return key.size < 0 || door->hash == KEYS_IGNORED ? UNDESIGNATED : slot_by_key(door->hash, topic->count, key);
}

/* How many times what is free then a topic may hold; while memory is short, which part of it. See `_door.py`. */
#define SHARE 16

/* So many bytes of records a topic may still get; not above 0 where it has its share. */
static inline Py_ssize_t
room_of(const door_t *door, const topic_t *topic)
{
    Py_ssize_t unused = door->bytes_max - door->used_bytes, held = topic->used_bytes;
    if (unused > PY_SSIZE_T_MAX / (2 * SHARE)) {
        unused = PY_SSIZE_T_MAX / (2 * SHARE);
    }
    if (unused <= 0 || (door->is_short && held > unused)) { /* the products below stay within bounds */
        return 0;
    }
    return (door->is_short ? unused - SHARE * held : SHARE * unused - held) / (SHARE + 1);
}

/* Whether a record goes in as the first: of all, whatever its size, or of its topic. */
static inline int
is_first(const door_t *door, const topic_t *topic, Py_ssize_t size)
{
    return door->used_bytes == 0 ||
           (topic->used_bytes == 0 && !door->is_short && size <= door->bytes_max - door->used_bytes);
}

static inline int
has_room(const door_t *door, const topic_t *topic, Py_ssize_t size)
{
    return size <= room_of(door, topic) || is_first(door, topic, size);
}

static inline void
use(door_t *door, topic_t *topic, Py_ssize_t size)
{
    door->used_bytes += size;
    topic->used_bytes += size;
}

/* ---- _send.c and _route.c: methods of the door -------------------------------------------------------------------- */

PyObject *door_send(door_t *door, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int is_int(PyObject *object, int64_t limit, int64_t *found);
int add_send(void);
PyObject *door_route(door_t *door, PyObject *args);

#endif
