/* The layout of Kafka's entries, defined only here. All integers are big-endian, varints are zig-zag.
 *
 *   offset i64 | size i32 | then, by the magic byte at position 16,
 *   magic 0, 1   crc u32 | magic i8 | attributes i8 | (1: timestamp i64) | key i32+bytes | value i32+bytes
 *   magic 2      leader epoch i32 | magic i8 | crc u32 | attributes i16 | last offset delta i32 | base timestamp i64
 *                | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | count i32 | records
 *   record       length varint | attributes i8 | timestamp delta varlong | offset delta varint | key varint+bytes
 *                | value varint+bytes | count varint of (key varint+bytes, value varint+bytes)
 */
#ifndef KTS_FORMAT_H
#define KTS_FORMAT_H

#include "codecs.h"
#include "platform.h"

enum { /* of every entry */
    KTS_OFFSET_AT = 0,
    KTS_SIZE_AT = 8,
    KTS_OVERHEAD = 12, /* bytes that the size field does not count */
    KTS_MAGIC_AT = 16
};

enum { /* of a message */
    KTS_MESSAGE_CRC_AT = 12,
    KTS_MESSAGE_CRC_FROM = 16, /* the CRC covers the bytes from here */
    KTS_MESSAGE_ATTRIBUTES_AT = 17,
    KTS_MESSAGE_TIME_AT = 18, /* magic 1 */
    KTS_V0_KEY_AT = 18,
    KTS_V1_KEY_AT = 26,
    KTS_V0_LEAST = 14, /* the smallest valid size field */
    KTS_V1_LEAST = 22
};

enum { /* of a record batch */
    KTS_BATCH_EPOCH_AT = 12,
    KTS_BATCH_CRC_AT = 17,
    KTS_BATCH_CRC_FROM = 21,
    KTS_BATCH_ATTRIBUTES_AT = 21,
    KTS_BATCH_FLAGS_AT = 22, /* the low byte of the attributes */
    KTS_BATCH_DELTA_AT = 23,
    KTS_BATCH_BASE_TIME_AT = 27,
    KTS_BATCH_MAX_TIME_AT = 35,
    KTS_BATCH_PRODUCER_AT = 43,
    KTS_BATCH_PRODUCER_EPOCH_AT = 51,
    KTS_BATCH_SEQUENCE_AT = 53,
    KTS_BATCH_COUNT_AT = 57,
    KTS_BATCH_HEADER = 61 /* the records begin here */
};

enum { /* attributes */
    KTS_CODEC_MASK = 0x07,
    KTS_LOG_APPEND_TIME = 0x08,
    KTS_TRANSACTIONAL = 0x10,
    KTS_CONTROL = 0x20,
    KTS_DELETE_HORIZON = 0x40, /* the base timestamp is when the cleaner may delete the batch's tombstones */
    KTS_HAS_TIMESTAMP = 0x80 /* of a batch, not in Kafka: each of its records has a timestamp, which may be -1 (KIP-228) */
};

enum { /* magics of KIP-32's rejected options 1, 2 and 3, which no Kafka uses */
    KTS_OPTION_1 = 33,
    KTS_OPTION_3 = 35
};

enum {
    KTS_SMALLEST_RECORD = 7,
    KTS_LARGEST_ENTRY = 2147483635 /* the largest valid size field */
};

static inline uint16_t kts_be16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static inline uint32_t kts_be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint64_t kts_be64(const uint8_t *p) { return (uint64_t)kts_be32(p) << 32 | kts_be32(p + 4); }
static inline uint32_t kts_le32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}
static inline int32_t kts_i32(const uint8_t *p) { return (int32_t)kts_be32(p); }
static inline int64_t kts_i64(const uint8_t *p) { return (int64_t)kts_be64(p); }

static inline void kts_put16(uint8_t *p, uint16_t v) { p[0] = v >> 8; p[1] = (uint8_t)v; }
static inline void kts_put32(uint8_t *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
static inline void kts_put64(uint8_t *p, uint64_t v) { kts_put32(p, v >> 32); kts_put32(p + 4, (uint32_t)v); }

/* --- varints ------------------------------------------------------------------------------------------- */

enum kts_varint_status { KTS_VARINT_OK, KTS_VARINT_CUT /* the bytes end within it */, KTS_VARINT_LONG };

/* As Kafka's ByteUtils: at most five bytes (ten); bits of the last byte beyond 32 (64) are dropped. */
int kts_varint_slow(const uint8_t **at, const uint8_t *end, int32_t *value);
int kts_varlong_slow(const uint8_t **at, const uint8_t *end, int64_t *value);

/* A varint of one or two bytes, as nearly all are: returns their number, or 0. */
static inline int kts_short_varint(const uint8_t *p, const uint8_t *end, int32_t *value) {
    uint32_t raw;
    int size = 1;
    if (p >= end)
        return 0;
    raw = p[0];
    if (raw >= 0x80) {
        if (end - p < 2 || p[1] >= 0x80)
            return 0;
        raw = (raw & 0x7F) | (uint32_t)p[1] << 7;
        size = 2;
    }
    *value = (int32_t)((raw >> 1) ^ (0 - (raw & 1)));
    return size;
}

/* Functions on copies read the longer ones, so that the caller's variables stay in registers. */
static inline int kts_varint(const uint8_t **at, const uint8_t *end, int32_t *value) {
    const uint8_t *p = *at;
    int32_t long_one = 0;
    int status;
    const int size = kts_short_varint(p, end, value);
    if (KTS_LIKELY(size)) {
        *at = p + size;
        return KTS_VARINT_OK;
    }
    status = kts_varint_slow(&p, end, &long_one);
    *at = p;
    *value = long_one;
    return status;
}

static inline int kts_varlong(const uint8_t **at, const uint8_t *end, int64_t *value) {
    const uint8_t *p = *at;
    int64_t long_one = 0;
    int32_t short_one = 0;
    int status;
    const int size = kts_short_varint(p, end, &short_one);
    if (KTS_LIKELY(size)) {
        *at = p + size;
        *value = short_one;
        return KTS_VARINT_OK;
    }
    status = kts_varlong_slow(&p, end, &long_one);
    *at = p;
    *value = long_one;
    return status;
}

/* A varint of up to four bytes, undecoded; may read four bytes of any content. */
static KTS_INLINE uint32_t kts_quick(const uint8_t **at, int *unusual) {
    const uint8_t *p = *at;
    uint32_t raw = p[0];
    *at = p + 1;
    if (KTS_LIKELY(raw < 0x80))
        return raw;
    *at = p + 2;
    raw = (raw & 0x7F) | (uint32_t)p[1] << 7;
    if (KTS_LIKELY(p[1] < 0x80))
        return raw;
    *at = p + 3;
    raw = (raw & 0x3FFF) | (uint32_t)p[2] << 14;
    if (p[2] < 0x80)
        return raw;
    *at = p + 4;
    *unusual |= p[3] >= 0x80;
    return (raw & 0x1FFFFF) | (uint32_t)p[3] << 21;
}

static KTS_INLINE int64_t kts_unzigzag(uint32_t raw) { return (int32_t)((raw >> 1) ^ (0 - (raw & 1))); }

static inline uint8_t *kts_put_varint(uint8_t *to, int64_t v) {
    uint64_t raw = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    while (raw >= 0x80) {
        *to++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *to = (uint8_t)raw;
    return to + 1;
}

#endif
