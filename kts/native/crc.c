/* Portable tables everywhere; on x86-64 folding by carry-less multiplication, 16 or 64 bytes at a time; on 64-bit ARM
 * its instructions for both; chosen once at import by processor detection. Folding reads sequentially: on uncached
 * memory it is several times as fast as the CRC-32C instruction in three streams.
 */
#include "crc.h"

int kts_crc_fast = 0;

#define KTS_POLY_CRC32C 0x82F63B78u /* Castagnoli, reflected */
#define KTS_POLY_CRC32 0xEDB88320u  /* IEEE 802.3, reflected */

static uint32_t table_crc32c[8][256];
static uint32_t table_crc32[8][256];

static void make_table(uint32_t table[8][256], uint32_t poly) {
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

static uint32_t update_portable(uint32_t table[8][256], uint32_t crc, const uint8_t *p, size_t n) {
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

#if (defined(__GNUC__) && defined(__x86_64__)) || (defined(_MSC_VER) && defined(_M_X64))
#define KTS_X86 1
#include <immintrin.h>
#if defined(__clang__)
#define KTS_TARGET __attribute__((target("sse4.2,ssse3,crc32,pclmul")))
#elif defined(__GNUC__)
#define KTS_TARGET __attribute__((target("sse4.2,ssse3,pclmul")))
#else
#include <intrin.h>
#define KTS_TARGET /* Microsoft's compiler generates every instruction without a target */
#endif
#if defined(__GNUC__)
#define KTS_WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul")))
#else
#define KTS_WIDE_TARGET
#endif

static int has_wide = 0; /* AVX-512 and VPCLMULQDQ; fast: SSE4.2 and PCLMULQDQ */

#define KTS_FOLDED 8 /* blocks of 16 bytes that are folded in parallel */
#define KTS_WIDE 16  /* the same in the loop over 64 bytes */

/* For a distance of i blocks: x^(128i + 32) and x^(128i - 32) mod the polynomial, reflected. */
typedef uint64_t folds[KTS_WIDE + 1][2];
static folds folds_crc32c, folds_crc32;
/* Shuffles that move a block's bytes up or down and fill with zeros: loaded from 16 - n and 16 + n. */
static uint8_t shift[48];

static void make_folds(folds by, uint32_t poly) {
    uint32_t v = 0x80000000u;
    for (size_t power = 0; power <= 128 * KTS_WIDE + 32; power++) {
        for (size_t i = 1; i <= KTS_WIDE; i++) {
            if (power == 128 * i + 32)
                by[i][0] = (uint64_t)v << 1;
            if (power == 128 * i - 32)
                by[i][1] = (uint64_t)v << 1;
        }
        v = (v >> 1) ^ ((v & 1) ? poly : 0);
    }
}

static inline __m128i load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

/* The 128 bits in x, folded across `blocks` blocks. */
KTS_TARGET static inline __m128i fold(__m128i x, folds by, size_t blocks) {
    __m128i k = load(by[blocks]);
    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

KTS_WIDE_TARGET static inline __m512i fold4(__m512i x, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next,
                                     0x96); /* the XOR of all three */
}

KTS_WIDE_TARGET static inline __m512i by4(folds by, size_t blocks) {
    return _mm512_broadcast_i32x4(load(by[blocks]));
}

/* Folds `rounds` times KTS_WIDE blocks at p into one; x is XORed into the first. */
KTS_WIDE_TARGET static __m128i fold_wide(__m128i x, const uint8_t *p, size_t rounds, folds by) {
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(x));
    __m512i b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    const __m512i k = by4(by, KTS_WIDE);
    while (--rounds) {
        p += 16 * KTS_WIDE;
        a = fold4(a, k, _mm512_loadu_si512(p));
        b = fold4(b, k, _mm512_loadu_si512(p + 64));
        c = fold4(c, k, _mm512_loadu_si512(p + 128));
        d = fold4(d, k, _mm512_loadu_si512(p + 192));
    }
    d = fold4(a, by4(by, 12), d);
    d = fold4(b, by4(by, 8), d);
    d = fold4(c, by4(by, 4), d);
    x = _mm512_extracti32x4_epi32(d, 3);
    x = _mm_xor_si128(x, fold(_mm512_extracti32x4_epi32(d, 0), by, 3));
    x = _mm_xor_si128(x, fold(_mm512_extracti32x4_epi32(d, 1), by, 2));
    return _mm_xor_si128(x, fold(_mm512_extracti32x4_epi32(d, 2), by, 1));
}

/* The same with `rounds` times KTS_FOLDED blocks. */
KTS_TARGET static __m128i fold_long(__m128i x, const uint8_t *p, size_t rounds, folds by) {
    __m128i a[KTS_FOLDED];
    for (size_t i = 0; i < KTS_FOLDED; i++)
        a[i] = load(p + 16 * i);
    a[0] = _mm_xor_si128(a[0], x);
    while (--rounds) {
        p += 16 * KTS_FOLDED;
        for (size_t i = 0; i < KTS_FOLDED; i++)
            a[i] = _mm_xor_si128(fold(a[i], by, KTS_FOLDED), load(p + 16 * i));
    }
    x = a[KTS_FOLDED - 1];
    for (size_t i = 0; i + 1 < KTS_FOLDED; i++)
        x = _mm_xor_si128(x, fold(a[i], by, KTS_FOLDED - 1 - i));
    return x;
}

/* Folds n >= 20 bytes into 16 (Intel, "Fast CRC Computation Using PCLMULQDQ"). Leading zero bytes do not change a state
 * that starts at 0, so the odd head is moved up in its own block, and the start value 0xFFFFFFFF is XORed into the first
 * four bytes, wherever they are. */
KTS_TARGET static inline __m128i fold_all(const uint8_t *p, size_t n, folds by) {
    size_t odd = ((n - 1) & 15) + 1, blocks = (n - odd) / 16;
    const __m128i start = _mm_cvtsi32_si128(-1);
    __m128i spill = _mm_shuffle_epi8(start, load(shift + 16 + odd));
    __m128i x = _mm_shuffle_epi8(_mm_xor_si128(load(p), start), load(shift + odd));
    p += odd;
    if (blocks >= KTS_WIDE) {
        size_t some = has_wide ? KTS_WIDE : KTS_FOLDED, rounds = blocks / some;
        x = _mm_xor_si128(fold(x, by, 1), spill);
        x = has_wide ? fold_wide(x, p, rounds, by) : fold_long(x, p, rounds, by);
        spill = _mm_setzero_si128();
        p += 16 * some * rounds;
        blocks -= some * rounds;
    }
    while (blocks) { /* as many at once as remain: messages are short, and the chain of multiplications dominates */
        size_t some = blocks < KTS_FOLDED ? blocks : KTS_FOLDED;
        x = fold(x, by, some);
        if (some > 1)
            x = _mm_xor_si128(x, fold(_mm_xor_si128(load(p), spill), by, some - 1));
        for (size_t i = 1; i + 1 < some; i++)
            x = _mm_xor_si128(x, fold(load(p + 16 * i), by, some - 1 - i));
        __m128i last = load(p + 16 * (some - 1));
        x = _mm_xor_si128(x, some > 1 ? last : _mm_xor_si128(last, spill));
        spill = _mm_setzero_si128();
        p += 16 * some;
        blocks -= some;
    }
    return x;
}

/* 128 bits to 64, then Barrett's reduction to 32. */
KTS_TARGET uint32_t kts_crc32_fast(const uint8_t *p, size_t n) {
    const __m128i low32 = _mm_set_epi32(0, -1, 0, -1);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    __m128i x = fold_all(p, n, folds_crc32);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, load(folds_crc32[1]), 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, low32), _mm_set_epi64x(0, 0x0163cd6124), 0x00));
    __m128i q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10), low32);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x00));
    return ~(uint32_t)_mm_extract_epi32(x, 1);
}

