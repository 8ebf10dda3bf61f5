/* The one look at all records of a batch, after which every place in it is known to be right. See _consume.h.
 *
 * Nothing here needs the interpreter's lock.
 */
#include "_consume.h"

/* ---- looking through a batch ----------------------------------------------------------------------------------- */

/* As get_varint. Where `is_roomy`, two bytes can be read at `at`, wherever `end` is, and most varints have no more. */
static inline bytes_t
next_varint(bytes_t at, bytes_t end, int is_roomy, int64_t *n)
{
    if (is_roomy) {
        uint64_t low = at[0], high = at[1];
        if (low < 0x80) {
            *n = undone(low);
            return at + 1;
        }
        if (high < 0x80) {
            *n = undone((low & 0x7F) | high << 7);
            return at + 2;
        }
    }
    return get_varint(at, end, n);
}

/* Past a size and as many bytes, or NULL where there are not as many; -1 is allowed where `is_nullable`. */
static inline bytes_t
next_span(bytes_t at, bytes_t end, int is_roomy, int is_nullable, int64_t *size)
{
    at = next_varint(at, end, is_roomy, size);
    if (at == NULL || *size < -is_nullable || *size > end - at) {
        return NULL;
    }
    return *size > 0 ? at + *size : at;
}

/* What one record comes to. */
typedef struct {
    int64_t offset, key_size, value_size;
} sizes;

/* Whether the record at `at` is right: then where it ends, else NULL. */
static inline bytes_t
check_record(bytes_t at, bytes_t data_end, int is_roomy, const origin *from, sizes *found)
{
    int64_t size, after, delta, header_count, timestamp;
    at = next_varint(at, data_end, is_roomy, &size);
    if (at == NULL || size < 1 || size > data_end - at) {
        return NULL;
    }
    bytes_t end = at + size;
    at = next_varint(at + 1, end, is_roomy, &after);
    at = at == NULL ? NULL : next_varint(at, end, is_roomy, &delta);
    if (at == NULL || delta < 0 || delta > from->last_delta) {
        return NULL;
    }
    at = next_span(at, end, is_roomy, 1, &found->key_size);
    at = at == NULL ? NULL : next_span(at, end, is_roomy, 1, &found->value_size);
    at = at == NULL ? NULL : next_varint(at, end, is_roomy, &header_count);
    if (at == NULL || header_count < 0 || header_count > (end - at) / 2) {
        return NULL;
    }
    for (int64_t index = 0; index < header_count && at != NULL; index++) {
        at = next_span(at, end, is_roomy, 0, &size);
        at = at == NULL ? NULL : next_span(at, end, is_roomy, 1, &size);
    }
    if (at != end || __builtin_add_overflow(from->base_timestamp, after, &timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, &found->offset)) {
        return NULL;
    }
    return end;
}

/* More than a record reads beyond its own end, or before its size was compared with what there is: five varints. */
#define ROOM_BEHIND 64

/* As check_record: without looking for the end of the data before each byte, for all records but the last. */
static inline bytes_t
next_record(bytes_t at, bytes_t data_end, const origin *from, sizes *found)
{
    bytes_t end = data_end - at <= ROOM_BEHIND ? NULL : check_record(at, data_end - ROOM_BEHIND, 1, from, found);
    return end != NULL ? end : check_record(at, data_end, 0, from, found);
}

static inline void
add_sizes(totals *all, const sizes *more)
{
    all->key_bytes += more->key_size > 0 ? more->key_size : 0;
    all->null_keys += more->key_size < 0;
    all->value_bytes += more->value_size > 0 ? more->value_size : 0;
    all->null_values += more->value_size < 0;
}

int
look_through(walk *on, bytes_t end, int64_t position, totals *all)
{
    const Py_ssize_t count = on->left;
    totals found = *all;
    sizes one;
    bytes_t at = on->at;
    for (Py_ssize_t index = 0; index < count; index++) {
        at = next_record(at, end, &on->from, &one);
        if (at == NULL || one.offset == INT64_MAX) {
            return 0;
        }
        if (one.offset >= position) {
            add_sizes(&found, &one);
            continue;
        }
        if (on->left > count - index) {
            return 0; /* offsets that do not ascend */
        }
        on->left--;
        on->at = at;
    }
    *all = found;
    return at == end;
}

/* ---- looking through batches ----------------------------------------------------------------------------------- */

/* Where the batch at `at` ends, if it is of format v2, neither compressed nor control, and undamaged as far as its
 * header and its checksum tell; else NULL. */
static bytes_t
check_batch(bytes_t at, bytes_t data_end, int check_crc)
{
    if (data_end - at < BATCH_OVERHEAD_BYTES || at[16] != 2 || at[22] & (CODEC_BITS | CONTROL_BIT)) {
        return NULL;
    }
    int64_t size = 12 + big_endian(at + 8, 4), last_delta = big_endian(at + 23, 4), count = big_endian(at + 57, 4);
    int64_t last_offset;
    if (size < BATCH_OVERHEAD_BYTES || size > data_end - at || last_delta < 0 || count < 0 || count > last_delta + 1 ||
        count > (size - BATCH_OVERHEAD_BYTES) / RECORD_BYTES_MIN ||
        __builtin_add_overflow(big_endian(at, 8), last_delta + 1, &last_offset)) {
        return NULL;
    }
    if (check_crc && crc32c_of(at + 21, (size_t)size - 21) != (uint32_t)big_endian(at + 17, 4)) {
        return NULL;
    }
    return at + size;
}

stretch
look_through_batches(bytes_t at, bytes_t data_end, int64_t position, int check_crc, int64_t enough)
{
    stretch found = {.end = at};
    bytes_t begin = at;
    while (found.end - begin < enough) {
        bytes_t end = check_batch(found.end, data_end, check_crc);
        if (end == NULL) {
            break;
        }
        int is_first = found.end == begin, is_append_time = found.end[22] & LOG_APPEND_BIT;
        walk on = walk_into(found.end);
        totals all = found.all;
        if (!is_first && (on.from.base_offset < found.next_offset || is_append_time != found.is_append_time)) {
            break;
        }
        if (!look_through(&on, end, position, &all)) {
            break;
        }
        if (found.count == 0) {
            found.on = on;
        }
        found.is_append_time = is_append_time;
        found.count += on.left;
        found.all = all;
        found.end = end;
        found.next_offset = on.from.base_offset + on.from.last_delta + 1;
    }
    return found;
}
