/* Arrow's C data interface (its published layout), atomic operations, byte order, and the copy of short byte strings. */
#ifndef KTS_SLAB_H
#define KTS_SLAB_H

#include <stdint.h>
#include <string.h>

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#if defined(_MSC_VER)
#include <intrin.h>
#define kts_add(p, v) (_InterlockedExchangeAdd((volatile long *)(p), (v)) + (v))
#define kts_swap(p, v) _InterlockedExchangePointer((void *volatile *)(p), (v))
#define kts_offer(p, v) (_InterlockedCompareExchangePointer((void *volatile *)(p), (v), 0) == 0)
#define KTS_LIKELY(x) (x)
#define kts_prefetch(p) ((void)(p))
#define KTS_INLINE __forceinline
#else
#define kts_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_ACQ_REL)
#define kts_swap(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
static inline int kts_offer(void **place, void *value) {
    void *empty = 0;
    return __atomic_compare_exchange_n(place, &empty, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
#define KTS_LIKELY(x) __builtin_expect(!!(x), 1)
#define kts_prefetch(p) __builtin_prefetch(p)
#define KTS_INLINE inline __attribute__((always_inline))
#endif

/* Buffers have at least so many bytes, and so many sets of them are kept to be used again; where a fuzzer watches, they
 * are as large as asked for and are given back, so that it sees every byte too far. */
#if defined(KTS_FUZZ)
#define KTS_LEAST_BYTES 1
#define KTS_SPARES 0
#else
#define KTS_LEAST_BYTES 4096
#define KTS_SPARES 4
#endif

/* Every destination of kts_copy has this much room behind what is asked for. */
#define KTS_SLACK 128

/* Copy n bytes. Short strings are copied in one go of fixed width where the source has the bytes to read
 * (src_end bounds it); what lies behind n in the destination is overwritten by the next string or never shown. */
static inline void kts_copy(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *src_end) {
    int64_t left = src_end - from;
    if (n <= 32 && left >= 32)
        memcpy(to, from, 32);
    else if (n <= KTS_SLACK && left >= KTS_SLACK)
        memcpy(to, from, KTS_SLACK);
    else
        memcpy(to, from, (size_t)n);
}

/* The same where the source surely has KTS_SLACK bytes to read. */
static inline void kts_copy_wide(uint8_t *to, const uint8_t *from, int64_t n) {
    if (n <= 32)
        memcpy(to, from, 32);
    else if (n <= KTS_SLACK)
        memcpy(to, from, KTS_SLACK);
    else
        memcpy(to, from, (size_t)n);
}

static inline uint16_t kts_be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t kts_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t kts_be64(const uint8_t *p) { return (uint64_t)kts_be32(p) << 32 | kts_be32(p + 4); }
static inline uint32_t kts_le32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static inline void kts_put16(uint8_t *p, uint16_t v) { p[0] = v >> 8; p[1] = (uint8_t)v; }
static inline void kts_put32(uint8_t *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
static inline void kts_put64(uint8_t *p, uint64_t v) { kts_put32(p, v >> 32); kts_put32(p + 4, (uint32_t)v); }

#endif