/* Folding leaves a message of 16 bytes: two CRC instructions finish it. */
KTS_TARGET uint32_t kts_crc32c_fast(const uint8_t *p, size_t n) {
    __m128i x = fold_all(p, n, folds_crc32c);
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x));
    return ~(uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(x, 1));
}

static void ask_processor(void) {
#if defined(__GNUC__)
    kts_crc_fast = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    has_wide = kts_crc_fast && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
#else
    int r[4];
    __cpuid(r, 1);
    kts_crc_fast = (r[2] >> 20 & 1) && (r[2] >> 1 & 1);
#endif
}

#elif defined(__GNUC__) && defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#define KTS_ARM 1
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* In assembler, because compilers name these instructions differently. */
#define KTS_ARM_CRC(INSTRUCTION, VALUE) __asm__(".arch_extension crc\n\t" INSTRUCTION : "+r"(crc) : "r"(VALUE))

#define KTS_ARM_LOOP(WIDE, NARROW)             \
    for (; n >= 8; p += 8, n -= 8) {           \
        uint64_t v;                            \
        memcpy(&v, p, 8);                      \
        KTS_ARM_CRC(WIDE " %w0, %w0, %x1", v); \
    }                                          \
    for (; n; p++, n--)                        \
        KTS_ARM_CRC(NARROW " %w0, %w0, %w1", (uint32_t)*p);

uint32_t kts_crc32c_fast(const uint8_t *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    KTS_ARM_LOOP("crc32cx", "crc32cb")
    return ~crc;
}

uint32_t kts_crc32_fast(const uint8_t *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    KTS_ARM_LOOP("crc32x", "crc32b")
    return ~crc;
}
#endif

void kts_crc_init(void) {
    make_table(table_crc32c, KTS_POLY_CRC32C);
    make_table(table_crc32, KTS_POLY_CRC32);
#ifdef KTS_X86
    ask_processor();
    make_folds(folds_crc32c, KTS_POLY_CRC32C);
    make_folds(folds_crc32, KTS_POLY_CRC32);
    memset(shift, 0x80, sizeof(shift));
    for (uint8_t i = 0; i < 16; i++)
        shift[16 + i] = i;
#elif defined(KTS_ARM) && defined(__linux__)
    kts_crc_fast = (int)(getauxval(AT_HWCAP) >> 7 & 1); /* HWCAP_CRC32 */
#elif defined(KTS_ARM)
    kts_crc_fast = 1;
#endif
}

uint32_t kts_crc32c_slow(const uint8_t *p, size_t n) { return ~update_portable(table_crc32c, 0xFFFFFFFFu, p, n); }
uint32_t kts_crc32_slow(const uint8_t *p, size_t n) { return ~update_portable(table_crc32, 0xFFFFFFFFu, p, n); }

#if !defined(KTS_X86) && !defined(KTS_ARM)
uint32_t kts_crc32c_fast(const uint8_t *p, size_t n) { return kts_crc32c_slow(p, n); }
uint32_t kts_crc32_fast(const uint8_t *p, size_t n) { return kts_crc32_slow(p, n); }
#endif
