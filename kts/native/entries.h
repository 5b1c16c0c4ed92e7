/* The only walk over entries: their sizes, their headers, the body of a message, and their faults. */
#ifndef KTS_ENTRIES_H
#define KTS_ENTRIES_H

#include "codecs.h"
#include "crc.h"
#include "format.h"
#include "refusals.h"
#include "status.h"

struct kts_error { /* why bytes cannot be read */
    int reason; /* enum kts_reason */
    int64_t position; /* of the entry */
    int64_t offset;
    int64_t record; /* -1 if the error is not about a record */
    int64_t count;  /* records declared, -1 unknown */
    int64_t a;      /* the numbers in the reason's words */
    int64_t b;
};

static inline int kts_fail(struct kts_error *err, int reason, int64_t a, int64_t b) {
    err->reason = reason;
    err->a = a;
    err->b = b;
    return KTS_FAILED;
}

/* KTS_OK for a magic up to `most`; else KTS_FAILED and the reason. */
static inline int kts_check_magic(int magic, int most, struct kts_error *err) {
    if (KTS_LIKELY(magic >= 0 && magic <= most))
        return KTS_OK;
    if (magic >= KTS_OPTION_1 && magic <= KTS_OPTION_3)
        return kts_fail(err, KTS_PROPOSED_MAGIC, magic, magic - KTS_OPTION_1 + 1);
    return kts_fail(err, KTS_BAD_MAGIC, magic, most);
}

struct kts_entry { /* the header of an entry */
    const uint8_t *p; /* first byte */
    int64_t position; /* of p in the source */
    int64_t size;     /* including the 12 bytes of overhead */
    int magic;
    int codec;
    int16_t attributes;
    int64_t offset; /* base offset of a batch, offset of a message */
    int32_t last_offset_delta;
    int64_t base_timestamp; /* of a batch; the timestamp of a message */
    int64_t max_timestamp;  /* of a batch; the timestamp of a message, -1 in magic 0 */
    int32_t leader_epoch;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t count;          /* -1 for messages */
    const uint8_t *payload; /* records of a batch, value of a message (NULL: null) */
    int64_t payload_size;
    const uint8_t *key; /* of a message */
    int64_t key_size;   /* -1: null */
    int crc_ok;         /* -1: not verified */
};

enum kts_generation { KTS_GENERATION_0_10, KTS_GENERATION_3_9 };

/* The size of the entry at p, including 12 bytes of overhead: KTS_OK, KTS_END if fewer bytes are left (a known size is
 * set even so), or KTS_FAILED and the reason (ByteBufferLogInputStream). 0.10.2 does not check the magic; one that was
 * proposed is refused even so. */
static inline int kts_entry_size(const uint8_t *p, int64_t left, int generation, int64_t *size, struct kts_error *err) {
    int32_t stated;
    if (left < KTS_OVERHEAD)
        return KTS_END;
    stated = kts_i32(p + KTS_SIZE_AT);
    if (stated < KTS_V0_LEAST)
        return kts_fail(err, KTS_BAD_SIZE, stated, 0);
    if (generation == KTS_GENERATION_3_9 && left <= KTS_MAGIC_AT)
        return KTS_END;
    if (left > KTS_MAGIC_AT && kts_check_magic((int8_t)p[KTS_MAGIC_AT], 2, err) != KTS_OK &&
        (generation == KTS_GENERATION_3_9 || err->reason == KTS_PROPOSED_MAGIC))
        return KTS_FAILED;
    if (stated > KTS_LARGEST_ENTRY)
        return kts_fail(err, KTS_SIZE_OVERFLOW, stated, 0);
    *size = (int64_t)stated + KTS_OVERHEAD;
    return left >= *size ? KTS_OK : KTS_END;
}

/* The header of the entry at `position`: KTS_OK even if the entry is incomplete, KTS_END if the header is. */
int kts_read_header(const uint8_t *data, int64_t size, int64_t position, struct kts_entry *e, struct kts_error *err);

/* The same for a whole entry; an incomplete one is the end. Reads no CRC and no body. */
int kts_next_entry(const uint8_t *data, int64_t size, int64_t position, struct kts_entry *e, struct kts_error *err);

/* The header of a batch, or of a message, at e->p, of e->size bytes. */
void kts_batch_header(struct kts_entry *e);
static inline void kts_message_header(struct kts_entry *e) {
    e->attributes = (int8_t)e->p[KTS_MESSAGE_ATTRIBUTES_AT];
    e->codec = e->attributes & KTS_CODEC_MASK;
    e->max_timestamp = e->magic ? kts_i64(e->p + KTS_MESSAGE_TIME_AT) : -1;
    e->base_timestamp = e->max_timestamp;
    e->leader_epoch = -1;
    e->last_offset_delta = 0;
    e->producer_id = -1;
    e->producer_epoch = -1;
    e->base_sequence = -1;
    e->count = -1;
}

