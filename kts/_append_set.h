/* Sets of records being appended, entry by entry: in place, or read to be written anew. */
#ifndef KTS_APPEND_SET_H
#define KTS_APPEND_SET_H

#include "_append_writer.h"

enum { KTS_REFUSED = -1, KTS_DONE = 0, KTS_INFLATE = 1 };

/* The first entry, alone where it must be: 0, or -1. */
static int kts_first_batch(struct kts_append *s, const uint8_t *p, int64_t n, int source) {
    int64_t size = 0, next = 0;
    int status = kts_entry_size(s, p, n, &size);
    s->at = 0;
    s->record = -1;
    if (status < 0)
        return -1;
    if (status == 0)
        return kts_refuse(s, KTS_NO_BATCH, 0, 0);
    s->first_magic = p[16];
    if (p[16] == 2 || source) {
        s->at = size;
        status = kts_entry_size(s, p + size, n - size, &next);
        if (status)
            return status < 0 ? -1 : kts_refuse(s, KTS_SECOND_BATCH, 0, 0);
        s->at = 0;
    }
    return 0;
}

/* The records of an entry of 3.9 are read: 0, or -1. */
static int kts_new_entry_end(struct kts_append *s, uint8_t *e) {
    if (s->bads)
        return kts_refuse(s, KTS_POLICY, 0, 0);
    if (s->path != KTS_IN_PLACE)
        return 0;
    kts_place(s, e, s->next - 1);
    if (e[16])
        kts_stamp(s, e, s->size, s->r.append_time ? s->now : s->max);
    if (e[16] && kts_later(s, s->max, s->set_max)) {
        s->set_max = s->max;
        s->set_max_offset = s->next - 1;
    }
    s->max = s->set_max;
    s->max_offset = s->set_max_offset;
    return 0;
}

/* Whether the value of a wrapper can be decompressed; its place is left in m. */
static int kts_wrapper_value(struct kts_append *s, const uint8_t *e, struct kts_message *m) {
    int status;
    kts_message_at(s, m, e, s->size, NULL);
    status = kts_fields(m);
    if (status == 1 || (status && !s->r.shipped))
        return kts_refuse(s, KTS_BAD_FIELDS, s->size - 12, 0);
    return m->null_value ? kts_refuse(s, KTS_WRAPPER_NULL, 0, 0) : 0;
}

static int kts_new_entry(struct kts_append *s, uint8_t *e, const uint8_t *reach) {
    struct kts_batch b;
    struct kts_message m;
    int codec, batch = e[16] == 2;
    if (s->path != KTS_READ && kts_new_batch(s, e, s->size))
        return -1;
    if (batch && s->size < 61)
        return kts_refuse(s, KTS_SHORT_BATCH, s->size - 12, 0);
    codec = kts_codec(s, e);
    if (codec > 4)
        return kts_refuse(s, KTS_BAD_CODEC, codec, 4);
    if (s->path == KTS_IN_PLACE)
        s->max = -1;
    if (batch) {
        kts_batch_of(&b, e);
        if (b.count < 0 && codec == 4) /* Kafka counts before it reads the first frame */
            return kts_refuse(s, KTS_BAD_COUNT, b.count, 0);
        if (b.count && codec)
            return KTS_INFLATE;
        if (b.count && kts_batch_records(s, &b, e + 61, s->size - 61, reach, 1, 0))
            return -1;
    } else if (codec) {
        if (codec == 4)
            return kts_refuse(s, KTS_WRAPPER_ZSTD, e[16], 0);
        return kts_wrapper_value(s, e, &m) ? -1 : KTS_INFLATE;
    } else {
        kts_message_at(s, &m, e, s->size, NULL);
        if (kts_new_message(s, &m, s->offset, NULL, m.magic))
            return -1;
    }
    return kts_new_entry_end(s, e);
}

