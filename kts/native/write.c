#include "write.h"

/* Writes length and bytes of a string. `end` is loaded only when needed: the compiler must assume that earlier writes may
 * change it, so a value loaded early would have to be saved. */
static KTS_INLINE uint8_t *put_string(uint8_t *p, const uint8_t *string, int64_t n, const uint8_t *const *end) {
    p = kts_put_varint(p, n);
    if (n > 0) {
        kts_copy(p, string, n, *end);
        p += n;
    }
    return p;
}

static uint8_t *put_headers(uint8_t *p, const struct kts_rows *r, int64_t first, int64_t count) {
    const uint8_t *string = NULL;
    int64_t i, n;
    p = kts_put_varint(p, count);
    for (i = first; i < first + count; i++) {
        n = kts_string_at(&r->header_key, i, &string);
        p = put_string(p, string, n, &r->header_key.end);
        n = kts_string_at(&r->header_value, i, &string);
        p = put_string(p, string, n, &r->header_value.end);
    }
    return p;
}

/* Writes a record with the headers of `r` from `first` on; `r` is not used if `count` is 0. */
static KTS_INLINE int64_t put_record(uint8_t *start, int *prefix, int64_t time_delta, int64_t offset_delta,
                                     const uint8_t *key, int64_t key_size, const uint8_t *const *key_end,
                                     const uint8_t *value, int64_t value_size, const uint8_t *const *value_end,
                                     const struct kts_rows *r, int64_t first, int64_t count) {
    int64_t size, width;
    for (;;) {
        uint8_t *body = start + *prefix, *p;
        *body = 0; /* attributes */
        p = kts_put_varint(body + 1, time_delta);
        p = kts_put_varint(p, offset_delta);
        p = put_string(p, key, key_size, key_end);
        p = put_string(p, value, value_size, value_end);
        if (KTS_LIKELY(count == 0))
            *p++ = 0;
        else
            p = put_headers(p, r, first, count);
        size = p - body;
        width = kts_put_varint(start, size) - start;
        if (KTS_LIKELY(width == *prefix))
            return width + size;
        /* the length overwrote the body's first bytes, or left a gap: repeat with the right width */
        *prefix = (int)width;
    }
}

int64_t kts_put_record(uint8_t *to, int *prefix, int64_t time_delta, int64_t offset_delta, const struct kts_string *key,
                       const struct kts_string *value) {
    return put_record(to, prefix, time_delta, offset_delta, key->p, key->n, &key->end, value->p, value->n, &value->end,
                      NULL, 0, 0);
}

void kts_put_batch(uint8_t *p, int64_t size, const struct kts_head *h, int32_t count) {
    kts_put64(p + KTS_OFFSET_AT, (uint64_t)h->offset);
    kts_put32(p + KTS_SIZE_AT, (uint32_t)(size - KTS_OVERHEAD));
    kts_put32(p + KTS_BATCH_EPOCH_AT, (uint32_t)h->leader_epoch);
    p[KTS_MAGIC_AT] = 2;
    kts_put16(p + KTS_BATCH_ATTRIBUTES_AT, (uint16_t)h->attributes);
    kts_put32(p + KTS_BATCH_DELTA_AT, (uint32_t)h->last_offset_delta);
    kts_put64(p + KTS_BATCH_BASE_TIME_AT, (uint64_t)h->base_timestamp);
    kts_put64(p + KTS_BATCH_MAX_TIME_AT, (uint64_t)h->max_timestamp);
    kts_put64(p + KTS_BATCH_PRODUCER_AT, (uint64_t)h->producer_id);
    kts_put16(p + KTS_BATCH_PRODUCER_EPOCH_AT, (uint16_t)h->producer_epoch);
    kts_put32(p + KTS_BATCH_SEQUENCE_AT, (uint32_t)h->base_sequence);
    kts_put32(p + KTS_BATCH_COUNT_AT, (uint32_t)count);
    kts_put32(p + KTS_BATCH_CRC_AT, kts_entry_crc(p, size, 1));
}

/* The most bytes that the headers of a row can take. */
static int64_t headers_need(const struct kts_rows *r, int64_t first, int64_t count) {
    const uint8_t *string;
    int64_t i, need = 0;
    for (i = first; i < first + count; i++)
        need += 10 + kts_string_at(&r->header_key, i, &string) + kts_string_at(&r->header_value, i, &string);
    return need;
}

