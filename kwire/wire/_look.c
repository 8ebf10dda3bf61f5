/* The one look at all records of a batch, after which every place in it is known to be right. See _consume.h.
 *
 * Nothing here needs the interpreter's lock.
 */
#include "_consume.h"

/* ---- looking through a batch ----------------------------------------------------------------------------------- */

/* Past a size and as many bytes, or NULL where there are not as many; -1 is allowed where `is_nullable`. */
static inline bytes_t
get_span(bytes_t at, bytes_t end, int is_nullable, bytes_t *start, int64_t *size)
{
    at = get_varint(at, end, size);
    if (at == NULL || *size < -is_nullable || *size > end - at) {
        return NULL;
    }
    *start = at;
    return at + (*size > 0 ? *size : 0);
}

static inline void
add_field(int64_t size, int64_t *bytes, int64_t *nulls)
{
    *bytes += size > 0 ? size : 0;
    *nulls += size < 0;
}

/* Whether the record at `at` is right: then where it ends and its offset, else NULL. */
static inline bytes_t
check_record(bytes_t at, bytes_t data_end, const origin *from, int64_t *offset, totals *all)
{
    int64_t size, after, delta, header_count, timestamp;
    bytes_t start;
    at = get_varint(at, data_end, &size);
    if (at == NULL || size < 1 || size > data_end - at) {
        return NULL;
    }
    bytes_t end = at + size;
    at = get_varint(at + 1, end, &after);
    at = at == NULL ? NULL : get_varint(at, end, &delta);
    if (at == NULL || delta < 0 || delta > from->last_delta) {
        return NULL;
    }
    at = get_span(at, end, 1, &start, &size);
    if (at == NULL) {
        return NULL;
    }
    add_field(size, &all->key_bytes, &all->null_keys);
    at = get_span(at, end, 1, &start, &size);
    if (at == NULL) {
        return NULL;
    }
    add_field(size, &all->value_bytes, &all->null_values);
    at = get_varint(at, end, &header_count);
    if (at == NULL || header_count < 0 || header_count > (end - at) / 2) {
        return NULL;
    }
    for (int64_t index = 0; index < header_count && at != NULL; index++) {
        at = get_span(at, end, 0, &start, &size);
        at = at == NULL ? NULL : get_span(at, end, 1, &start, &size);
    }
    if (at != end || __builtin_add_overflow(from->base_timestamp, after, &timestamp) ||
        __builtin_add_overflow(from->base_offset, delta, offset)) {
        return NULL;
    }
    return end;
}

int
look_through(walk *on, bytes_t end, int64_t position, totals *all)
{
    const Py_ssize_t count = on->left;
    const totals before = *all;
    bytes_t at = on->at;
    int64_t offset = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        at = check_record(at, end, &on->from, &offset, all);
        if (at == NULL || offset == INT64_MAX) {
            return 0;
        }
        if (offset < position) {
            if (on->left > count - index) {
                return 0; /* offsets that do not ascend */
            }
            on->left--;
            on->at = at;
            *all = before;
        }
    }
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
