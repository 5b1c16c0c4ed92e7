/* Byte strings on their way into Arrow columns, and the two hot loops: over the records of a batch (magic 2), and over
 * uncompressed messages (magic 0 and 1).
 *
 * Each loop stands here once and is compiled for each usual set of columns, which Cython cannot ask a compiler for.
 * They read what producers write, and stop in front of all else: that is read in _codec.pyx, every step checked.
 */
#ifndef KTS_RECORDS_H
#define KTS_RECORDS_H

#include "_crc.h"
#include "_slab.h"

struct kts_buf {
    uint8_t *p;
    int64_t cap;
};

struct kts_text { /* a column of byte strings */
    struct kts_buf offsets; /* or 16-byte views */
    struct kts_buf data;
    struct kts_buf valid; /* bitmap, written from the first null on */
    int64_t rows;
    int64_t size;
    int64_t nulls;
};

static inline void kts_text_null(struct kts_text *t, int64_t row) {
    if (t->nulls == 0)
        memset(t->valid.p, 0xFF, (size_t)t->valid.cap);
    t->nulls += 1;
    t->valid.p[row >> 3] &= (uint8_t) ~(1u << (row & 7));
}

/* String `row`: n bytes at p (n < 0: null); up to `end` memory may be read. */
static inline void kts_text_put(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *end) {
    if (KTS_LIKELY(n >= 0)) {
        kts_copy(t->data.p + t->size, p, n, end);
        t->size += n;
    } else {
        kts_text_null(t, row);
    }
    ((int32_t *)t->offsets.p)[row + 1] = (int32_t)t->size;
}

