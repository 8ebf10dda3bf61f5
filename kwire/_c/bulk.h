/* What _bulk.c needs of the door. `_door.py` is the specification of both.
 *
 * Include batch_builder.h before.
 */
#ifndef KWIRE_DOOR_H
#define KWIRE_DOOR_H

/* Beyond this, each record of a partition is a run of its own: no topic has so many, so brokers refuse them anyway. */
#define PARTITIONS_MAX 65536

/* Instead of a partition: by the key, or what the topic has for records without. */
enum { CHOSEN = -3 };

typedef struct door door_t;
typedef struct topic topic_t;

/* What is to be told to who drains, once all that is at hand is in. */
typedef struct {
    int is_new, is_full;
} news_t;

/* NULL with an exception. */
topic_t *door_topic(door_t *door, PyObject *name);
Py_ssize_t door_record_bytes_max(const door_t *door);
/* See `room_of`, `is_first` and `use`. */
Py_ssize_t door_room(const door_t *door, const topic_t *topic);
int door_is_first(const door_t *door, const topic_t *topic, Py_ssize_t size);
/* +1 before a topic is looked up that must outlive other code, -1 when it is done with. */
void door_hold_topics(door_t *door, int change);
void door_use(door_t *door, topic_t *topic, Py_ssize_t size);
/* Records were put into the run, whose CRC may be made along the way. */
void door_sum(const door_t *door, run_t *run);
int door_takes_turns(const door_t *door);
int door_slot(const door_t *door, topic_t *topic, span key);
/* Finds the run (borrowed) that has the record as its last; -1 with an exception. There is room. */
int door_admit(door_t *door, PyObject *name, topic_t *topic, int slot, const entry_t *entry, Py_ssize_t size,
               run_t **run, news_t *news);
int door_tell(door_t *door, const news_t *news);

/* Methods of the door and of the run that _bulk.c has. */
PyObject *door_append_many(door_t *door, PyObject *args);
PyObject *run_outcomes(run_t *run, PyObject *args);

#endif