static int kts_old_entry(struct kts_append *s, uint8_t *e) {
    struct kts_message m;
    int codec = e[17] & 7;
    kts_message_at(s, &m, e, s->size, NULL);
    if (s->path == KTS_READ) { /* the sizes are summed up in 32 bits before anything is looked at */
        int64_t key, value;
        if (m.e + m.size - m.key < 4)
            return kts_refuse(s, KTS_BAD_FIELDS, m.size - 12, 0);
        key = (int32_t)kts_be32(m.key);
        key = key > 0 ? key : 0;
        if (m.e + m.size - m.key - 8 < key)
            return kts_refuse(s, KTS_BAD_FIELDS, m.size - 12, 0);
        value = (int32_t)kts_be32(m.key + 4 + key);
        s->number = (int32_t)(uint32_t)(s->number + (s->r.magic ? 22 : 14) + key + (value > 0 ? value : 0));
        return 0;
    }
    if (s->path == KTS_DEEP && codec > 3)
        return kts_refuse(s, KTS_BAD_CODEC, codec, 3);
    if (s->path == KTS_DEEP && codec)
        return kts_wrapper_value(s, e, &m) ? -1 : KTS_INFLATE;
    if (kts_old_message(s, &m, s->offset, 0))
        return -1;
    if (s->path == KTS_IN_PLACE) {
        kts_place(s, e, s->next - 1);
        if (m.magic > 0 && s->r.append_time)
            kts_stamp(s, e, s->size, s->now);
    }
    return 0;
}

/* Entries from s->at on: KTS_DONE, KTS_REFUSED, or KTS_INFLATE where one is to be decompressed first. */
static int kts_entries(struct kts_append *s, uint8_t *p, int64_t n, const uint8_t *reach) {
    int status;
    while ((status = kts_entry_size(s, p + s->at, n - s->at, &s->size)) > 0) {
        uint8_t *e = p + s->at;
        s->offset = (int64_t)kts_be64(e);
        s->record = -1;
        s->batch_number = 0;
        status = s->r.old ? kts_old_entry(s, e) : kts_new_entry(s, e, reach);
        if (status)
            return status;
        s->batches += 1;
        s->at += s->size;
    }
    return status;
}

/* The entry at s->at, decompressed to out[0:n]: KTS_DONE or KTS_REFUSED. */
static int kts_inflated(struct kts_append *s, uint8_t *p, const uint8_t *out, int64_t n) {
    uint8_t *e = p + s->at;
    struct kts_batch b;
    const int64_t next = s->next;
    int status;
    if (!s->r.old && e[16] == 2) {
        kts_batch_of(&b, e);
        s->skipped |= s->by_fields && b.count > 0;
        status = kts_batch_records(s, &b, out, n, out + n, !s->by_fields, 1);
        if (status && s->path == KTS_IN_PLACE)
            s->next = next; /* Kafka reads all of its records first */
    } else {
        status = kts_wrapper_messages(s, e, out, n);
    }
    if (status == 0 && !s->r.old)
        status = kts_new_entry_end(s, e);
    if (status)
        return KTS_REFUSED;
    s->batches += 1;
    s->at += s->size;
    return KTS_DONE;
}

static void kts_begin(struct kts_append *s, int path) {
    s->path = path;
    s->at = s->number = s->batches = 0;
    s->max = s->max_offset = s->set_max = s->set_max_offset = s->unwritable = s->record = -1;
    s->bads = s->bad_times = s->bad_crc = s->by_fields = s->skipped = s->rising = 0;
    s->next = s->start;
}

/* What is kept as it came, all of it uncompressed (P1): KTS_DONE, KTS_REFUSED or KTS_INFLATE. */
static int kts_begin_in_place(struct kts_append *s, const uint8_t *p, int64_t n) {
    kts_begin(s, KTS_IN_PLACE);
    s->rising = !s->r.shipped;
    return s->r.old ? 0 : kts_first_batch(s, p, n, 0);
}

static void kts_end_in_place(struct kts_append *s) {
    if (!s->r.append_time)
        return;
    s->max = s->now;
    s->max_offset = s->start;
    if (!s->r.old && s->r.magic == 0)
        s->max = s->max_offset = -1;
    if (!s->r.old && s->r.magic == 2)
        s->max_offset = s->next - 1;
}

