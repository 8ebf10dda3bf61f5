/* The memory of runs, which goes round: memory that is fresh from the system costs more than filling it does.
 *
 * The C library gives large blocks back to the system as soon as a queue has drained, and gets them again, page by page,
 * when it fills. So some are kept here, as long as there is a door. The interpreter's lock guards them.
 *
 * Include _speedups.h before.
 */
#ifndef KWIRE_MEMORY_H
#define KWIRE_MEMORY_H

/* For one who will want memory again; the last to leave gives all of it back. */
void memory_enter(void);
void memory_leave(void);

/* Memory of at least `*room` bytes, the first `used` of which are as in `data` (NULL for none), which is taken over and
 * has `before` bytes; `*room` is what there is then. NULL if there is none; `data` is as it was. */
unsigned char *memory_grow(unsigned char *data, size_t before, size_t used, size_t *room);
void memory_give(unsigned char *data, size_t room);

#endif
