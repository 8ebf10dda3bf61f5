/* The accumulator and its topics, shared by accumulator.c and send.c.
 *
 * kwire/producer/accumulator.py is the specification. Include bulk.h before.
 */
#ifndef KWIRE_TOPICS_H
#define KWIRE_TOPICS_H

#include "clock.h"

enum { TURNS, MURMUR2, CRC32, KEYS_IGNORED };

/* The arguments of `send`. */
enum { TOPIC, VALUE, KEY, HEADERS, PARTITION, TIMESTAMP, ON_DELIVERY, ARGUMENTS };

typedef struct {
    PyObject *names; /* the call's tuple of keyword names, or NULL */
    Py_ssize_t nargs, count;
    unsigned char at[ARGUMENTS];
} keywords_t;

struct topic {
    int count, ring_used, open_capacity, next;
    int *ring;
    Py_ssize_t bytes_max;
    Py_ssize_t used_bytes; /* memory of its unresolved records */
    char is_awaited;       /* senders wait for memory for it; later senders queue behind them */
    size_t hint;           /* the capacity of the last full builder */
    builder_t **open;
    builder_t *undesignated, *unrouted;
};

struct accumulator {
    PyObject_HEAD char is_open, is_short, is_woken, gathers, by_system, sums, hash;
    Py_ssize_t bytes_max, used_bytes, batch_bytes, record_bytes_max;
    PyObject *dispatch, *may_share, *time_ms, *wakeup, *slow_path, *fresh;
    daytime_t daytime;
    PyObject *topics;    /* name: capsule of topic_t */
    PyObject *last_name; /* the name of the last lookup, compared by its address */
    topic_t *last;
    keywords_t keywords; /* of the last `send` with keywords */
    PyTypeObject *future_type, *builder_type;
    int users; /* calls that use a topic_t and may run other code: no topic is freed meanwhile */
    PyTypeObject
        *plain_future_type; /* `future_type` if a future can be recreated without a visible difference, else NULL */
};

/* ---- topics and builders ----------------------------------------------------------------------------------------- */

/* Return NULL without an exception if there is none. */
topic_t *look_up_topic(accumulator_t *accumulator, PyObject *name);
/* Return NULL with an exception on error. */
topic_t *get_topic(accumulator_t *accumulator, PyObject *name);
PyObject *accumulator_forget(accumulator_t *accumulator, PyObject *name);
/* Return the address of a slot's open builder; NULL with an exception, or without one if there is none. */
builder_t **open_slot(topic_t *topic, int slot);
int slot_by_key(int hash, int count, span key);
int slot_by_turn(topic_t *topic);
/* Return the builder (borrowed) that a record of `slot` joins: the open one or a new one. Set `*is_new` and `*is_full`
 * if it began or filled a builder. Python code runs only if the record or the builder has terms. */
builder_t *joined(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, Py_ssize_t size,
                  PyObject *terms, PyObject *since, int *is_new, int *is_full);
/* Append a record to the builder that `joined` returned. After an error, remove the builder if it is new and empty. */
int put(accumulator_t *accumulator, topic_t *topic, builder_t *builder, int slot, const entry_t *entry,
        Py_ssize_t size);
/* Return whether to wake the loop, and record that it is woken. */
int must_wake(accumulator_t *accumulator, int is_new, int is_full);
int wake(accumulator_t *accumulator);
void add_topics(void);

static inline topic_t *
find_topic(accumulator_t *accumulator, PyObject *name)
{
    return name == accumulator->last_name ? accumulator->last : look_up_topic(accumulator, name);
}

static inline int
slot_of(const accumulator_t *accumulator, topic_t *topic, span key)
{
    if (topic->count < 2) {
        return topic->count ? 0 : UNROUTED;
    }
    if (accumulator->hash == TURNS) {
        return slot_by_turn(topic);
    }
    return key.size < 0 || accumulator->hash == KEYS_IGNORED ? UNDESIGNATED
                                                             : slot_by_key(accumulator->hash, topic->count, key);
}

/* Return the slot of a record for this partition, or for its key if `partition` is negative. While the number of
 * partitions is unknown, all records of a topic wait together, so that they keep their order. */
static inline int
slot_for(const accumulator_t *accumulator, topic_t *topic, int64_t partition, entry_t *entry)
{
    entry->chosen = 0;
    if (partition < 0) {
        return slot_of(accumulator, topic, entry->key);
    }
    if (topic->count) {
        return (int)partition;
    }
    entry->chosen = (uint32_t)partition + 1;
    return UNROUTED;
}

/* A topic may hold this many times the free memory, or this fraction of it while memory is short. */
#define SHARE 16

/* Return how many bytes of records a topic may still get; 0 or less if it has its share. */
static inline Py_ssize_t
available_to(const accumulator_t *accumulator, const topic_t *topic)
{
    Py_ssize_t unused = accumulator->bytes_max - accumulator->used_bytes, held = topic->used_bytes;
    if (unused > PY_SSIZE_T_MAX / (2 * SHARE)) {
        unused = PY_SSIZE_T_MAX / (2 * SHARE);
    }
    if (unused <= 0 || (accumulator->is_short && held > unused)) { /* the products below stay within bounds */
        return 0;
    }
    return (accumulator->is_short ? unused - SHARE * held : SHARE * unused - held) / (SHARE + 1);
}

/* Return whether a record may be appended as the first of all (of any size) or of its topic. */
static inline int
is_first(const accumulator_t *accumulator, const topic_t *topic, Py_ssize_t size)
{
    return accumulator->used_bytes == 0 || (topic->used_bytes == 0 && !accumulator->is_short &&
                                            size <= accumulator->bytes_max - accumulator->used_bytes);
}

static inline int
fits(const accumulator_t *accumulator, const topic_t *topic, Py_ssize_t size)
{
    return size <= available_to(accumulator, topic) || is_first(accumulator, topic, size);
}

static inline void
use(accumulator_t *accumulator, topic_t *topic, Py_ssize_t size)
{
    accumulator->used_bytes += size;
    topic->used_bytes += size;
}

/* ---- send.c: methods of the accumulator -------------------------------------------------------------------------- */

PyObject *accumulator_send(accumulator_t *accumulator, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int is_int(PyObject *object, int64_t limit, int64_t *found);
int add_send(void);
PyObject *accumulator_route(accumulator_t *accumulator, PyObject *args);

#endif
