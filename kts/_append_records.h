/* The records of batches being appended: each is looked at as Kafka's LogValidator does, none is made. */
#ifndef KTS_APPEND_RECORDS_H
#define KTS_APPEND_RECORDS_H

#include "_append.h"

struct kts_batch { /* what the records of an entry share */
    int64_t base_offset;
    int64_t base_time;
    int64_t outer_time; /* max timestamp of a batch, timestamp of a wrapper */
    int append_time;    /* the type */
    int64_t count;      /* of a batch */
};

static void kts_batch_of(struct kts_batch *b, const uint8_t *e) {
    b->base_offset = (int64_t)kts_be64(e);
    b->base_time = (int64_t)kts_be64(e + 27);
    b->outer_time = (int64_t)kts_be64(e + 35);
    b->append_time = (e[22] & 8) != 0;
    b->count = (int32_t)kts_be32(e + 57);
}

static inline int kts_policy(const struct kts_append *s) { return s->path != KTS_READ; }

/* A record without a fault of its own is taken in; 0, or -1. */
static inline int kts_take(struct kts_append *s, int64_t offset, int64_t time, int timed) {
    if (timed) {
        if (kts_later(s, time, s->max)) {
            s->max = time;
            s->max_offset = offset;
        }
        if (offset != s->number)
            s->in_place = 0;
    }
    return 0;
}

/* What a writer would not take of a record: it is remembered, or refused at once where records are written as they come. */
static inline int kts_writable(struct kts_append *s, int64_t time, int headers) {
    int why = 0;
    if (s->path == KTS_CONVERT && s->bads == 0)
        s->next += 1;
    if (time < -1 && !s->r.negative)
        why = KTS_NEGATIVE;
    else if (headers && s->r.magic < 2)
        why = KTS_HEADERS;
    if (!why || s->bads)
        return 0;
    if (s->path == KTS_CONVERT) {
        s->record = s->batch_number;
        return kts_refuse(s, why, time, s->r.magic);
    }
    if (s->unwritable < 0) {
        s->unwritable = s->number;
        s->unwritable_why = why;
        s->unwritable_time = time;
    }
    return 0;
}

/* --- 3.9 ------------------------------------------------------------------------------------------ */

/* One record of 3.9, whatever its format: 0, or -1. */
static inline int kts_new_record(struct kts_append *s, const struct kts_batch *b, int64_t offset, int64_t time,
                                 int has_key, int timed, int headers) {
    int wrong = 0;
    if (kts_policy(s)) {
        wrong = s->r.compacted && !has_key ? KTS_NO_KEY : kts_wrong_time(s, time, b->append_time);
        if (wrong && kts_wrong_record(s, s->batch_number, offset, time, wrong))
            return -1;
        if (s->path == KTS_IN_PLACE)
            s->next += 1;
        if (!wrong) {
            if (timed)
                kts_take(s, offset, time, s->path == KTS_IN_PLACE || s->r.magic > 0);
            if (s->path != KTS_IN_PLACE && kts_writable(s, time, headers))
                return -1;
        }
    }
    s->number += 1;
    s->batch_number += 1;
    return 0;
}

/* 0 read, 1 the bytes end, 2 no end within `most` bytes; what is beyond 32 (64) bits is dropped, as in Java. */
static int kts_long(const uint8_t **at, const uint8_t *end, int most, int64_t *value) {
    const uint8_t *p = *at;
    uint64_t raw = 0;
    int i;
    for (i = 0; i < most; i++) {
        if (p >= end)
            return 1;
        raw |= (uint64_t)(p[0] & 0x7F) << (7 * i);
        if (*p++ < 0x80) {
            if (most == 5)
                raw = (uint32_t)raw;
            *value = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
            if (most == 5)
                *value = (int32_t)*value;
            *at = p;
            return 0;
        }
    }
    return 2;
}

/* A byte string of a record is passed over: 0, or 1 where it does not fit. */
static inline int kts_pass(const uint8_t **at, const uint8_t *end, int64_t *size) {
    if (kts_long(at, end, 5, size) || *size > end - *at)
        return 1;
    if (*size > 0)
        *at += *size;
    return 0;
}

/* One record of a batch, every step checked. `whole`: its fields fill the stated length; else they are read on as they
 * come, as 3.9 does where it skips keys and values. */