/* Appends the record of a row: KTS_OK, KTS_FULL if it has more than `most` bytes, or KTS_CRAMPED. */
static KTS_INLINE int row_record(struct kts_sink *out, const struct kts_rows *r, int64_t row, int64_t time_delta,
                                 int64_t offset_delta, int64_t most, int *prefix) {
    const uint8_t *key = NULL, *value = NULL;
    const int64_t key_size = kts_string_at(&r->key, row, &key), value_size = kts_string_at(&r->value, row, &value);
    int64_t first = 0, count = 0, need = 48 + KTS_SLACK + key_size + value_size, size;
    if (r->headers != NULL) {
        first = r->headers[row + r->header_shift];
        count = r->headers[row + r->header_shift + 1] - first;
        need += headers_need(r, first, count);
    }
    if (key_size + value_size > most)
        return KTS_FULL;
    if (out->end + need > out->cap) {
        out->need = need;
        return KTS_CRAMPED;
    }
    size = put_record(out->p + out->end, prefix, time_delta, offset_delta, key, key_size, &r->key.end, value, value_size,
                      &r->value.end, r, first, count);
    if (size > most)
        return KTS_FULL;
    out->end += size;
    return KTS_OK;
}

int kts_write_records(struct kts_sink *sink, const struct kts_rows *r, const struct kts_head *h, int64_t body,
                      int64_t most_bytes, int64_t first, int64_t last, int64_t *next, int64_t *greatest, int *width) {
    const int64_t base_offset = h->offset, base_timestamp = h->base_timestamp;
    int64_t row = *next, top = *greatest;
    int prefix = *width, status = KTS_OK;
    for (; row < last; row++) {
        const int64_t time = r->times[row], offset_delta = kts_minus(r->offsets[row], base_offset);
        const int64_t most = row == first || most_bytes > KTS_LARGEST_ENTRY ? KTS_LARGEST_ENTRY : most_bytes;
        status = KTS_FULL;
        if (offset_delta > INT32_MAX || offset_delta < INT32_MIN)
            break;
        status = row_record(sink, r, row, kts_minus(time, base_timestamp), offset_delta,
                            most - KTS_BATCH_HEADER - (sink->end - body), &prefix);
        if (status != KTS_OK)
            break;
        if (time > top)
            top = time;
    }
    *next = row;
    *greatest = top;
    *width = prefix;
    return status;
}

/* --- messages -------------------------------------------------------------------------------------------- */

int64_t kts_put_message(uint8_t *to, int magic, int attributes, int64_t offset, int64_t timestamp,
                        const struct kts_string *key, const struct kts_string *value) {
    const int64_t size = kts_message_size(magic, key->n, value->n);
    uint8_t *p = to + (magic ? KTS_V1_KEY_AT : KTS_V0_KEY_AT);
    kts_put64(to + KTS_OFFSET_AT, (uint64_t)offset);
    kts_put32(to + KTS_SIZE_AT, (uint32_t)(size - KTS_OVERHEAD));
    to[KTS_MAGIC_AT] = (uint8_t)magic;
    to[KTS_MESSAGE_ATTRIBUTES_AT] = (uint8_t)attributes;
    if (magic)
        kts_put64(to + KTS_MESSAGE_TIME_AT, (uint64_t)timestamp);
    kts_put32(p, key->n < 0 ? 0xFFFFFFFFu : (uint32_t)key->n);
    p += 4;
    if (key->n > 0) {
        kts_copy(p, key->p, key->n, key->end);
        p += key->n;
    }
    kts_put32(p, value->n < 0 ? 0xFFFFFFFFu : (uint32_t)value->n);
    if (value->n > 0)
        kts_copy(p + 4, value->p, value->n, value->end);
    kts_put32(to + KTS_MESSAGE_CRC_AT, kts_entry_crc(to, size, 0));
    return size;
}

int kts_write_message(struct kts_sink *out, int magic, int attributes, int64_t offset, int64_t timestamp,
                      const struct kts_string *key, const struct kts_string *value) {
    const int64_t size = kts_message_size(magic, key->n, value->n);
    if (size - KTS_OVERHEAD > KTS_LARGEST_ENTRY)
        return KTS_HUGE;
    if (out->end + size + KTS_SLACK > out->cap) {
        out->need = size + KTS_SLACK;
        return KTS_CRAMPED;
    }
    out->end += kts_put_message(out->p + out->end, magic, attributes, offset, timestamp, key, value);
    return KTS_OK;
}

int kts_write_messages(struct kts_sink *out, const struct kts_rows *r, int magic, int attributes, int own, int64_t time,
                       int64_t base, int64_t most, int64_t last, int64_t *row, int64_t *top) {
    struct kts_string key = {NULL, -1, r->key.end}, value = {NULL, -1, r->value.end};
    int status;
    for (; *row < last; *row += 1) {
        key.n = kts_string_at(&r->key, *row, &key.p);
        value.n = kts_string_at(&r->value, *row, &value.p);
        if (out->end && out->end + kts_message_size(magic, key.n, value.n) > most)
            break;
        status = kts_write_message(out, magic, attributes, kts_minus(r->offsets[*row], base),
                                   own ? r->times[*row] : time, &key, &value);
        if (status != KTS_OK)
            return status;
        if (r->times[*row] > *top)
            *top = r->times[*row];
    }
    return KTS_OK;
}
