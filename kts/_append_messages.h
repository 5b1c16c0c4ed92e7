/* The messages of sets being appended, plain and in wrappers, as the LogValidators of 0.10.2 and 3.9 look at them. */
#ifndef KTS_APPEND_MESSAGES_H
#define KTS_APPEND_MESSAGES_H

#include "_append_records.h"

struct kts_message {
    const uint8_t *e; /* its offset field */
    int64_t size;     /* with the 12 bytes of overhead */
    int magic;
    int64_t time;
    int append_time;
    const uint8_t *key; /* its length field */
    const uint8_t *end; /* of the value */
    int null_value;
    const uint8_t *value;
};

/* Where key and value lie: 0, 1 where the lengths do not fit, 2 where bytes are left behind the value. */
static int kts_fields(struct kts_message *m) {
    const uint8_t *end = m->e + m->size, *p = m->key;
    int64_t n;
    if (end - p < 8)
        return 1;
    n = (int32_t)kts_be32(p);
    p += 4;
    if (n > end - p - 4)
        return 1;
    p += n > 0 ? n : 0;
    n = (int32_t)kts_be32(p);
    p += 4;
    if (n > end - p)
        return 1;
    m->null_value = n < 0;
    m->value = p;
    m->end = p + (n > 0 ? n : 0);
    return m->end == end ? 0 : 2;
}

/* The message at e; an inner one has its wrapper's type, and its time too where that is LogAppendTime. */
static void kts_message_at(struct kts_append *s, struct kts_message *m, const uint8_t *e, int64_t size,
                           const struct kts_batch *outer) {
    int timed;
    m->e = e;
    m->size = size;
    m->magic = (int8_t)e[16];
    m->key = e + (m->magic == 0 ? 18 : 26);
    timed = s->r.old ? m->magic > 0 : m->magic == 1;
    m->time = m->magic == 0 ? -1 : (int64_t)kts_be64(e + 18);
    m->append_time = m->magic != 0 && e[17] & 8 ? 1 : 0;
    if (outer && timed) {
        m->append_time = outer->append_time;
        if (outer->append_time)
            m->time = outer->outer_time;
    }
}

/* Whether the message has a key: 0, 1, or -1 where its length cannot be read. */
static int kts_has_key(struct kts_append *s, struct kts_message *m) {
    if (m->e + m->size - m->key < 4)
        return kts_refuse(s, KTS_BAD_FIELDS, m->size - 12, 0);
    return (int32_t)kts_be32(m->key) >= 0;
}

/* Kafka says of some messages what they are like, and fails at that where lengths lie or the codec is unknown: 0, or -1. */
static int kts_described(struct kts_append *s, struct kts_message *m) {
    const int codec = m->e[17] & 7, most = s->r.old ? 3 : 4;
    if (!s->r.shipped)
        return 0;
    if (codec > most)
        return kts_refuse(s, KTS_BAD_CODEC, codec, most);
    return kts_fields(m) == 1 ? kts_refuse(s, KTS_BAD_FIELDS, m->size - 12, 0) : 0;
}

/* One message of 3.9: 0, or -1. */
static int kts_new_message(struct kts_append *s, struct kts_message *m, int64_t offset, const struct kts_batch *outer,
                           int outer_magic) {
    struct kts_batch b;
    int has_key = 1, status;
    int rewritten = s->path == KTS_CONVERT || s->path == KTS_READ;
    s->record = s->batch_number;
    if (m->magic != outer_magic && kts_policy(s)) {
        if (kts_described(s, m) || kts_wrong_record(s, s->batch_number, offset, m->time, KTS_WRONG_MAGIC))
            return -1;
        s->next += s->path == KTS_IN_PLACE;
        s->number += 1;
        s->batch_number += 1;
        return 0;
    }
    if (outer && kts_policy(s) && kts_entry_crc(m->e, m->size, 0) != kts_be32(m->e + 12))
        return kts_refuse(s, KTS_INNER_CRC, kts_be32(m->e + 12), kts_entry_crc(m->e, m->size, 0));
    if (s->r.compacted && kts_policy(s) && (has_key = kts_has_key(s, m)) < 0)
        return -1;
    if (m->append_time && kts_policy(s) && has_key && kts_wrong_time(s, m->time, 1) == KTS_APPEND_TIME &&
        kts_described(s, m))
        return -1;
    status = rewritten || !s->r.shipped || s->path == KTS_DEEP ? kts_fields(m) : 0;
    if (status == 1 && s->path == KTS_DEEP && s->r.shipped) {
        if (s->unwritable < 0 || s->unwritable_why != KTS_BAD_FIELDS) { /* its size is asked for before any is written */
            s->unwritable = s->number;
            s->unwritable_why = KTS_BAD_FIELDS;
        }
    } else if (status == 1 || (status == 2 && !s->r.shipped)) {
        return kts_refuse(s, KTS_BAD_FIELDS, m->size - 12, 0);
    }
    b.append_time = m->append_time;
    return kts_new_record(s, &b, offset, m->time, has_key, m->magic > 0, 0);
}

