/* CRC-32C: by the processor's instruction where there is one, else by tables. No Python here.
 *
 * Call prepare_crc() once; then `crc_fastest` and `crc_by_table` carry a CRC's state over bytes. The ones' complement
 * before and after is the caller's.
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

/* Eight bytes a step, each through a table of its own. */
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

__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t crc, bytes_t at, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; at++, size--) {
        crc = _mm_crc32_u8(crc, *at);
    }
    return crc;
}

static int
has_crc_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__ARM_FEATURE_CRC32) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>

static uint32_t
crc_by_instruction(uint32_t crc, bytes_t at, size_t size)
{
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size; at++, size--) {
        crc = __crc32cb(crc, *at);
    }
    return crc;
}

static int
has_crc_instruction(void)
{
    return 1;
}
#else
#define crc_by_instruction crc_by_table

static int
has_crc_instruction(void)
{
    return 0;
}
#endif

static uint32_t (*crc_fastest)(uint32_t, bytes_t, size_t) = crc_by_table;

static void
prepare_crc(void)
{
    fill_crc_table();
    crc_fastest = has_crc_instruction() ? crc_by_instruction : crc_by_table;
}
