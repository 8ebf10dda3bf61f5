/* The accumulator as bulk.c uses it. kwire/producer/accumulator.py is the specification of both.
 *
 * Include batch_builder.h before.
 */
#ifndef KWIRE_DOOR_H
#define KWIRE_DOOR_H

/* A partition from this number on gets a span per record: no topic has so many, and brokers reject them anyway. */
#define PARTITIONS_MAX 65536

/* Instead of a partition: chosen by the key, or the topic's slot for records without a key. */
enum { CHOSEN = -3 };

typedef struct accumulator accumulator_t;
typedef struct topic topic_t;

/* Whether to wake the loop once all records of the call are appended. */
typedef struct {
    int is_new, is_full;
} wakeup_t;

/* Return NULL with an exception on error. */
topic_t *accumulator_topic(accumulator_t *accumulator, PyObject *name);
Py_ssize_t accumulator_record_bytes_max(const accumulator_t *accumulator);
/* See `room_of`, `is_first` and `use`. */
Py_ssize_t accumulator_capacity(const accumulator_t *accumulator, const topic_t *topic);
int accumulator_is_first(const accumulator_t *accumulator, const topic_t *topic, Py_ssize_t size);
/* Add 1 before a lookup of a topic that must survive other code, and -1 after its use. */
void accumulator_hold_topics(accumulator_t *accumulator, int change);
void accumulator_use(accumulator_t *accumulator, topic_t *topic, Py_ssize_t size);
/* Call after appending to the builder; may update its CRC. */
void accumulator_sum(const accumulator_t *accumulator, builder_t *builder);
int accumulator_takes_turns(const accumulator_t *accumulator);
/* See `slot_for`. */
int accumulator_slot(const accumulator_t *accumulator, topic_t *topic, int64_t partition, entry_t *entry);
/* Append a record for which there is memory, and set its builder (borrowed); -1 with an exception. */
int accumulator_admit(accumulator_t *accumulator, PyObject *name, topic_t *topic, int slot, const entry_t *entry,
                      Py_ssize_t size, builder_t **builder, wakeup_t *wakeup_of);
int accumulator_tell(accumulator_t *accumulator, const wakeup_t *wakeup_of);

/* Methods of the accumulator and of the builder that bulk.c defines. */
PyObject *accumulator_append_many(accumulator_t *accumulator, PyObject *args);
PyObject *builder_outcomes(builder_t *builder, PyObject *args);

#endif
