/* Pooled memory for large blocks.
 *
 * The C library returns large blocks to the system when a queue drains, and gets fresh pages when it fills again, which
 * costs more than filling them. So some blocks are kept while a producer or consumer is open. The GIL guards the pool.
 *
 * Include module.h before.
 */
#ifndef KWIRE_BUFFERS_H
#define KWIRE_BUFFERS_H

/* The users: producers for builders, consumers for columns and decompressed data. */
typedef enum { POOL_OF_BUILDERS, POOL_OF_RECORDS, POOL_USES } pool_use;

/* Register and unregister a user; the last one to leave frees the kept blocks. */
void pool_add_user(pool_use use);
void pool_remove_user(pool_use use);

/* Return memory of at least `*capacity` bytes, whose first `used` bytes are those of `data` (NULL, or `before` bytes;
 * freed or reused). Set `*capacity` to its size. Return NULL if there is no memory; `data` is then unchanged. */
unsigned char *pool_grow(unsigned char *data, size_t before, size_t used, size_t *capacity);
void pool_give_back(unsigned char *data, size_t capacity);

#endif