/* Messages as producers write them, with nothing wrong: looked at, given offsets and stamped in one go. */
static KTS_INLINE int kts_usual_messages(struct kts_append *s, uint8_t *p, int64_t n, const int magic) {
    const int head = magic ? 34 : 26, keys = s->r.compacted, append_time = s->r.append_time;
    const int64_t now = s->now, before = s->r.before, after = s->r.after;
    const uint8_t *const end = p + n;
    int64_t next = s->start, max = -1, max_offset = -1, time;
    while (end - p >= head) {
        int32_t size = (int32_t)kts_be32(p + 8), key = (int32_t)kts_be32(p + head - 8), value;
        const uint8_t *at = p + head;
        if (size < head - 12 || size > end - p - 12 || p[16] != magic || p[17] != 0 || key > size - (head - 12))
            return 0;
        at += key > 0 ? key : 0;
        value = (int32_t)kts_be32(at - 4);
        if (p + 12 + size - at != (value > 0 ? value : 0) || (keys && key < 0) || size + 12 > s->r.largest)
            return 0;
        if (kts_crc32(p + 16, (size_t)size - 4) != kts_be32(p + 12))
            return 0;
        kts_put64(p, (uint64_t)next);
        if (magic && append_time) {
            p[17] = 8;
            kts_put64(p + 18, (uint64_t)now);
            kts_put32(p + 12, kts_crc32(p + 16, (size_t)size - 4));
        } else if (magic) {
            time = (int64_t)kts_be64(p + 18);
            if (time < 0 ? time != -1 || !s->r.exempt : now - time > before || time - now > after)
                return 0;
            if (time > max) {
                max = time;
                max_offset = next;
            }
        }
        next += 1;
        p += 12 + size;
    }
    if (p != end || next == s->start)
        return 0;
    s->entries = next - s->start;
    s->valid = n;
    s->next = next;
    s->max = max;
    s->max_offset = max_offset;
    kts_end_in_place(s);
    return 1;
}

/* Whether the set was such; if not, it may have been changed up to the message that is not. */
static int kts_usual_set(struct kts_append *s, uint8_t *p, int64_t n) {
    if (n < 26 || p[16] != s->r.magic || s->r.negative || s->now < 0)
        return 0;
    return s->r.magic == 1 ? kts_usual_messages(s, p, n, 1) : s->r.magic == 0 ? kts_usual_messages(s, p, n, 0) : 0;
}

/* What is compressed or will be (P3, P4). */
static int kts_begin_deep(struct kts_append *s, const uint8_t *p, int64_t n) {
    kts_begin(s, KTS_DEEP);
    s->in_place = s->source == s->target && s->r.magic > 0;
    if (s->r.old)
        return 0;
    if (kts_first_batch(s, p, n, s->source))
        return -1;
    if (p[16] != s->r.magic)
        s->in_place = 0;
    if (s->source == 0 && p[16] == 2 && kts_be32(p + 8) >= 11 && p[22] & 0x20)
        s->in_place = 1;
    s->by_fields = s->r.shipped && s->in_place && p[16] == 2;
    s->rising = !s->r.shipped && s->in_place;
    return 0;
}

/* The first entry gets the offset of the last record and the greatest time; nothing else changes. 0, or -1. */
static int kts_end_deep_in_place(struct kts_append *s, uint8_t *p, int64_t n) {
    int64_t time;
    s->at = 0;
    s->record = -1;
    if (s->bad_crc)
        return kts_refuse(s, KTS_INNER_CRC, 0, 0);
    if (kts_entry_size(s, p, n, &s->size) != 1)
        return kts_refuse(s, KTS_NOTHING, 0, 0);
    s->next = s->start + s->number;
    s->max_offset = s->next - 1;
    time = s->r.append_time ? s->now : s->max;
    kts_place(s, p, s->max_offset);
    if (s->r.magic)
        kts_stamp(s, p, s->size, time);
    s->max = time;
    return 0;
}

/* Copies a set from `from` to p and does all that can be done without decompressing: 1 done with, refused or empty, 0 left
 * to the deep walk. `target` is the topic's codec, -1 the producer's. */
static int kts_append_plain(struct kts_append *s, uint8_t *p, const uint8_t *from, int64_t n, int target) {
    memcpy(p, from, (size_t)n);
    if (target <= 0) {
        if (kts_usual_set(s, p, n))
            return 1;
        if (s->r.magic < 2)
            memcpy(p, from, (size_t)n); /* what it changed up to the message that is not usual */
    }
    if (kts_analyse(s, p, n, 1) || s->entries == 0)
        return 1;
    s->target = target < 0 ? s->source : target;
    if (s->source || s->target || !s->same)
        return 0;
    if (kts_begin_in_place(s, p, s->valid) == 0 && kts_entries(s, p, s->valid, p + n + KTS_SLACK) == 0)
        kts_end_in_place(s);
    return 1;
}

#endif