/* View `row`: up to 12 bytes inline and zeros behind them, else prefix, buffer number and offset from `base`. */
static inline void kts_view_put(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *base,
                                int32_t buffer) {
    uint8_t *v = t->offsets.p + 16 * row;
    int32_t words[4] = {n < 0 ? 0 : (int32_t)n, 0, 0, 0};
    if (n > 12) {
        memcpy(words + 1, p, 4);
        words[2] = buffer;
        words[3] = (int32_t)(p - base);
    } else if (n >= 0) {
        memcpy(words + 1, p, (size_t)n);
    } else {
        kts_text_null(t, row);
    }
    memcpy(v, words, 16);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "kts is written for little-endian processors"
#endif

/* The same where KTS_SLACK bytes at p can be read. */
static inline void kts_view_put_wide(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *base,
                                     int32_t buffer) {
    uint8_t *v = t->offsets.p + 16 * row;
    uint64_t low, high = 0;
    uint32_t word;
    if (KTS_LIKELY(n >= 0)) {
        memcpy(&word, p, 4);
        low = (uint32_t)n | (uint64_t)word << 32;
        if (n > 12) {
            high = (uint32_t)buffer | (uint64_t)(uint32_t)(p - base) << 32;
        } else {
            memcpy(&high, p + 4, 8);
            if (n <= 4) {
                high = 0;
                low &= ~0ull >> (8 * (4 - n)); /* the length and n bytes */
            } else {
                high &= ~0ull >> (8 * (12 - n));
            }
        }
    } else {
        low = 0;
        kts_text_null(t, row);
    }
    memcpy(v, &low, 8);
    memcpy(v + 8, &high, 8);
}

enum { /* what is wanted of the records */
    KTS_OFFSETS = 1,
    KTS_TIMESTAMPS = 2,
    KTS_TYPES = 4, /* of messages: those of a batch are all the same */
    KTS_KEYS = 8,
    KTS_VALUES = 16,
    KTS_REST = 32, /* to be sure that each record is whole, headers included */
    KTS_VIEWS = 64,
    KTS_CRC = 128, /* of each message */
    KTS_TIMES = KTS_OFFSETS | KTS_TIMESTAMPS,
    KTS_KEY_VALUE = KTS_KEYS | KTS_VALUES,
    KTS_USUAL = KTS_TIMES | KTS_KEY_VALUE | KTS_REST
};

struct kts_run { /* records or messages being read */
    const uint8_t *p;     /* the next one */
    const uint8_t *last;  /* they end here at the latest; KTS_SLACK bytes behind it can be read */
    const uint8_t *until; /* the last one begins before this */
    uint64_t base_offset; /* of a batch */
    uint64_t base_timestamp;
    int64_t row;
    int64_t most; /* row to stop at */
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *types;
    struct kts_text *key;
    struct kts_text *value;
    const uint8_t *base; /* of the views */
    int32_t buffer;
    int64_t ahead; /* distance to the next batch, whose CRC is due then: fetched meanwhile */
    int magic; /* of messages */
    const uint8_t *latest; /* the last message that was read, or NULL */
};

/* One string of a row; the text's own size is kept in a register, as `end`. */
static KTS_INLINE void kts_put(struct kts_run *r, struct kts_text *t, const int want, int64_t row, const uint8_t *p,
                               int64_t n, uint8_t **end) {
    if (want & KTS_VIEWS) {
        kts_view_put_wide(t, row, p, n, r->base, r->buffer);
        return;
    }
    if (KTS_LIKELY(n >= 0)) {
        kts_copy_wide(*end, p, n);
        *end += n;
    } else {
        kts_text_null(t, row);
    }
    ((int32_t *)t->offsets.p)[row + 1] = (int32_t)(*end - t->data.p);
}

/* A varint of up to four bytes, undecoded; reads up to four bytes whatever they are. */
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

static KTS_INLINE uint64_t kts_unzigzag(uint32_t raw) { return (uint64_t)(int32_t)((raw >> 1) ^ (0 - (raw & 1))); }

/* Reads records without headers. There is no test of bounds between the fields: five varints and the attributes take
 * 21 bytes at most, so p is never that far behind `last` before it is looked at, and KTS_SLACK bytes can be read there. */
static KTS_INLINE void kts_record_loop(struct kts_run *r, const int want) {
    const uint8_t *p = r->p, *start = p, *stop, *key = p, *value = p;
    const uint8_t *const last = r->last;
    const uint64_t base_offset = r->base_offset, base_timestamp = r->base_timestamp;
    int64_t row = r->row, key_size = 0, size = 0;
    const int64_t most = r->most;
    int64_t *const offsets = r->offsets, *const timestamps = r->timestamps;
    struct kts_text *const keys = r->key, *const values = r->value;
    uint8_t *to_key = keys->data.p + keys->size, *to_value = values->data.p + values->size;
    int unusual = 0;
    uint32_t raw;
    uint64_t delta, offset_delta;
    while (row < most && p < last) {
        start = p;
        raw = kts_quick(&p, &unusual);
        if (raw & 1 || (int64_t)(raw >> 1) > last - p)
            break;
        stop = p + (raw >> 1);
        if (raw >> 1 <= KTS_SLACK) { /* longer ones the processor fetches better by itself */
            kts_prefetch(p + r->ahead);
            if (want & KTS_KEY_VALUE)
                kts_prefetch(p + r->ahead + 64);
        }
        p += 1; /* attributes of a record are unused */
        delta = kts_unzigzag(kts_quick(&p, &unusual));
        offset_delta = kts_unzigzag(kts_quick(&p, &unusual));
        if (want & (KTS_KEYS | KTS_VALUES | KTS_REST)) {
            raw = kts_quick(&p, &unusual);
            key = p;
            key_size = raw & 1 ? -1 : (int64_t)(raw >> 1);
            if (key_size > stop - p)
                break;
            p += raw & 1 ? 0 : key_size;
        }
        if (want & (KTS_VALUES | KTS_REST)) {
            raw = kts_quick(&p, &unusual);
            value = p;
            size = raw & 1 ? -1 : (int64_t)(raw >> 1);
            if (size > stop - p)
                break;
            p += raw & 1 ? 0 : size;
        }
        if (want & KTS_REST ? p + 1 != stop || p[0] : p > stop)
            break;
        if (unusual)
            break;
        if (want & KTS_KEYS)
            kts_put(r, keys, want, row, key, key_size, &to_key);
        if (want & KTS_VALUES)
            kts_put(r, values, want, row, value, size, &to_value);
        if (want & KTS_OFFSETS)
            offsets[row] = (int64_t)(base_offset + offset_delta);
        if (want & KTS_TIMESTAMPS)
            timestamps[row] = (int64_t)(base_timestamp + delta);
        row += 1;
        p = start = stop;
    }
    r->p = start;
    r->row = row;
    keys->size = to_key - keys->data.p;
    values->size = to_value - values->data.p;
}

/* Reads uncompressed messages of one magic; stops in front of a damaged one, too. */
static KTS_INLINE void kts_message_loop(struct kts_run *r, const int want, const int magic) {
    const uint8_t *p = r->p;
    const uint8_t *const last = r->last, *const until = r->until;
    const int head = magic ? 34 : 26; /* offset, size, CRC, magic, attributes, (timestamp), key length, value length */
    int64_t row = r->row;
    const int64_t most = r->most;
    struct kts_text *const keys = r->key, *const values = r->value;
    uint8_t *to_key = keys->data.p + keys->size, *to_value = values->data.p + values->size;
    while (row < most && p < until && last - p >= head) {
        const uint8_t *key = p + head - 4;
        int32_t size = (int32_t)kts_be32(p + 8), key_size = (int32_t)kts_be32(key - 4), value_size;
        if (size < head - 12 || size > last - p - 12 || p[16] != magic || p[17] & 7)
            break;
        if (key_size > size - (head - 12))
            break;
        const uint8_t *value = key + (key_size > 0 ? key_size : 0) + 4;
        value_size = (int32_t)kts_be32(value - 4);
        if (p + 12 + size - value != (value_size > 0 ? value_size : 0))
            break;
        if (want & KTS_CRC && kts_crc32(p + 16, (size_t)size - 4) != kts_be32(p + 12))
            break;
        if (want & KTS_KEYS)
            kts_put(r, keys, want, row, key, key_size, &to_key);
        if (want & KTS_VALUES)
            kts_put(r, values, want, row, value, value_size, &to_value);
        if (want & KTS_OFFSETS)
            r->offsets[row] = (int64_t)kts_be64(p);
        if (want & KTS_TIMESTAMPS)
            r->timestamps[row] = magic ? (int64_t)kts_be64(p + 18) : -1;
        if (want & KTS_TYPES)
            r->types[row] = magic ? (p[17] & 8) != 0 : -1;
        row += 1;
        r->latest = p;
        p += 12 + size;
    }
    r->p = p;
    r->row = row;
    keys->size = to_key - keys->data.p;
    values->size = to_value - values->data.p;
}

static void kts_read_records(struct kts_run *r, int want) {
    want &= ~(KTS_TYPES | KTS_CRC);
    switch (want) {
    case KTS_USUAL:
        kts_record_loop(r, KTS_USUAL);
        break;
    case KTS_USUAL | KTS_VIEWS:
        kts_record_loop(r, KTS_USUAL | KTS_VIEWS);
        break;
    case KTS_TIMES:
        kts_record_loop(r, KTS_TIMES);
        break;
    case KTS_TIMES | KTS_KEY_VALUE:
        kts_record_loop(r, KTS_TIMES | KTS_KEY_VALUE);
        break;
    default:
        kts_record_loop(r, want);
    }
}

static void kts_read_messages(struct kts_run *r, int want) {
    const int all = KTS_TIMES | KTS_TYPES | KTS_KEY_VALUE | KTS_CRC;
    want &= ~KTS_REST;
    if (want == all && r->magic)
        kts_message_loop(r, all, 1);
    else if (want == all)
        kts_message_loop(r, all, 0);
    else if (want == (all | KTS_VIEWS) && r->magic)
        kts_message_loop(r, all | KTS_VIEWS, 1);
    else
        kts_message_loop(r, want, r->magic);
}

#endif
