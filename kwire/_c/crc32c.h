/* CRC-32C by the processor's instruction, three streams at a time, or by tables. Does not use Python.
 *
 * Call prepare_crc() once; then `crc_fastest` and `crc_by_table` update a CRC state with bytes. The caller computes the
 * ones' complement before and after.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CASTAGNOLI 0x82F63B78u

static uint32_t crc_table[8][256];

static void
fill_crc_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? CASTAGNOLI : 0);
        }
        crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc_table[k - 1][n];
            crc_table[k][n] = before >> 8 ^ crc_table[0][before & 0xFF];
        }
    }
}

/* Process eight bytes per step, each with its own table. */
static uint32_t
crc_by_table(uint32_t crc, bytes_t at, size_t size)
{
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
              crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^
              crc_table[0][at[7]];
    }
    for (; size; at++, size--) {
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xFF];
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>

#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_OF_WORD(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define CRC_OF_BYTE(crc, byte) _mm_crc32_u8(crc, byte)

static int
has_crc_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__ARM_FEATURE_CRC32) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>

#define CRC_TARGET
#define CRC_OF_WORD(crc, word) __crc32cd(crc, word)
#define CRC_OF_BYTE(crc, byte) __crc32cb(crc, byte)

static int
has_crc_instruction(void)
{
    return 1;
}
#endif

static uint32_t (*crc_fastest)(uint32_t, bytes_t, size_t) = crc_by_table;

/* The state after two stretches is the first one's state advanced over zeros, XOR the second one's state from 0. The
 * advance is linear, so tables can compute it. */
typedef struct {
    size_t size;           /* of a stretch, in bytes */
    uint32_t over[4][256]; /* by each byte of a state: its value after a stretch of zeros */
} stretch;

static stretch long_stretch = {.size = 4096}, short_stretch = {.size = 256};
static const unsigned char zeros[256];

static void
fill_stretch(stretch *self)
{
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (size_t at = 0; at < self->size; at += sizeof(zeros)) {
            crc = crc_fastest(crc, zeros, sizeof(zeros));
        }
        uint32_t *over = self->over[bit / 8];
        uint32_t first = 1u << bit % 8;
        for (uint32_t n = 0; n < first; n++) {
            over[first + n] = over[n] ^ crc;
        }
    }
}

static inline uint32_t
carried(const stretch *self, uint32_t crc)
{
    return self->over[0][crc & 0xFF] ^ self->over[1][crc >> 8 & 0xFF] ^ self->over[2][crc >> 16 & 0xFF] ^
           self->over[3][crc >> 24];
}

static uint32_t
crc_of_zeros(uint32_t crc, size_t count)
{
    for (; count >= long_stretch.size; count -= long_stretch.size) {
        crc = carried(&long_stretch, crc);
    }
    for (; count >= short_stretch.size; count -= short_stretch.size) {
        crc = carried(&short_stretch, crc);
    }
    return crc_fastest(crc, zeros, count);
}

#ifdef CRC_OF_WORD
/* The instruction has a latency of three cycles and a throughput of one. So three stretches of the data are processed
 * in parallel, the second and third from a state of 0, and then combined. */
static inline uint64_t
word_at(bytes_t at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

CRC_TARGET static uint32_t
crc_of_three(const stretch *by, uint32_t first, bytes_t at)
{
    uint32_t second = 0, third = 0;
    for (bytes_t end = at + by->size; at < end; at += 8) {
        first = CRC_OF_WORD(first, word_at(at));
        second = CRC_OF_WORD(second, word_at(at + by->size));
        third = CRC_OF_WORD(third, word_at(at + 2 * by->size));
    }
    return carried(by, carried(by, first) ^ second) ^ third;
}

CRC_TARGET static uint32_t
crc_by_instruction(uint32_t crc, bytes_t at, size_t size)
{
    for (; size >= 3 * long_stretch.size; at += 3 * long_stretch.size, size -= 3 * long_stretch.size) {
        crc = crc_of_three(&long_stretch, crc, at);
    }
    for (; size >= 3 * short_stretch.size; at += 3 * short_stretch.size, size -= 3 * short_stretch.size) {
        crc = crc_of_three(&short_stretch, crc, at);
    }
    for (; size >= 8; at += 8, size -= 8) {
        crc = CRC_OF_WORD(crc, word_at(at));
    }
    for (; size; at++, size--) {
        crc = CRC_OF_BYTE(crc, *at);
    }
    return crc;
}
#endif

static void
prepare_crc(void)
{
    fill_crc_table();
    fill_stretch(&long_stretch);
    fill_stretch(&short_stretch);
#ifdef CRC_OF_WORD
    if (has_crc_instruction()) {
        crc_fastest = crc_by_instruction;
    }
#endif
}
