/* Compiler differences: hints, inlining, atomic operations; and the copy of short byte strings. */
#ifndef KTS_PLATFORM_H
#define KTS_PLATFORM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "kts is written for little-endian processors"
#endif

#if defined(_MSC_VER)
#include <intrin.h>
#define kts_add(p, v) (_InterlockedExchangeAdd((volatile long *)(p), (v)) + (v))
#define kts_swap(p, v) _InterlockedExchangePointer((void *volatile *)(p), (v))
#define kts_offer(p, v) (_InterlockedCompareExchangePointer((void *volatile *)(p), (v), 0) == 0)
#define kts_get(p) (*(p)) /* aligned, and in order on x86 */
#define kts_set(p, v) ((void)(*(p) = (v)))
#define KTS_LIKELY(x) (x)
#define kts_prefetch(p) ((void)(p))
#define KTS_INLINE __forceinline
#define KTS_APART __declspec(noinline)
#else
#define kts_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_ACQ_REL)
#define kts_swap(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define kts_get(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define kts_set(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
static inline int kts_offer(void **place, void *value) {
    void *empty = 0;
    return __atomic_compare_exchange_n(place, &empty, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
#define KTS_LIKELY(x) __builtin_expect(!!(x), 1)
#define kts_prefetch(p) __builtin_prefetch(p)
#define KTS_INLINE inline __attribute__((always_inline))
#define KTS_APART __attribute__((noinline)) /* kept out of line, so that it does not slow its caller */
#endif

/* Every destination of kts_copy has this much room after the requested bytes. */
#define KTS_SLACK 128

/* Copies n bytes. Short strings are copied with one fixed width if the source has enough readable bytes (up to src_end);
 * the next string overwrites the extra bytes in the destination, or they are never shown. */
static inline void kts_copy(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *src_end) {
    int64_t left = src_end - from;
    if (n <= 32 && left >= 32)
        memcpy(to, from, 32);
    else if (n <= KTS_SLACK && left >= KTS_SLACK)
        memcpy(to, from, KTS_SLACK);
    else
        memcpy(to, from, (size_t)n);
}

/* The same if the source has KTS_SLACK readable bytes. */
static inline void kts_copy_wide(uint8_t *to, const uint8_t *from, int64_t n) {
    if (n <= 32)
        memcpy(to, from, 32);
    else if (n <= KTS_SLACK)
        memcpy(to, from, KTS_SLACK);
    else
        memcpy(to, from, (size_t)n);
}

/* Differences and sums of 64-bit numbers wrap around, as Java's do. */
static inline int64_t kts_plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t kts_minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

#endif
