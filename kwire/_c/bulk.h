/* What bulk.c needs of the accumulator. kwire/producer/accumulator.py is the specification of both.
 *
 * Include batch_builder.h before.
 */
#ifndef KWIRE_DOOR_H
#define KWIRE_DOOR_H

/* Beyond this, each record of a partition is a builder of its own: no topic has so many, so brokers refuse them anyway.
 */
#define PARTITIONS_MAX 65536

/* Instead of a partition: by the key, or what the topic has for records without. */
enum { CHOSEN = -3 };

typedef struct accumulator accumulator_t;
typedef struct topic topic_t;

/* What is to be told to who drains, once all that is at hand is in. */
typedef struct {
    int is_new, is_full;
} wakeup_t;

/* NULL with an exception. */
topic_t *accumulator_topic(accumulator_t *accumulator, PyObject *name);
Py_ssize_t accumulator_record_bytes_max(const accumulator_t *accumulator);
/* See `room_of`, `is_first` and `use`. */
Py_ssize_t accumulator_capacity(const accumulator_t *accumulator, const topic_t *topic);
int accumulator_is_first(const accumulator_t *accumulator, const topic_t *topic, Py_ssize_t size);
/* +1 before a topic is looked up that must outlive other code, -1 when it is done with. */
void accumulator_hold_topics(accumulator_t *accumulator, int change);
void accumulator_use(accumulator_t *accumulator, topic_t *topic, Py_ssize_t size);
/* Records were put into the builder, whose CRC may be made along the way. */
void accumulator_sum(const accumulator_t *accumulator, builder_t *builder);
int accumulator_takes_turns(const accumulator_t *accumulator);
int accumulator_slot(const accumulator_t *accumulator, topic_t *topic, span key);
/* Finds the builder (borrowed) that has the record as its last; -1 with an exception. There is room. */
int accumulator_admit(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, const entry_t *entry,
                      Py_ssize_t size, builder_t **builder, wakeup_t *wakeup_of);
int accumulator_tell(accumulator_t *accumulator, const wakeup_t *wakeup_of);

/* Methods of the accumulator and of the builder that bulk.c has. */
PyObject *accumulator_append_many(accumulator_t *accumulator, PyObject *args);
PyObject *builder_outcomes(builder_t *builder, PyObject *args);

#endif