/* Key and value of a message, which must fill it exactly: KTS_OK or KTS_FAILED; both are set if the only fault is bytes
 * after the value (KTS_MESSAGE_REST). `key_at` is the position of the key's length. */
static inline int kts_message_body(const uint8_t *key_at, const uint8_t *end, struct kts_entry *e, struct kts_error *err) {
    const uint8_t *p = key_at + 4;
    int64_t left = end - key_at - 8; /* without both length fields */
    int32_t n;
    if (left < 0)
        return kts_fail(err, KTS_MESSAGE_KEY, 0, left);
    n = kts_i32(key_at);
    if (n > left)
        return kts_fail(err, KTS_MESSAGE_KEY, n, left);
    e->key = p;
    e->key_size = n >= 0 ? n : -1;
    if (n > 0) {
        p += n;
        left -= n;
    }
    n = kts_i32(p);
    p += 4;
    if (n > left)
        return kts_fail(err, KTS_MESSAGE_VALUE, n, left);
    e->payload = n >= 0 ? p : NULL;
    e->payload_size = n >= 0 ? n : 0;
    return left == e->payload_size ? KTS_OK : kts_fail(err, KTS_MESSAGE_REST, n, left - e->payload_size);
}

/* The value of a wrapper after its header was read: KTS_OK or KTS_FAILED. Bytes after it do not count, as in Kafka. */
static inline int kts_wrapper_value(struct kts_entry *e, struct kts_error *err) {
    if (e->codec > KTS_LAST_CODEC)
        return kts_fail(err, KTS_BAD_CODEC, e->codec, KTS_LAST_CODEC);
    if (!kts_carries(e->magic, e->codec))
        return kts_fail(err, KTS_WRAPPER_CODEC, e->codec, e->magic);
    if (kts_message_body(e->p + (e->magic ? KTS_V1_KEY_AT : KTS_V0_KEY_AT), e->p + e->size, e, err) &&
        err->reason != KTS_MESSAGE_REST)
        return KTS_FAILED;
    return e->payload == NULL ? kts_fail(err, KTS_WRAPPER_NULL, 0, 0) : KTS_OK;
}

/* The size of the inner message at p, including 12 bytes of overhead: KTS_OK, KTS_END if fewer bytes are left,
 * KTS_FAILED if it is too small; `stated` is the size field. */
static inline int kts_inner_size(const uint8_t *p, int64_t left, int64_t *size, int32_t *stated) {
    if (left < KTS_OVERHEAD)
        return KTS_END;
    *stated = kts_i32(p + KTS_SIZE_AT);
    if (*stated < KTS_V0_LEAST)
        return KTS_FAILED;
    *size = (int64_t)*stated + KTS_OVERHEAD;
    return *size > left ? KTS_END : KTS_OK;
}

/* The offset of the first message of a wrapper whose value is p[0:n] decompressed: KTS_OK or KTS_FAILED. Nothing is read
 * but sizes, offsets and whether the first one is compressed (AbstractLegacyRecordBatch.DeepRecordsIterator). */
static inline int kts_first_inner_offset(const uint8_t *p, int64_t n, const struct kts_entry *outer, int64_t *offset,
                                         struct kts_error *err) {
    const uint8_t *at = p;
    int64_t size = 0, last = 0;
    int32_t stated = 0;
    int status;
    for (; (status = kts_inner_size(at, p + n - at, &size, &stated)) == KTS_OK; at += size)
        last = kts_i64(at);
    if (status == KTS_FAILED)
        return kts_fail(err, KTS_SHORT_INNER, stated, KTS_V0_LEAST);
    if (at == p)
        return kts_fail(err, KTS_WRAPPER_EMPTY, 0, 0);
    if (p[KTS_MESSAGE_ATTRIBUTES_AT] & KTS_CODEC_MASK)
        return kts_fail(err, KTS_NESTED, p[KTS_MESSAGE_ATTRIBUTES_AT] & KTS_CODEC_MASK, 0);
    *offset = kts_i64(p);
    if (outer->magic == 0 || outer->offset == 0)
        return KTS_OK;
    if (outer->offset < last)
        return kts_fail(err, KTS_WRAPPER_OFFSET, outer->offset, last);
    *offset = kts_plus(*offset, kts_minus(outer->offset, last));
    return KTS_OK;
}