static int kts_one_record(struct kts_append *s, struct kts_batch *b, const uint8_t **at, const uint8_t *end, int whole,
                          int compressed) {
    const uint8_t *p = *at, *stop = end;
    int64_t length, delta, offset, key, n, headers, i;
    int status = kts_long(&p, end, 5, &length);
    if (status)
        return kts_refuse(s, status == 2 && !compressed ? KTS_BAD_LENGTH : KTS_BAD_RECORD, 0, end - p);
    if (whole) {
        if (length < 0 || length > end - p)
            return kts_refuse(s, KTS_BAD_RECORD, length, end - p);
        stop = p + length;
    }
    if (p < stop)
        p += 1;
    if (kts_long(&p, stop, 10, &delta) || kts_long(&p, stop, 5, &offset) || kts_pass(&p, stop, &key) ||
        kts_pass(&p, stop, &n) || kts_long(&p, stop, 5, &headers) || headers < 0 || (whole && headers > stop - p))
        return kts_refuse(s, KTS_BAD_RECORD, length, stop - p);
    for (i = 0; i < headers; i++)
        if (kts_pass(&p, stop, &n) || n < 0 || kts_pass(&p, stop, &n))
            return kts_refuse(s, KTS_BAD_RECORD, length, stop - p);
    if (whole && p != stop)
        return kts_refuse(s, KTS_BAD_RECORD, length, stop - p);
    *at = p;
    if (s->batch_number + 1 == b->count && p != end)
        return kts_refuse(s, KTS_RECORDS_LEFT, b->count, end - p);
    if (s->rising && offset != s->batch_number)
        return kts_refuse(s, KTS_DELTAS, offset, s->batch_number);
    return kts_new_record(s, b, (int64_t)((uint64_t)b->base_offset + (uint64_t)offset),
                          b->append_time ? b->outer_time : (int64_t)((uint64_t)b->base_time + (uint64_t)delta), key >= 0,
                          1, headers > 0);
}

/* Records as producers write them, without headers and with nothing wrong; the one in front of which it stops is read
 * with every step checked. KTS_SLACK bytes behind `last` can be read. */
static void kts_usual_records(struct kts_append *s, const struct kts_batch *b, const uint8_t **at, const uint8_t *last) {
    const uint8_t *p = *at, *start = p, *stop;
    int64_t i = s->batch_number, max = s->max, max_offset = s->max_offset, key, size, time;
    const int64_t most = b->count - 1, shift = kts_minus(s->number, i), now = s->now;
    const int64_t before = s->r.before, after = s->r.after;
    const int keys = s->r.compacted, limited = !s->r.append_time && (before != INT64_MAX || after != INT64_MAX);
    int unusual = 0;
    uint32_t raw;
    uint64_t delta, offset;
    if (b->append_time || s->r.negative || (s->path != KTS_IN_PLACE && (s->path != KTS_DEEP || s->r.magic == 0)))
        return;
    while (i < most && p < last) {
        start = p;
        raw = kts_quick(&p, &unusual);
        if (raw & 1 || (int64_t)(raw >> 1) > last - p)
            break;
        stop = p + (raw >> 1);
        p += 1;
        delta = kts_unzigzag(kts_quick(&p, &unusual));
        offset = kts_unzigzag(kts_quick(&p, &unusual));
        raw = kts_quick(&p, &unusual);
        key = raw & 1 ? 0 : (int64_t)(raw >> 1);
        if (key > stop - p || (keys && raw & 1))
            break;
        p += key;
        raw = kts_quick(&p, &unusual);
        size = raw & 1 ? 0 : (int64_t)(raw >> 1);
        if (size > stop - p)
            break;
        p += size;
        if (p + 1 != stop || p[0] || unusual || offset != (uint64_t)i)
            break;
        time = (int64_t)((uint64_t)b->base_time + delta);
        if (time < 0 || (limited && (now - time > before || time - now > after)))
            break;
        if (time > max) {
            max = time;
            max_offset = (int64_t)((uint64_t)b->base_offset + offset);
        }
        i += 1;
        p = start = stop;
    }
    if (i > s->batch_number && (b->base_offset != shift))
        s->in_place = 0;
    if (s->path == KTS_IN_PLACE)
        s->next += i - s->batch_number;
    s->number = i + shift;
    s->batch_number = i;
    s->max = max;
    s->max_offset = max_offset;
    *at = start;
}

