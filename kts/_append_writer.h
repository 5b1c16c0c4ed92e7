/* What is written of sets being appended: stamps on entries that are kept, messages and records anew. */
#ifndef KTS_APPEND_WRITER_H
#define KTS_APPEND_WRITER_H

#include "_append_messages.h"

/* The time and type of an entry in place, and its CRC where that changes something (setMaxTimestamp). */
static void kts_stamp(const struct kts_append *s, uint8_t *e, int64_t size, int64_t time) {
    int type = s->r.append_time ? 8 : 0, always;
    if (!s->r.old && e[16] == 2) {
        if ((e[22] & 8) == type && (int64_t)kts_be64(e + 35) == time)
            return;
        e[21] = 0;
        e[22] = (uint8_t)((e[22] & 0x77) | type);
        kts_put64(e + 35, (uint64_t)time);
        kts_put32(e + 17, kts_entry_crc(e, size, 1));
        return;
    }
    always = s->r.old && s->r.append_time;
    if (!always && (e[17] & 8) == type && (int64_t)kts_be64(e + 18) == time)
        return;
    e[17] = (uint8_t)((s->r.old ? e[17] & 0xF7 : e[17] & 7) | type);
    kts_put64(e + 18, (uint64_t)time);
    kts_put32(e + 12, kts_entry_crc(e, size, 0));
}

/* The offset of an entry that is kept, so that its last record gets `last`. */
static void kts_place(const struct kts_append *s, uint8_t *e, int64_t last) {
    if (!s->r.old && e[16] == 2) {
        kts_put64(e, (uint64_t)last - (uint64_t)(int64_t)(int32_t)kts_be32(e + 23));
        if (s->r.magic == 2) /* or a control batch on a compressed topic of an older format */
            kts_put32(e + 12, (uint32_t)s->epoch);
    } else {
        kts_put64(e, (uint64_t)last);
    }
}

/* --- messages written anew ------------------------------------------------------------------------- */

struct kts_writer { /* of messages of magic 0 or 1, or of the records of a batch */
    uint8_t *out;
    int64_t size;
    int64_t offset;   /* of the next */
    int64_t base;     /* that offsets are written relative to */
    int magic;
    int keep;         /* what has this magic stays as it is */
    int stamp;        /* the clock's time and type to those that are kept, too */
    int append_time;  /* the clock's time and type to those that are not */
    int own_type;     /* a type bit of the source is carried over */
    int64_t now;
    int64_t top;      /* greatest time */
    int64_t top_offset;
    int64_t first_time; /* of a batch */
};

static inline int64_t kts_put_bytes(uint8_t *to, const uint8_t *p, int64_t n) {
    if (n > 0)
        memcpy(to, p, (size_t)n);
    return n > 0 ? n : 0;
}

/* A message of magic 0 or 1; sizes below 0 are null. Returns its bytes. */
static int64_t kts_put_message(uint8_t *to, int magic, int type, int64_t time, const uint8_t *key, int64_t key_size,
                               const uint8_t *value, int64_t value_size) {
    int64_t size = magic ? 26 : 18;
    to[16] = (uint8_t)magic;
    to[17] = (uint8_t)type;
    if (magic)
        kts_put64(to + 18, (uint64_t)time);
    kts_put32(to + size, key_size < 0 ? 0xFFFFFFFFu : (uint32_t)key_size);
    size += 4 + kts_put_bytes(to + size + 4, key, key_size);
    kts_put32(to + size, value_size < 0 ? 0xFFFFFFFFu : (uint32_t)value_size);
    size += 4 + kts_put_bytes(to + size + 4, value, value_size);
    kts_put32(to + 8, (uint32_t)(size - 12));
    kts_put32(to + 12, kts_crc32(to + 16, (size_t)size - 16));
    return size;
}

static inline uint64_t kts_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }

static inline int64_t kts_varint_size(int64_t v) {
    uint64_t raw = kts_zigzag(v);
    int64_t n = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        n += 1;
    }
    return n;
}

