/* Rewrites a checked set in another format or codec, in its original order. */
#include "append.h"
#include "write.h"

static void written(const struct kts_append *s, struct kts_writer *w, int64_t time, int64_t size) {
    if (kts_later(s, time, w->top)) {
        w->top = time;
        w->top_offset = w->offset;
    }
    w->offset += 1;
    w->size += size;
}

/* Writes a record with these fields in the writer's format. */
static void rewrite(const struct kts_append *s, struct kts_writer *w, int type, int64_t time, const struct kts_string *key,
                    const struct kts_string *value) {
    uint8_t *to = w->out + w->size;
    int64_t size;
    if (w->append_time)
        time = w->now;
    if (w->magic == 2) {
        if (w->offset == s->asked.start)
            w->first_time = time;
        size = kts_put_record(to, &w->prefix, kts_minus(time, w->first_time), kts_minus(w->offset, s->asked.start), key,
                              value);
    } else {
        if (w->append_time && w->magic)
            type = KTS_LOG_APPEND_TIME;
        size = kts_put_message(to, w->magic, type, kts_minus(w->offset, w->base), time, key, value);
    }
    written(s, w, w->magic == 0 && (w->own_type || !s->asked.r.old) ? -1 : time, size);
}

/* Copies a message of the writer's magic. */
static void keep(const struct kts_append *s, struct kts_writer *w, const struct kts_seen_message *m) {
    uint8_t *to = w->out + w->size;
    int64_t time = m->time;
    memcpy(to, m->e.p, (size_t)m->e.size);
    kts_put64(to + KTS_OFFSET_AT, (uint64_t)kts_minus(w->offset, w->base));
    if (w->stamp && w->magic) {
        time = w->now;
        to[KTS_MESSAGE_ATTRIBUTES_AT] |= KTS_LOG_APPEND_TIME;
        kts_put64(to + KTS_MESSAGE_TIME_AT, (uint64_t)time);
        kts_put32(to + KTS_MESSAGE_CRC_AT, kts_entry_crc(to, m->e.size, 0));
    }
    written(s, w, time, m->e.size);
}

/* Writes the messages at p[0:n], the inner messages of `outer` unless it is NULL. */
static void rewrite_messages(const struct kts_append *s, struct kts_writer *w, const uint8_t *p, int64_t n,
                             const struct kts_entry *outer) {
    const uint8_t *const end = p + n;
    struct kts_seen_message m;
    struct kts_string key, value;
    int64_t size = 0;
    int32_t stated;
    int fault, type;
    for (; kts_inner_size(p, end - p, &size, &stated) == KTS_OK; p += size) {
        kts_see_message(s, &m, p, size, outer);
        if (w->keep && m.e.magic == w->magic) {
            keep(s, w, &m);
            continue;
        }
        fault = kts_message_fields(&m);
        if (fault != KTS_OK && fault != KTS_MESSAGE_REST)
            return;
        type = 0;
        if (w->own_type && w->magic)
            type = m.e.magic == 0 ? m.e.attributes & KTS_LOG_APPEND_TIME : m.append_time ? KTS_LOG_APPEND_TIME : 0;
        key = (struct kts_string){m.e.key, m.e.key_size, end};
        value = (struct kts_string){m.e.payload, m.e.payload == NULL ? -1 : m.e.payload_size, end};
        rewrite(s, w, type, m.time, &key, &value);
    }
}

/* Writes the records at p[0:n] of batch b, which have no headers. */
static void rewrite_records(const struct kts_append *s, struct kts_writer *w, const struct kts_entry *b, const uint8_t *p,
                            int64_t n) {
    const int append_time = (b->attributes & KTS_LOG_APPEND_TIME) != 0;
    const uint8_t *const end = p + n;
    struct kts_record r;
    struct kts_error err;
    struct kts_string key, value;
    int64_t i;
    for (i = 0; i < b->count && p < end; i++) {
        if (kts_read_record(&p, end, end, KTS_KEYS | KTS_VALUES | KTS_REST, 1, NULL, &r, &err))
            return;
        key = (struct kts_string){r.key, r.key_size, end};
        value = (struct kts_string){r.value, r.value_size, end};
        rewrite(s, w, 0, append_time ? b->max_timestamp : kts_plus(b->base_timestamp, r.time_delta), &key, &value);
    }
}

void kts_rewrite_entry(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size) {
    struct kts_entry b;
    if (kts_is_batch(s, e)) {
        kts_see_outer(s, &b, e, size);
        rewrite_records(s, w, &b, b.payload, b.payload_size);
    } else {
        rewrite_messages(s, w, e, size, NULL);
    }
}

void kts_rewrite_inflated(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size,
                          const uint8_t *p, int64_t n) {
    struct kts_entry outer;
    kts_see_outer(s, &outer, e, size);
    if (kts_is_batch(s, e))
        rewrite_records(s, w, &outer, p, n);
    else
        rewrite_messages(s, w, p, n, &outer);
}

/* --- records in canonical form --------------------------------------------------------------------------- */

/* Whether the varint that ends at `end` has its shortest form. */
static inline int is_short(const uint8_t *start, const uint8_t *end, int most) {
    return end - start == 1 || (end[-1] != 0 && end - start < most);
}

static inline int short_varint(const uint8_t **at, const uint8_t *end, int32_t *value) {
    const uint8_t *start = *at;
    return kts_varint(at, end, value) == KTS_VARINT_OK && is_short(start, *at, 5);
}

static inline int short_string(const uint8_t **at, const uint8_t *end) {
    int32_t n;
    if (!short_varint(at, end, &n) || n < -1 || n > end - *at)
        return 0;
    *at += n > 0 ? n : 0;
    return 1;
}

int kts_as_written(const uint8_t *p, int64_t n, int64_t count) {
    const uint8_t *end = p + n, *start;
    int64_t i, time_delta;
    int32_t length, offset, headers;
    for (i = 0; i < count; i++) {
        if (!short_varint(&p, end, &length) || length < 1 || *p++ != 0)
            return 0;
        start = p;
        if (kts_varlong(&p, end, &time_delta) != KTS_VARINT_OK || !is_short(start, p, 10) || (i == 0 && time_delta))
            return 0;
        if (!short_varint(&p, end, &offset) || offset != i || !short_string(&p, end) || !short_string(&p, end) ||
            !short_varint(&p, end, &headers) || headers)
            return 0;
    }
    return p == end;
}