/* The records at p[0:n] of a batch; `reach` is how far memory may be read. 0, or -1. */
static int kts_batch_records(struct kts_append *s, struct kts_batch *b, const uint8_t *p, int64_t n, const uint8_t *reach,
                             int whole, int compressed) {
    const uint8_t *end = p + n, *last = reach - end >= KTS_SLACK ? end : reach - KTS_SLACK, *before;
    int careful = 0;
    if (b->count < 0)
        return kts_refuse(s, KTS_BAD_COUNT, b->count, 0);
    while (s->batch_number < b->count) {
        before = p;
        if (careful == 0) {
            if (p < last)
                kts_usual_records(s, b, &p, last);
            careful = p == before ? 16 : 0;
        } else {
            careful -= 1;
        }
        s->record = s->batch_number;
        if (kts_one_record(s, b, &p, end, whole, compressed))
            return -1;
    }
    return 0;
}

/* A varint that is written as short as can be. */
static inline int kts_short(const uint8_t **at, const uint8_t *end, int most, int64_t *value) {
    const uint8_t *start = *at;
    if (kts_long(at, end, most, value))
        return 0;
    return *at - start == 1 || ((*at)[-1] != 0 && *at - start < most);
}

static inline int kts_short_string(const uint8_t **at, const uint8_t *end) {
    int64_t n;
    if (!kts_short(at, end, 5, &n) || n < -1 || n > end - *at)
        return 0;
    *at += n > 0 ? n : 0;
    return 1;
}

/* Whether records that were looked at are just what a writer would make of them: then they need not be written anew. */
static int kts_as_written(const uint8_t *p, int64_t n, int64_t count) {
    const uint8_t *end = p + n;
    int64_t i, length, delta, offset, headers;
    for (i = 0; i < count; i++) {
        if (!kts_short(&p, end, 5, &length) || length < 1 || *p++ != 0)
            return 0;
        if (!kts_short(&p, end, 10, &delta) || (i == 0 && delta) || !kts_short(&p, end, 5, &offset) || offset != i)
            return 0;
        if (!kts_short_string(&p, end) || !kts_short_string(&p, end) || !kts_short(&p, end, 5, &headers) || headers)
            return 0;
    }
    return p == end;
}

/* What a client may say of a batch (validateBatch): 0, or -1. */
static int kts_new_batch(struct kts_append *s, const uint8_t *e, int64_t size) {
    int32_t delta, count;
    int64_t producer = -1;
    if (s->batches == 0)
        s->first_magic = e[16];
    else if (e[16] != s->first_magic)
        return kts_refuse(s, KTS_OTHER_MAGIC, e[16], s->first_magic);
    if (e[16] != 2)
        return 0;
    if (size < 27)
        return kts_refuse(s, KTS_SHORT_BATCH, size - 12, 0);
    delta = (int32_t)kts_be32(e + 23);
    if (s->r.client && delta < 0)
        return kts_refuse(s, KTS_OFFSET_RANGE, delta, 0);
    if (size < 61)
        return kts_refuse(s, KTS_SHORT_BATCH, size - 12, 0);
    count = (int32_t)kts_be32(e + 57);
    producer = (int64_t)kts_be64(e + 43);
    if (s->r.client) {
        if (count <= 0)
            return kts_refuse(s, KTS_BAD_COUNT, count, 0);
        if ((int64_t)delta + 1 != count)
            return kts_refuse(s, KTS_COUNT_RANGE, count, delta);
        if (e[22] & 0x20)
            return kts_refuse(s, KTS_CONTROL_BATCH, 0, 0);
        if (producer > -1 && (int32_t)kts_be32(e + 53) < 0)
            return kts_refuse(s, KTS_NO_SEQUENCE, (int32_t)kts_be32(e + 53), 0);
    }
    if (e[22] & 0x10 && s->r.magic < 2)
        return kts_refuse(s, KTS_TRANSACTION, s->r.magic, 0);
    if (producer > -1 && s->r.magic < 2)
        return kts_refuse(s, KTS_IDEMPOTENCE, s->r.magic, 0);
    return 0;
}

#endif