static inline uint8_t *kts_put_varint(uint8_t *to, int64_t v) {
    uint64_t raw = kts_zigzag(v);
    while (raw >= 0x80) {
        *to++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *to = (uint8_t)raw;
    return to + 1;
}

/* A record of magic 2 without headers; sizes below 0 are null. Returns its bytes. */
static int64_t kts_put_record(uint8_t *to, int64_t time_delta, int64_t offset_delta, const uint8_t *key,
                              int64_t key_size, const uint8_t *value, int64_t value_size) {
    uint8_t *p = to;
    if (key_size < 0)
        key_size = -1;
    if (value_size < 0)
        value_size = -1;
    p = kts_put_varint(p, 2 + kts_varint_size(time_delta) + kts_varint_size(offset_delta) + kts_varint_size(key_size) +
                              kts_varint_size(value_size) + (key_size > 0 ? key_size : 0) +
                              (value_size > 0 ? value_size : 0));
    *p++ = 0;
    p = kts_put_varint(p, time_delta);
    p = kts_put_varint(p, offset_delta);
    p = kts_put_varint(p, key_size);
    p += kts_put_bytes(p, key, key_size);
    p = kts_put_varint(p, value_size);
    p += kts_put_bytes(p, value, value_size);
    *p++ = 0;
    return p - to;
}

static inline void kts_written(const struct kts_append *s, struct kts_writer *w, int64_t time, int64_t size) {
    if (kts_later(s, time, w->top)) {
        w->top = time;
        w->top_offset = w->offset;
    }
    w->offset += 1;
    w->size += size;
}

/* Writes a record that has these fields in the writer's format. */
static void kts_write(const struct kts_append *s, struct kts_writer *w, int type, int64_t time, const uint8_t *key,
                      int64_t key_size, const uint8_t *value, int64_t value_size) {
    uint8_t *to = w->out + w->size;
    int64_t size;
    if (w->append_time)
        time = w->now;
    if (w->magic == 2) {
        if (w->offset == s->start)
            w->first_time = time;
        size = kts_put_record(to, kts_minus(time, w->first_time), kts_minus(w->offset, s->start), key, key_size, value,
                              value_size);
    } else {
        size = kts_put_message(to, w->magic, w->append_time && w->magic ? 8 : type, time, key, key_size, value, value_size);
        kts_put64(to, (uint64_t)w->offset - (uint64_t)w->base);
    }
    kts_written(s, w, w->magic == 0 && (w->own_type || !s->r.old) ? -1 : time, size);
}

/* Writes the message m, in not more bytes than it has and 8. */
static void kts_write_message(const struct kts_append *s, struct kts_writer *w, const struct kts_message *m) {
    uint8_t *to = w->out + w->size;
    int64_t time = m->time;
    int type = 0;
    if (w->keep && m->magic == w->magic) {
        memcpy(to, m->e, (size_t)m->size);
        kts_put64(to, (uint64_t)w->offset - (uint64_t)w->base);
        if (w->stamp && w->magic) {
            time = w->now;
            to[17] |= 8;
            kts_put64(to + 18, (uint64_t)time);
            kts_put32(to + 12, kts_crc32(to + 16, (size_t)m->size - 16));
        }
        kts_written(s, w, time, m->size);
        return;
    }
    if (w->own_type && w->magic)
        type = (m->magic == 0 ? m->e[17] & 8 : m->append_time) ? 8 : 0;
    kts_write(s, w, type, time, m->key + 4, (int32_t)kts_be32(m->key), m->value, m->null_value ? -1 : m->end - m->value);
}

/* Writes the records at p[0:n] of batch e, which were looked at and have no headers. */
static void kts_write_records(const struct kts_append *s, struct kts_writer *w, const uint8_t *p, int64_t n,
                              const uint8_t *e) {
    const uint8_t *end = p + n, *key, *value;
    struct kts_batch b;
    int64_t i, delta, key_size, value_size, other;
    kts_batch_of(&b, e);
    for (i = 0; i < b.count && p < end; i++) {
        if (kts_long(&p, end, 5, &other) || p++ >= end || kts_long(&p, end, 10, &delta) || kts_long(&p, end, 5, &other) ||
            kts_long(&p, end, 5, &key_size) || key_size > end - p)
            return;
        key = p;
        p += key_size > 0 ? key_size : 0;
        if (kts_long(&p, end, 5, &value_size) || value_size > end - p)
            return;
        value = p;
        p += value_size > 0 ? value_size : 0;
        if (kts_long(&p, end, 5, &other))
            return;
        kts_write(s, w, 0, b.append_time ? b.outer_time : (int64_t)((uint64_t)b.base_time + (uint64_t)delta), key,
                  key_size, value, value_size);
    }
}

/* Writes the messages at p[0:n], the inner ones of `outer` where there is one. */
static void kts_write_messages(struct kts_append *s, struct kts_writer *w, const uint8_t *p, int64_t n,
                               const uint8_t *wrapper) {
    struct kts_batch outer;
    struct kts_message m;
    int64_t at = 0, size;
    if (wrapper) {
        outer.append_time = wrapper[16] != 0 && wrapper[17] & 8 ? 1 : 0;
        outer.outer_time = wrapper[16] == 0 ? -1 : (int64_t)kts_be64(wrapper + 18);
    }
    while (n - at >= 26) {
        size = 12 + (int64_t)(int32_t)kts_be32(p + at + 8);
        if (size < 26 || size > n - at)
            break;
        kts_message_at(s, &m, p + at, size, wrapper ? &outer : NULL);
        if (kts_fields(&m) == 1 && !(w->keep && m.magic == w->magic))
            break;
        kts_write_message(s, w, &m);
        at += size;
    }
}

/* Writes what the uncompressed entry at e holds. */
static void kts_write_entry(struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size) {
    if (!s->r.old && e[16] == 2)
        kts_write_records(s, w, e + 61, size - 61, e);
    else
        kts_write_messages(s, w, e, size, NULL);
}

/* Writes what the compressed entry at e holds, decompressed at p[0:n]. */
static void kts_write_inflated(struct kts_append *s, struct kts_writer *w, const uint8_t *e, const uint8_t *p, int64_t n) {
    if (!s->r.old && e[16] == 2)
        kts_write_records(s, w, p, n, e);
    else
        kts_write_messages(s, w, p, n, e);
}

#endif
