/* See _memory.h. */
#include "_speedups.h"

#include "_memory.h"

#define BLOCK_MIN (64 * 1024) /* below, the C library keeps them itself */
#define KEPT_FOR_RUNS (8 * 1024 * 1024)
#define KEPT_FOR_RECORDS (32 * 1024 * 1024) /* a poll's columns, and those of the one before */
#define BLOCKS_MAX ((KEPT_FOR_RUNS + KEPT_FOR_RECORDS) / BLOCK_MIN)

typedef struct {
    unsigned char *data;
    size_t room;
} block_t;

static block_t blocks[BLOCKS_MAX];
static size_t blocks_used, kept_bytes, users[MEMORY_USES];

static size_t
kept_max(void)
{
    return (users[MEMORY_OF_RUNS] ? KEPT_FOR_RUNS : 0) + (users[MEMORY_OF_RECORDS] ? KEPT_FOR_RECORDS : 0);
}

void
memory_enter(memory_use use)
{
    users[use]++;
}

void
memory_leave(memory_use use)
{
    users[use]--;
    while (kept_bytes > kept_max()) {
        block_t block = blocks[--blocks_used];
        kept_bytes -= block.room;
        PyMem_Free(block.data);
    }
}

/* The block that was given last, of those that have what is wanted and not twice as much; NULL for none. */
static unsigned char *
kept_block(size_t *room)
{
    for (size_t index = blocks_used; index-- > 0;) {
        block_t block = blocks[index];
        if (block.room >= *room && block.room / 2 < *room) {
            memmove(&blocks[index], &blocks[index + 1], (--blocks_used - index) * sizeof(block_t));
            kept_bytes -= block.room;
            *room = block.room;
            return block.data;
        }
    }
    return NULL;
}

unsigned char *
memory_grow(unsigned char *data, size_t before, size_t used, size_t *room)
{
    unsigned char *grown = *room < BLOCK_MIN ? NULL : kept_block(room);
    if (grown == NULL) {
        return PyMem_Realloc(data, *room);
    }
    if (data != NULL) {
        memcpy(grown, data, used);
        memory_give(data, before);
    }
    return grown;
}

/* The kept block with the highest address: without it, the C library may be able to give back all from there on. */
static size_t
highest(void)
{
    size_t found = 0;
    for (size_t index = 1; index < blocks_used; index++) {
        found = blocks[index].data > blocks[found].data ? index : found;
    }
    return found;
}

void
memory_give(unsigned char *data, size_t room)
{
    if (room < BLOCK_MIN || room > kept_max()) {
        PyMem_Free(data);
        return;
    }
    while (blocks_used == BLOCKS_MAX || (blocks_used && kept_bytes + room > kept_max())) {
        block_t *other = &blocks[highest()];
        if (data > other->data) {
            PyMem_Free(data);
            return;
        }
        PyMem_Free(other->data);
        kept_bytes -= other->room;
        *other = blocks[--blocks_used];
    }
    blocks[blocks_used++] = (block_t){data, room};
    kept_bytes += room;
}