/* Whether the stored CRC is the computed one; err->a and err->b are set to both. */
static inline int kts_crc_ok(const struct kts_entry *e, struct kts_error *err) {
    err->a = kts_stored_crc(e->p, e->magic == 2);
    err->b = kts_entry_crc(e->p, e->size, e->magic == 2);
    return err->a == err->b;
}

/* Reads the header and body of the inner message at e->p, which has e->size bytes: KTS_OK or KTS_FAILED. */
static inline int kts_inner_message(struct kts_entry *e, int verify, struct kts_error *err) {
    const int64_t stated = e->size - KTS_OVERHEAD;
    e->magic = e->p[KTS_MAGIC_AT];
    if (kts_check_magic((int8_t)e->magic, 1, err) != KTS_OK) {
        if (err->reason == KTS_BAD_MAGIC)
            err->reason = KTS_UNKNOWN_INNER_MAGIC;
        return KTS_FAILED;
    }
    if (e->magic == 1 && stated < KTS_V1_LEAST)
        return kts_fail(err, KTS_SHORT_INNER, stated, KTS_V1_LEAST);
    kts_message_header(e);
    if (e->codec)
        return kts_fail(err, KTS_NESTED, e->codec, 0);
    if (verify && !kts_crc_ok(e, err))
        return kts_fail(err, KTS_INNER_CRC, err->a, err->b);
    e->offset = kts_i64(e->p);
    return kts_message_body(e->p + (e->magic ? KTS_V1_KEY_AT : KTS_V0_KEY_AT), e->p + e->size, e, err);
}

/* Checks an entry after its header was read, as far as possible without decompressing it. */
static inline int kts_check_entry(struct kts_entry *e, int verify, struct kts_error *err) {
    if (e->codec > KTS_LAST_CODEC)
        return kts_fail(err, KTS_BAD_CODEC, e->codec, KTS_LAST_CODEC);
    if (!kts_carries(e->magic, e->codec))
        return kts_fail(err, KTS_WRAPPER_CODEC, e->codec, e->magic);
    if (verify && !kts_crc_ok(e, err))
        return kts_fail(err, KTS_BAD_CRC, err->a, err->b);
    if (e->magic == 2)
        return KTS_OK;
    if (kts_message_body(e->p + (e->magic ? KTS_V1_KEY_AT : KTS_V0_KEY_AT), e->p + e->size, e, err))
        return KTS_FAILED;
    return e->codec && e->payload == NULL ? kts_fail(err, KTS_WRAPPER_NULL, 0, 0) : KTS_OK;
}

static inline int64_t kts_last_offset(const struct kts_entry *e) { return kts_plus(e->offset, e->last_offset_delta); }

/* -1, or the timestamp type: magic 0 has none. */
static inline int32_t kts_type_of(const struct kts_entry *e) {
    return e->magic ? (e->attributes & KTS_LOG_APPEND_TIME) != 0 : -1;
}

struct kts_row { /* an entry as a row of a table: Python sees it, and NumPy as an array (ENTRY of codec/layout.py) */
    int64_t position;
    int64_t base_offset; /* -1 of a wrapper, which states its last offset only */
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t size;
    int32_t count; /* of records; -1 of a wrapper */
    int32_t leader_epoch;
    int32_t base_sequence;
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;
    int8_t codec;
    int8_t timestamp_type;
    int8_t crc_ok; /* -1: not verified */
    uint8_t transactional;
    uint8_t control;
};

/* `crc_ok`: -1 where it was not verified. */
static inline void kts_row_of(const struct kts_entry *e, int crc_ok, struct kts_row *row) {
    int batch = e->magic == 2;
    int plain = batch || e->codec == 0;
    row->position = e->position;
    row->base_offset = plain ? e->offset : -1;
    row->last_offset = kts_last_offset(e);
    row->base_timestamp = e->base_timestamp;
    row->max_timestamp = e->max_timestamp;
    row->producer_id = e->producer_id;
    row->size = (int32_t)e->size;
    row->count = batch ? e->count : plain ? 1 : -1;
    row->leader_epoch = e->leader_epoch;
    row->base_sequence = e->base_sequence;
    row->attributes = e->attributes;
    row->producer_epoch = e->producer_epoch;
    row->magic = (int8_t)e->magic;
    row->codec = (int8_t)e->codec;
    row->timestamp_type = (int8_t)kts_type_of(e);
    row->crc_ok = (int8_t)crc_ok;
    row->transactional = batch && e->attributes & KTS_TRANSACTIONAL;
    row->control = batch && e->attributes & KTS_CONTROL;
}

#endif
