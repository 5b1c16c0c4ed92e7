/* The only writer of records, batches and messages. */
#ifndef KTS_WRITE_H
#define KTS_WRITE_H

#include "crc.h"
#include "format.h"
#include "status.h"

struct kts_strings { /* an Arrow binary column */
    const int32_t *offsets; /* NULL: all are null */
    const uint8_t *data;
    const uint8_t *end;   /* of the memory that may be read */
    const uint8_t *valid; /* NULL: no nulls */
    int64_t shift;        /* the array's offset */
};

struct kts_rows {
    int64_t count;
    const int64_t *offsets;
    const int64_t *times; /* the records' own timestamps */
    struct kts_strings key;
    struct kts_strings value;
    const int32_t *headers; /* NULL: none */
    int64_t header_shift;
    struct kts_strings header_key;
    struct kts_strings header_value;
};

struct kts_string {
    const uint8_t *p;
    int64_t n;          /* below 0: null */
    const uint8_t *end; /* of the memory that may be read */
};

struct kts_sink { /* where bytes are written */
    uint8_t *p;
    int64_t cap;
    int64_t end;
    int64_t need; /* room after the end that the last write needed and did not have (KTS_CRAMPED) */
};

enum { /* header fields that a batch takes from its rows */
    KTS_FOLLOWS_OFFSET = 1,
    KTS_FOLLOWS_DELTA = 2,
    KTS_FOLLOWS_BASE = 4,
    KTS_FOLLOWS_MAX = 8
};

struct kts_head { /* the header of a batch */
    int16_t attributes;
    int64_t offset; /* base offset */
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int32_t leader_epoch;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int follows;
};

/* Length of a string, -1 if null. */
static inline int64_t kts_string_at(const struct kts_strings *t, int64_t row, const uint8_t **p) {
    const int64_t i = row + t->shift;
    if (t->offsets == NULL || (t->valid != NULL && !(t->valid[i >> 3] >> (i & 7) & 1)))
        return -1;
    *p = t->data + t->offsets[i];
    return t->offsets[i + 1] - t->offsets[i];
}

/* Writes a record without headers at `to`, and may overwrite KTS_SLACK bytes after it. Returns its size.
 *
 * `prefix` is the width of the last record's length field, a guess for this record's: its length is known last. */
int64_t kts_put_record(uint8_t *to, int *prefix, int64_t time_delta, int64_t offset_delta, const struct kts_string *key,
                       const struct kts_string *value);

/* Writes a message of magic 0 or 1 with its offset and size; as kts_put_record. */
int64_t kts_put_message(uint8_t *to, int magic, int attributes, int64_t offset, int64_t timestamp,
                        const struct kts_string *key, const struct kts_string *value);

/* The size of such a message, including overhead. */
static inline int64_t kts_message_size(int magic, int64_t key_size, int64_t value_size) {
    return KTS_OVERHEAD + (magic ? KTS_V1_LEAST : KTS_V0_LEAST) + (key_size > 0 ? key_size : 0) +
           (value_size > 0 ? value_size : 0);
}

/* Writes the header and CRC of the batch at p; its `size` bytes are already written. */
void kts_put_batch(uint8_t *p, int64_t size, const struct kts_head *h, int32_t count);

/* Appends records of rows from *next up to `last`, the body of a batch that began at sink->p[body]: KTS_OK, KTS_CRAMPED,
 * or KTS_FULL if *next would make the batch larger than `most_bytes` or its offset does not fit. The first record may
 * have any valid size. */
int kts_write_records(struct kts_sink *sink, const struct kts_rows *r, const struct kts_head *h, int64_t body,
                      int64_t most_bytes, int64_t first, int64_t last, int64_t *next, int64_t *greatest, int *width);

/* Appends messages of rows from *row up to `last`, at least one, while they end within `most` bytes: KTS_OK, KTS_CRAMPED
 * or KTS_HUGE. `own`: with the rows' times, otherwise all with `time`. Offsets are written relative to `base`. */
int kts_write_messages(struct kts_sink *out, const struct kts_rows *r, int magic, int attributes, int own, int64_t time,
                       int64_t base, int64_t most, int64_t last, int64_t *row, int64_t *top);

/* Appends one message: KTS_OK, KTS_CRAMPED or KTS_HUGE. */
int kts_write_message(struct kts_sink *out, int magic, int attributes, int64_t offset, int64_t timestamp,
                      const struct kts_string *key, const struct kts_string *value);

#endif
