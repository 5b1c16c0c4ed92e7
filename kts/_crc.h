/* The two checksums of Kafka's formats: CRC-32C (record batches) and CRC-32 (messages of magic 0 and 1).
 *
 * Portable tables everywhere; on x86-64 the CRC-32C instruction in three interleaved streams and, for CRC-32,
 * folding by carry-less multiplication, chosen once at import by asking the processor.
 */
#ifndef KTS_CRC_H
#define KTS_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KTS_POLY_CRC32C 0x82F63B78u /* Castagnoli, reflected */
#define KTS_POLY_CRC32 0xEDB88320u  /* IEEE 802.3, reflected */

static uint32_t kts_table_crc32c[8][256];
static uint32_t kts_table_crc32[8][256];

static void kts_make_table(uint32_t table[8][256], uint32_t poly) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ ((c & 1) ? poly : 0);
        table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xFF];
}

static uint32_t kts_update_portable(uint32_t table[8][256], uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint32_t lo = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table[7][lo & 0xFF] ^ table[6][(lo >> 8) & 0xFF] ^ table[5][(lo >> 16) & 0xFF] ^ table[4][lo >> 24] ^
              table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#if defined(__GNUC__) && defined(__x86_64__)
#define KTS_X86 1
#include <immintrin.h>

static int kts_has_clmul = 0;

/* Streams of this many bytes run side by side: the instruction has a latency of three and a throughput of one. */
#define KTS_LONG 2048
#define KTS_SHORT 256
static uint32_t kts_skip_long, kts_skip_2long, kts_skip_short, kts_skip_2short;

/* x^(8n - 33) mod P, reflected: what a state must be multiplied by to pass over n zero bytes, less the 33 powers that
 * the reflected product and the final instruction add. */
static uint32_t kts_power(size_t n) {
    uint32_t v = 0x80000000u;
    for (size_t i = 0; i < 8 * n - 33; i++)
        v = (v >> 1) ^ ((v & 1) ? KTS_POLY_CRC32C : 0);
    return v;
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t kts_skip(uint64_t crc, uint32_t power) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static inline uint64_t kts_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

#define KTS_THREE_STREAMS(WIDTH, POWER, POWER2)                                                                        \
    while (n >= 3 * (WIDTH)) {                                                                                         \
        uint64_t b = 0, c = 0;                                                                                         \
        for (size_t i = 0; i < (WIDTH); i += 8) {                                                                      \
            crc = _mm_crc32_u64(crc, kts_load64(p + i));                                                               \
            b = _mm_crc32_u64(b, kts_load64(p + (WIDTH) + i));                                                         \
            c = _mm_crc32_u64(c, kts_load64(p + 2 * (WIDTH) + i));                                                     \
        }                                                                                                              \
        crc = kts_skip(crc, POWER2) ^ kts_skip(b, POWER) ^ c;                                                          \
        p += 3 * (WIDTH);                                                                                              \
        n -= 3 * (WIDTH);                                                                                              \
    }

__attribute__((target("sse4.2,pclmul"))) static uint32_t kts_crc32c_x86(const uint8_t *p, size_t n) {
    uint64_t crc = 0xFFFFFFFFu;
    KTS_THREE_STREAMS(KTS_LONG, kts_skip_long, kts_skip_2long)
    KTS_THREE_STREAMS(KTS_SHORT, kts_skip_short, kts_skip_2short)
    while (n >= 8) {
        crc = _mm_crc32_u64(crc, kts_load64(p));
        p += 8;
        n -= 8;
    }
    while (n--)
        crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return ~(uint32_t)crc;
}

#define KTS_FOLDED 8 /* blocks of 16 bytes that are folded side by side */
/* For a distance of i blocks: x^(128i + 32) and x^(128i - 32) mod the polynomial, reflected. */
static uint64_t kts_fold_by[KTS_FOLDED + 1][2];
/* Shuffles that move a block's bytes up or down, filling with zeros: loaded from 16 - n and 16 + n on. */
static uint8_t kts_shift[48];

static void kts_make_folds(void) {
    uint32_t v = 0x80000000u;
    for (size_t power = 0; power <= 128 * KTS_FOLDED + 32; power++) {
        for (size_t i = 1; i <= KTS_FOLDED; i++) {
            if (power == 128 * i + 32)
                kts_fold_by[i][0] = (uint64_t)v << 1;
            if (power == 128 * i - 32)
                kts_fold_by[i][1] = (uint64_t)v << 1;
        }
        v = (v >> 1) ^ ((v & 1) ? KTS_POLY_CRC32 : 0);
    }
    memset(kts_shift, 0x80, sizeof(kts_shift));
    for (uint8_t i = 0; i < 16; i++)
        kts_shift[16 + i] = i;
}

static inline __m128i kts_load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

/* The 128 bits in x, moved over `blocks` blocks. */
__attribute__((target("pclmul"))) static inline __m128i kts_fold(__m128i x, size_t blocks) {
    __m128i k = kts_load(kts_fold_by[blocks]);
    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

/* CRC-32 of n >= 20 bytes by folding (Intel, "Fast CRC Computation Using PCLMULQDQ"). Zero bytes in front do not change
 * a state that starts at 0, so the odd head is moved up in a block of its own, and the start value 0xFFFFFFFF is XORed
 * into the first four bytes, wherever they lie. Up to eight blocks are folded at once: messages are short, and what
 * costs is the chain from one multiplication to the next. */
__attribute__((target("sse4.2,ssse3,pclmul"))) static uint32_t kts_crc32_x86(const uint8_t *p, size_t n) {
    size_t odd = ((n - 1) & 15) + 1, blocks = (n - odd) / 16;
    const __m128i start = _mm_cvtsi32_si128(-1);
    __m128i spill = _mm_shuffle_epi8(start, kts_load(kts_shift + 16 + odd));
    __m128i x = _mm_shuffle_epi8(_mm_xor_si128(kts_load(p), start), kts_load(kts_shift + odd));
    p += odd;
    while (blocks) {
        size_t some = blocks < KTS_FOLDED ? blocks : KTS_FOLDED;
        x = kts_fold(x, some);
        if (some > 1)
            x = _mm_xor_si128(x, kts_fold(_mm_xor_si128(kts_load(p), spill), some - 1));
        for (size_t i = 1; i + 1 < some; i++)
            x = _mm_xor_si128(x, kts_fold(kts_load(p + 16 * i), some - 1 - i));
        __m128i last = kts_load(p + 16 * (some - 1));
        x = _mm_xor_si128(x, some > 1 ? last : _mm_xor_si128(last, spill));
        spill = _mm_setzero_si128();
        p += 16 * some;
        blocks -= some;
    }
    /* 128 -> 64 bits, then Barrett's reduction to 32. */
    const __m128i low32 = _mm_set_epi32(0, -1, 0, -1);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, kts_load(kts_fold_by[1]), 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, low32), _mm_set_epi64x(0, 0x0163cd6124), 0x00));
    __m128i q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10), low32);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x00));
    return ~(uint32_t)_mm_extract_epi32(x, 1);
}
#endif

static void kts_crc_init(void) {
    kts_make_table(kts_table_crc32c, KTS_POLY_CRC32C);
    kts_make_table(kts_table_crc32, KTS_POLY_CRC32);
#ifdef KTS_X86
    kts_has_clmul = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    kts_make_folds();
    kts_skip_long = kts_power(KTS_LONG);
    kts_skip_2long = kts_power(2 * KTS_LONG);
    kts_skip_short = kts_power(KTS_SHORT);
    kts_skip_2short = kts_power(2 * KTS_SHORT);
#endif
}

static inline uint32_t kts_crc32c(const uint8_t *p, size_t n) {
#ifdef KTS_X86
    if (kts_has_clmul)
        return kts_crc32c_x86(p, n);
#endif
    return ~kts_update_portable(kts_table_crc32c, 0xFFFFFFFFu, p, n);
}

static inline uint32_t kts_crc32(const uint8_t *p, size_t n) {
#ifdef KTS_X86
    if (kts_has_clmul && n >= 20)
        return kts_crc32_x86(p, n);
#endif
    return ~kts_update_portable(kts_table_crc32, 0xFFFFFFFFu, p, n);
}

#endif
