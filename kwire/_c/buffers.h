/* Pooled memory for large blocks.
 *
 * The C library returns large blocks to the system when a queue drains, and gets fresh pages when it fills again, which
 * costs more than filling them. So some blocks are kept while a producer or consumer is open. The GIL guards the pool.
 *
 * Include module.h before.
 */
#ifndef KWIRE_MEMORY_H
#define KWIRE_MEMORY_H

/* The users: producers for builders, consumers for columns and decompressed data. */
typedef enum { MEMORY_OF_RUNS, MEMORY_OF_RECORDS, MEMORY_USES } memory_use;

/* Register and unregister a user; the last one to leave frees the kept blocks. */
void memory_enter(memory_use use);
void memory_leave(memory_use use);

/* Return memory of at least `*room` bytes that begins with the first `used` bytes of `data` (NULL or `before` bytes,
 * freed or reused). Set `*room` to its size. Return NULL if there is no memory; `data` is then unchanged. */
unsigned char *memory_grow(unsigned char *data, size_t before, size_t used, size_t *capacity);
void memory_give(unsigned char *data, size_t capacity);

#endif