/* 0.10.2 stops at the first record that policy refuses. */
static int kts_wrong_only(struct kts_append *s, int64_t offset, int64_t time, int wrong) {
    if (kts_wrong_record(s, s->number, offset, time, wrong) == 0)
        kts_refuse(s, KTS_POLICY, 0, 0);
    return -1;
}

/* One message of 0.10.2, plain or inner: 0, or -1. */
static int kts_old_message(struct kts_append *s, struct kts_message *m, int64_t offset, int inner) {
    const int gt0 = m->magic > 0, to0 = s->r.magic == 0;
    int has_key = 1, wrong = 0, converted = m->magic != s->r.magic, fields = 0;
    s->record = s->number;
    if (s->r.compacted && (has_key = kts_has_key(s, m)) < 0)
        return -1;
    if (!has_key)
        return kts_wrong_only(s, offset, m->time, KTS_NO_KEY);
    if (s->path == KTS_IN_PLACE) {
        s->next += 1;
        if (gt0)
            wrong = kts_wrong_time(s, m->time, m->append_time);
    } else if (s->path == KTS_CONVERT || (gt0 && !to0)) {
        wrong = kts_wrong_time(s, m->time, m->append_time);
    }
    if (wrong == KTS_APPEND_TIME && kts_described(s, m))
        return -1;
    if (wrong)
        return kts_wrong_only(s, offset, m->time, wrong);
    if (converted || !s->r.shipped)
        fields = kts_fields(m);
    if (s->path == KTS_DEEP && kts_entry_crc(m->e, m->size, 0) != kts_be32(m->e + 12)) {
        if (inner && !s->r.shipped)
            return kts_refuse(s, KTS_INNER_CRC, kts_be32(m->e + 12), kts_entry_crc(m->e, m->size, 0));
        s->bad_crc = 1; /* looked at only in place, at the very end */
    }
    if (s->path == KTS_IN_PLACE) {
        if (gt0)
            kts_take(s, s->next - 1, m->time, !s->r.append_time);
    } else if (s->path == KTS_DEEP) {
        if (gt0 && !to0)
            kts_take(s, offset, m->time, 1);
        if (converted)
            s->in_place = 0;
    } else {
        s->next += 1;
    }
    if (fields == 1 || (fields && !s->r.shipped))
        return kts_refuse(s, KTS_BAD_FIELDS, m->size - 12, 0);
    if (converted && s->path != KTS_IN_PLACE && m->time < -1 && !s->r.negative &&
        !(s->path == KTS_CONVERT && s->r.append_time))
        return kts_refuse(s, KTS_NEGATIVE, m->time, s->r.magic);
    if (converted && s->path == KTS_CONVERT && m->e[17] & 7)
        return kts_refuse(s, KTS_BAD_CODEC, m->e[17] & 7, 0);
    s->number += 1;
    return 0;
}

/* The inner messages at p[0:n] of wrapper e, decompressed: 0, or -1. */
static int kts_wrapper_messages(struct kts_append *s, const uint8_t *e, const uint8_t *p, int64_t n) {
    const int outer_magic = (int8_t)e[16];
    struct kts_batch outer;
    struct kts_message m;
    int64_t at = 0, last = 0, count = 0, base = 0, wrapper = (int64_t)kts_be64(e), offset;
    int32_t stated;
    int codec;
    outer.append_time = outer_magic != 0 && e[17] & 8 ? 1 : 0;
    outer.outer_time = outer_magic == 0 ? -1 : (int64_t)kts_be64(e + 18);
    s->record = -1;
    while (n - at >= 12) { /* all of them are read before the first is looked at */
        stated = (int32_t)kts_be32(p + at + 8);
        if (stated < 14)
            return kts_refuse(s, KTS_INNER_SIZE, stated, count);
        if (stated > n - at - 12)
            break;
        if (s->r.old && (int8_t)p[at + 16] != outer_magic)
            return kts_refuse(s, KTS_INNER_MAGIC, (int8_t)p[at + 16], outer_magic);
        last = (int64_t)kts_be64(p + at);
        at += 12 + (int64_t)stated;
        count += 1;
    }
    if (count == 0)
        return kts_refuse(s, KTS_WRAPPER_EMPTY, 0, 0);
    if (s->r.old) {
        base = outer_magic > 0 ? kts_minus(wrapper, last) : -1;
        if (base < 0)
            base = 0;
    } else if (outer_magic == 1 && wrapper != 0) {
        if (wrapper < last)
            return kts_refuse(s, KTS_WRAPPER_OFFSET, wrapper, last);
        base = kts_minus(wrapper, last);
    }
    n = at;
    for (at = 0; at < n; at += m.size) {
        s->record = s->r.old ? s->number : s->batch_number;
        kts_message_at(s, &m, p + at, 12 + (int64_t)(int32_t)kts_be32(p + at + 8), &outer);
        codec = m.e[17] & 7;
        if (codec)
            return kts_refuse(s, codec > (s->r.old ? 3 : 4) ? KTS_BAD_CODEC : KTS_NESTED, codec, s->r.old ? 3 : 4);
        offset = (int64_t)((uint64_t)base + kts_be64(m.e));
        if (s->r.old ? kts_old_message(s, &m, offset, 1) : kts_new_message(s, &m, offset, &outer, outer_magic))
            return -1;
    }
    return 0;
}

#endif
