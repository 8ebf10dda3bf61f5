/* Memory that is pooled, for large blocks: memory that is fresh from the system costs more than filling it does.
 *
 * The C library gives large blocks back to the system as soon as a queue has drained, and gets them again, page by
 * page, when it fills. So some are kept here, as long as there is somebody who will want them. The GIL guards them.
 *
 * Include module.h before.
 */
#ifndef KWIRE_MEMORY_H
#define KWIRE_MEMORY_H

/* Who wants it: producers for their builders, consumers for columns and what decompresses. */
typedef enum { MEMORY_OF_RUNS, MEMORY_OF_RECORDS, MEMORY_USES } memory_use;

/* For one who will want memory again; with the last to leave, what was kept for them goes. */
void memory_enter(memory_use use);
void memory_leave(memory_use use);

/* Memory of at least `*room` bytes, the first `used` of which are as in `data` (NULL for none), which is taken over and
 * has `before` bytes; `*room` is what there is then. NULL if there is none; `data` is as it was. */
unsigned char *memory_grow(unsigned char *data, size_t before, size_t used, size_t *capacity);
void memory_give(unsigned char *data, size_t capacity);

#endif
