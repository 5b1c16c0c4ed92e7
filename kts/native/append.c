#include "append.h"

#include <stdlib.h>

int kts_refuse(struct kts_append *s, int reason, int64_t a, int64_t b) {
    s->refused.reason = reason;
    s->refused.position = s->at;
    s->refused.offset = s->offset;
    s->refused.record = s->record;
    s->refused.a = a;
    s->refused.b = b;
    return KTS_FAILED;
}

/* The last codec that the release knows. */
static inline int last_codec(const struct kts_append *s) {
    return s->asked.r.old ? KTS_LAST_OF_MESSAGES : KTS_LAST_CODEC;
}

/* The difference, saturated at the 64-bit limits. */
static inline int64_t minus_at_most(int64_t a, int64_t b) {
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b)
        return b < 0 ? INT64_MAX : INT64_MIN;
    return a - b;
}

int kts_append_size(struct kts_append *s, const uint8_t *p, int64_t left, int64_t *size) {
    const int old = s->asked.r.old;
    struct kts_error err;
    int status = kts_entry_size(p, left, old ? KTS_GENERATION_0_10 : KTS_GENERATION_3_9, size, &err);
    if (status == KTS_OK && old && !s->asked.r.shipped)
        status = kts_check_magic((int8_t)p[KTS_MAGIC_AT], 1, &err);
    return KTS_LIKELY(status != KTS_FAILED) ? status : kts_refuse(s, err.reason, err.a, err.b);
}

/* --- the shallow walk ------------------------------------------------------------------------------------ */

int kts_analyse(struct kts_append *s, const uint8_t *p, int64_t n, int leader) {
    const struct kts_append_rules *r = &s->asked.r;
    struct kts_found *f = &s->found;
    int64_t size = 0, time, last;
    int status, batch, codec, later = 0;
    uint32_t crc;
    f->first = f->last = f->first_or_last = f->top_offset = -1;
    f->top = r->none;
    f->valid = f->entries = 0;
    f->monotonic = f->same = 1;
    f->source = 0;
    for (;; p += size) {
        s->at = f->valid;
        status = kts_append_size(s, p, n - f->valid, &size);
        if (status != KTS_OK)
            return status == KTS_END ? KTS_OK : KTS_FAILED;
        s->offset = last = kts_i64(p);
        batch = kts_is_batch(s, p);
        /* a batch of a later leader epoch and all after it are left out (KAFKA-18723); their sizes are still checked */
        if (batch && r->replica && kts_i32(p + KTS_BATCH_EPOCH_AT) != -1 &&
            kts_i32(p + KTS_BATCH_EPOCH_AT) > s->asked.epoch)
            later = 1;
        if (later) {
            n -= size;
            continue;
        }
        if (batch && leader && r->client && last != 0)
            return kts_refuse(s, KTS_BASE_OFFSET, last, 0);
        if (batch && size < KTS_BATCH_BASE_TIME_AT)
            return kts_refuse(s, KTS_SHORT_BATCH, size - KTS_OVERHEAD, 0);
        if (batch)
            last = kts_plus(last, kts_i32(p + KTS_BATCH_DELTA_AT));
        if (r->old ? f->first < 0 : f->entries == 0 && batch)
            f->first = s->offset;
        if (f->entries == 0)
            f->first_or_last = batch ? s->offset : last;
        if (f->last >= last)
            f->monotonic = 0;
        f->last = last;
        if (size > r->largest && (leader || r->old))
            return kts_refuse(s, KTS_TOO_LARGE, size, r->largest);
        if (batch && size < KTS_BATCH_HEADER)
            return kts_refuse(s, KTS_BAD_CRC, 0, 0);
        crc = kts_entry_crc(p, size, batch);
        if (crc != kts_stored_crc(p, batch))
            return kts_refuse(s, KTS_BAD_CRC, kts_stored_crc(p, batch), crc);
        time = batch             ? kts_i64(p + KTS_BATCH_MAX_TIME_AT)
               : p[KTS_MAGIC_AT] ? kts_i64(p + KTS_MESSAGE_TIME_AT)
                                 : -1;
        if (kts_later(s, time, f->top)) {
            f->top = time;
            f->top_offset = last;
        }
        codec = kts_codec_of(s, p);
        if (codec > last_codec(s))
            return kts_refuse(s, KTS_BAD_CODEC, codec, last_codec(s));
        if (codec)
            f->source = codec;
        if (p[KTS_MAGIC_AT] != r->magic)
            f->same = 0;
        f->entries += 1;
        f->valid += size;
    }
}

int kts_same_magic(struct kts_append *s, const uint8_t *p, int64_t n) {
    int64_t size = 0;
    int status;
    for (s->at = 0; (status = kts_append_size(s, p + s->at, n - s->at, &size)) == KTS_OK; s->at += size)
        if ((int8_t)p[s->at + KTS_MAGIC_AT] != s->asked.r.magic)
            return 0;
    return status == KTS_END ? 1 : KTS_FAILED;
}

/* --- faults of records, and in-place updates -------------------------------------------------------------- */

/* Notes a record that policy refuses: KTS_OK, or KTS_FAILED without memory. */
static int wrong_record(struct kts_append *s, int64_t record, int64_t offset, int64_t time, int wrong) {
    struct kts_refused *f = &s->refused;
    if (f->bads == f->bad_room) {
        const int64_t room = f->bad_room ? 2 * f->bad_room : 64;
        struct kts_bad *more = realloc(f->bad, (size_t)room * sizeof(struct kts_bad));
        if (more == NULL)
            return kts_refuse(s, KTS_NO_MEMORY, 0, 0);
        f->bad = more;
        f->bad_room = room;
    }
    f->bad[f->bads].record = record;
    f->bad[f->bads].offset = offset;
    f->bad[f->bads].time = time;
    f->bad[f->bads].wrong = wrong;
    f->bads += 1;
    return KTS_OK;
}

static inline int unlimited(const struct kts_append_rules *r) { return r->before == INT64_MAX && r->after == INT64_MAX; }

/* The fault of a record's time, by its type (`append_time`) or the topic's limits; 0 if none. `marked`: -1 is a time. */
static inline int wrong_time(const struct kts_append *s, int64_t time, int append_time, int marked) {
    const struct kts_append_rules *r = &s->asked.r;
    int64_t behind, ahead;
    if (time == -1 && r->missing && !marked && !r->append_time)
        return KTS_NO_TIME;
    if (!r->append_time && !(r->exempt && time == -1) && !(r->negative && unlimited(r))) {
        /* Java's difference wraps around, so the most distant times are within the limits. */
        behind = r->shipped ? kts_minus(s->asked.now, time) : minus_at_most(s->asked.now, time);
        ahead = r->shipped ? kts_minus(0, behind) : minus_at_most(time, s->asked.now);
        if (behind > r->before || ahead > r->after || (r->negative && behind == INT64_MIN))
            return KTS_OUT_OF_RANGE;
        if (!r->old && r->shipped)
            return 0; /* 3.6 and later check the type only if no limit applies */
    }
    return append_time ? KTS_APPEND_TIME : 0;
}

/* Sets the time and type of an entry in place, and its CRC if either changes (setMaxTimestamp). */
static void stamp(const struct kts_append *s, uint8_t *e, int64_t size, int64_t time) {
    const int batch = kts_is_batch(s, e), type = s->asked.r.append_time ? KTS_LOG_APPEND_TIME : 0;
    uint8_t *const flags = e + (batch ? KTS_BATCH_FLAGS_AT : KTS_MESSAGE_ATTRIBUTES_AT);
    uint8_t *const time_at = e + (batch ? KTS_BATCH_MAX_TIME_AT : KTS_MESSAGE_TIME_AT);
    const int always = s->asked.r.old && s->asked.r.append_time;
    int kept = KTS_CODEC_MASK; /* bits of the attributes */
    if (batch && time == s->asked.r.none && kts_i32(e + KTS_BATCH_COUNT_AT) == 0)
        time = -1; /* of a batch without records, as in Kafka */
    if (!always && (*flags & KTS_LOG_APPEND_TIME) == type && kts_i64(time_at) == time)
        return;
    if (batch) {
        e[KTS_BATCH_ATTRIBUTES_AT] = 0;
        kept |= KTS_TRANSACTIONAL | KTS_CONTROL | KTS_DELETE_HORIZON;
        if (s->asked.r.negative)
            kept |= KTS_HAS_TIMESTAMP;
    } else if (s->asked.r.old) {
        kept = 0xFF & ~KTS_LOG_APPEND_TIME;
    }
    *flags = (uint8_t)((*flags & kept) | type);
    kts_put64(time_at, (uint64_t)time);
    kts_put32(e + (batch ? KTS_BATCH_CRC_AT : KTS_MESSAGE_CRC_AT), kts_entry_crc(e, size, batch));
}

/* Sets the offset of a kept entry, so that its last record gets `last`. */
static void place(const struct kts_append *s, uint8_t *e, int64_t last) {
    if (kts_is_batch(s, e)) {
        last = kts_minus(last, kts_i32(e + KTS_BATCH_DELTA_AT));
        if (s->asked.r.magic == 2) /* or a control batch on a compressed topic of an older format */
            kts_put32(e + KTS_BATCH_EPOCH_AT, (uint32_t)s->asked.epoch);
    }
    kts_put64(e + KTS_OFFSET_AT, (uint64_t)last);
}

/* --- records of 3.9 -------------------------------------------------------------------------------------- */

/* Whether records are checked against the rules, not only read. */
static inline int looks(const struct kts_append *s) { return s->path != KTS_READ; }

/* Takes in a record without a fault. */
static inline void take(struct kts_append *s, int64_t offset, int64_t time) {
    if (kts_later(s, time, s->found.max)) {
        s->found.max = time;
        s->found.max_offset = offset;
    }
    if (offset != s->found.number)
        s->found.in_place = 0;
}

/* Checks that a writer can write a record: a fault is remembered, or refused at once if records are written directly. */
static inline int writable(struct kts_append *s, int64_t time, int headers) {
    int why = 0;
    if (s->path == KTS_CONVERT && s->refused.bads == 0)
        s->found.next += 1;
    if (time < -1 && !s->asked.r.negative)
        why = KTS_NEGATIVE;
    else if (headers && s->asked.r.magic < 2)
        why = KTS_HEADERS;
    if (!why || s->refused.bads)
        return 0;
    if (s->path == KTS_CONVERT) {
        s->record = s->batch_number;
        return kts_refuse(s, why, time, s->asked.r.magic);
    }
    if (s->unwritable < 0) {
        s->unwritable = s->found.number;
        s->unwritable_why = why;
        s->unwritable_time = time;
    }
    return 0;
}

/* One record of 3.9, in any format. */
static inline int new_record(struct kts_append *s, int append_time, int64_t offset, int64_t time, int has_key,
                                 int timed, int headers, int marked) {
    int wrong = 0;
    if (looks(s)) {
        wrong = s->asked.r.compacted && !has_key ? KTS_NO_KEY : wrong_time(s, time, append_time, marked);
        if (wrong && wrong_record(s, s->batch_number, offset, time, wrong))
            return KTS_FAILED;
        if (s->path == KTS_IN_PLACE)
            s->found.next += 1;
        if (!wrong) {
            if (timed && (s->path == KTS_IN_PLACE || s->asked.r.magic > 0))
                take(s, offset, time);
            if (s->path != KTS_IN_PLACE && writable(s, time, headers))
                return KTS_FAILED;
        }
    }
    s->found.number += 1;
    s->batch_number += 1;
    return 0;
}

static inline int is_append_time(const struct kts_entry *e) { return (e->attributes & KTS_LOG_APPEND_TIME) != 0; }

/* Whether the mark of a batch counts: the topic stores it, see `stamp`. */
static inline int is_marked(const struct kts_append *s, const struct kts_entry *b) {
    return s->asked.r.negative && s->asked.r.magic == 2 && b->attributes & KTS_HAS_TIMESTAMP;
}

/* One record of batch b, with every step checked. `whole`: its fields must fill the length field; otherwise that is
 * ignored, as 3.9 does when it skips keys and values. */
static int one_record(struct kts_append *s, const struct kts_entry *b, const uint8_t **at, const uint8_t *end, int whole,
                      int compressed) {
    struct kts_record r;
    struct kts_error err;
    if (kts_read_record(at, end, end, KTS_REST, whole, NULL, &r, &err)) {
        const int no_length = r.stop == NULL && err.reason == KTS_VARINT;
        return kts_refuse(s, no_length && !compressed ? KTS_BAD_LENGTH : KTS_BAD_RECORD, 0, 0);
    }
    if (s->batch_number + 1 == b->count && *at != end)
        return kts_refuse(s, KTS_RECORDS_LEFT, b->count, end - *at);
    if (s->rising && r.offset_delta != s->batch_number)
        return kts_refuse(s, KTS_DELTAS, r.offset_delta, s->batch_number);
    return new_record(s, is_append_time(b), kts_plus(b->offset, r.offset_delta),
                          is_append_time(b) ? b->max_timestamp : kts_plus(b->base_timestamp, r.time_delta),
                          r.key_size >= 0, 1, r.headers > 0, is_marked(s, b));
}

/* Records as producers write them, without headers and faults; the record at which it stops is then read with every step
 * checked. KTS_SLACK bytes after `last` are readable. */
static void usual_records(struct kts_append *s, const struct kts_entry *b, const struct kts_limits *limits,
                          const uint8_t **at, const uint8_t *last) {
    const int64_t shift = kts_minus(s->found.number, s->batch_number);
    struct kts_run r;
    r.p = *at;
    r.last = last;
    r.base_offset = b->offset;
    r.base_timestamp = b->base_timestamp;
    r.row = s->batch_number;
    r.most = b->count - 1;
    r.limits = limits;
    r.max = s->found.max;
    r.max_offset = s->found.max_offset;
    kts_run_records(&r, KTS_REST | KTS_CHECK);
    if (r.row > s->batch_number && b->offset != shift)
        s->found.in_place = 0;
    if (s->path == KTS_IN_PLACE || (s->path == KTS_CONVERT && s->refused.bads == 0))
        s->found.next += r.row - s->batch_number;
    s->found.number = r.row + shift;
    s->batch_number = r.row;
    if (s->path == KTS_IN_PLACE || (looks(s) && s->asked.r.magic > 0)) {
        s->found.max = r.max;
        s->found.max_offset = r.max_offset;
    }
    *at = r.p;
}

static struct kts_limits limits_of(const struct kts_append *s) {
    const struct kts_append_rules *r = &s->asked.r;
    const int limited = !r->append_time && looks(s) && (r->before != INT64_MAX || r->after != INT64_MAX);
    const struct kts_limits limits = {s->asked.now, r->before, r->after,  r->largest,
                                      limited,      r->compacted && looks(s), r->exempt && !r->missing,
                                      r->append_time};
    return limits;
}

/* The records at p[0:n] of batch b; memory is readable up to `reach`. */
static int batch_records(struct kts_append *s, const struct kts_entry *b, const uint8_t *p, int64_t n,
                         const uint8_t *reach, int whole, int compressed) {
    const uint8_t *end = p + n, *last = reach - end >= KTS_LOOK ? end : reach - KTS_LOOK, *before;
    const struct kts_append_rules *r = &s->asked.r;
    const struct kts_limits limits = limits_of(s);
    const int usual = !is_append_time(b) && !r->negative && (s->path != KTS_DEEP || r->magic != 0);
    int careful = 0;
    if (b->count < 0)
        return kts_refuse(s, KTS_BAD_COUNT, b->count, 0);
    while (s->batch_number < b->count) {
        before = p;
        if (careful == 0) {
            if (usual && p < last)
                usual_records(s, b, &limits, &p, last);
            careful = p == before ? 16 : 0;
        } else {
            careful -= 1;
        }
        s->record = s->batch_number;
        if (one_record(s, b, &p, end, whole, compressed))
            return KTS_FAILED;
    }
    return KTS_OK;
}

/* Checks the header of a batch from a client (validateBatch). */
static int new_batch(struct kts_append *s, const uint8_t *e, int64_t size) {
    const struct kts_append_rules *r = &s->asked.r;
    const uint8_t flags = e[KTS_BATCH_FLAGS_AT];
    int32_t delta, count, sequence;
    int64_t producer;
    if (s->found.batches == 0)
        s->first_magic = e[KTS_MAGIC_AT];
    else if (e[KTS_MAGIC_AT] != s->first_magic)
        return kts_refuse(s, KTS_OTHER_MAGIC, e[KTS_MAGIC_AT], s->first_magic);
    if (e[KTS_MAGIC_AT] != 2)
        return KTS_OK;
    if (size < KTS_BATCH_BASE_TIME_AT)
        return kts_refuse(s, KTS_SHORT_BATCH, size - KTS_OVERHEAD, 0);
    delta = kts_i32(e + KTS_BATCH_DELTA_AT);
    if (r->client && delta < 0)
        return kts_refuse(s, KTS_OFFSET_RANGE, delta, 0);
    if (size < KTS_BATCH_HEADER)
        return kts_refuse(s, KTS_SHORT_BATCH, size - KTS_OVERHEAD, 0);
    count = kts_i32(e + KTS_BATCH_COUNT_AT);
    producer = kts_i64(e + KTS_BATCH_PRODUCER_AT);
    sequence = kts_i32(e + KTS_BATCH_SEQUENCE_AT);
    if (r->client) {
        if (count <= 0)
            return kts_refuse(s, KTS_BAD_COUNT, count, 0);
        if ((int64_t)delta + 1 != count)
            return kts_refuse(s, KTS_COUNT_RANGE, count, delta);
        if (flags & KTS_CONTROL)
            return kts_refuse(s, KTS_CONTROL_BATCH, 0, 0);
        if (producer > -1 && sequence < 0)
            return kts_refuse(s, KTS_NO_SEQUENCE, sequence, 0);
    }
    if (flags & KTS_TRANSACTIONAL && r->magic < 2)
        return kts_refuse(s, KTS_TRANSACTION, r->magic, 0);
    if (producer > -1 && r->magic < 2)
        return kts_refuse(s, KTS_IDEMPOTENCE, r->magic, 0);
    return KTS_OK;
}

/* --- messages -------------------------------------------------------------------------------------------- */

void kts_see_outer(const struct kts_append *s, struct kts_entry *outer, const uint8_t *e, int64_t size) {
    outer->p = e;
    outer->size = size;
    outer->offset = kts_i64(e + KTS_OFFSET_AT);
    outer->magic = (int8_t)e[KTS_MAGIC_AT];
    if (kts_is_batch(s, e))
        kts_batch_header(outer);
    else
        kts_message_header(outer);
}

/* Whether fields do not fit; extra bytes after the value, which kts.decode refuses, are not counted here. */
static inline int do_not_fit(int fault) { return fault != KTS_OK && fault != KTS_MESSAGE_REST; }

static int bad_fields(struct kts_append *s, const struct kts_seen_message *m) {
    return kts_refuse(s, KTS_BAD_FIELDS, m->e.size - KTS_OVERHEAD, 0);
}

static int bad_inner_crc(struct kts_append *s, const struct kts_seen_message *m) {
    const uint32_t stored = kts_stored_crc(m->e.p, 0), found = kts_entry_crc(m->e.p, m->e.size, 0);
    return stored == found ? KTS_OK : kts_refuse(s, KTS_INNER_CRC, stored, found);
}

/* Whether the message has a key: 0, 1, or KTS_FAILED if its length cannot be read. */
static int has_key_field(struct kts_append *s, const struct kts_seen_message *m) {
    if (m->e.p + m->e.size - m->key_at < 4)
        return bad_fields(s, m);
    return kts_i32(m->key_at) >= 0;
}

/* Kafka formats some messages for an error text, and fails there if lengths are wrong or the codec is unknown. */
static int described(struct kts_append *s, struct kts_seen_message *m) {
    if (!s->asked.r.shipped)
        return KTS_OK;
    if (m->e.codec > last_codec(s))
        return kts_refuse(s, KTS_BAD_CODEC, m->e.codec, last_codec(s));
    return do_not_fit(kts_message_fields(m)) ? bad_fields(s, m) : KTS_OK;
}

/* One message of 3.9. */
static int new_message(struct kts_append *s, struct kts_seen_message *m, int64_t offset, const struct kts_entry *outer,
                       int outer_magic) {
    const int rewritten = s->path == KTS_CONVERT || s->path == KTS_READ, shipped = s->asked.r.shipped;
    int has_key = 1, fault;
    s->record = s->batch_number;
    if (m->e.magic != outer_magic && looks(s)) {
        if (described(s, m) || wrong_record(s, s->batch_number, offset, m->time, KTS_WRONG_MAGIC))
            return KTS_FAILED;
        s->found.next += s->path == KTS_IN_PLACE;
        s->found.number += 1;
        s->batch_number += 1;
        return KTS_OK;
    }
    if (outer && looks(s) && bad_inner_crc(s, m))
        return KTS_FAILED;
    if (s->asked.r.compacted && looks(s) && (has_key = has_key_field(s, m)) < 0)
        return KTS_FAILED;
    if (m->append_time && looks(s) && has_key && wrong_time(s, m->time, 1, 0) == KTS_APPEND_TIME && described(s, m))
        return KTS_FAILED;
    fault = rewritten || !shipped || s->path == KTS_DEEP ? kts_message_fields(m) : KTS_OK;
    if (do_not_fit(fault) && s->path == KTS_DEEP && shipped) {
        if (s->unwritable < 0 || s->unwritable_why != KTS_BAD_FIELDS) { /* Kafka computes sizes before it writes */
            s->unwritable = s->found.number;
            s->unwritable_why = KTS_BAD_FIELDS;
        }
    } else if (do_not_fit(fault) || (fault && !shipped)) {
        return bad_fields(s, m);
    }
    return new_record(s, m->append_time, offset, m->time, has_key, m->e.magic > 0, 0, 0);
}

/* 0.10.2 stops at the first record that policy refuses. */
static int wrong_only(struct kts_append *s, int64_t offset, int64_t time, int wrong) {
    if (wrong_record(s, s->found.number, offset, time, wrong) == KTS_OK)
        kts_refuse(s, KTS_POLICY, 0, 0);
    return KTS_FAILED;
}

/* One message of 0.10.2, plain or inner. */
static int old_message(struct kts_append *s, struct kts_seen_message *m, int64_t offset, int inner) {
    const struct kts_append_rules *r = &s->asked.r;
    const int timed = m->e.magic > 0, converted = m->e.magic != r->magic;
    int has_key = 1, wrong = 0, fault = KTS_OK;
    s->record = s->found.number;
    if (r->compacted && (has_key = has_key_field(s, m)) < 0)
        return KTS_FAILED;
    if (!has_key)
        return wrong_only(s, offset, m->time, KTS_NO_KEY);
    if (s->path == KTS_IN_PLACE)
        s->found.next += 1;
    if (s->path == KTS_CONVERT || ((timed || r->missing) && (s->path == KTS_IN_PLACE || r->magic != 0)))
        wrong = wrong_time(s, m->time, m->append_time, 0);
    if (wrong == KTS_APPEND_TIME && described(s, m))
        return KTS_FAILED;
    if (wrong)
        return wrong_only(s, offset, m->time, wrong);
    if (converted || !r->shipped)
        fault = kts_message_fields(m);
    if (s->path == KTS_DEEP) {
        const uint32_t stored = kts_stored_crc(m->e.p, 0), found = kts_entry_crc(m->e.p, m->e.size, 0);
        if (stored != found && inner && !r->shipped)
            return kts_refuse(s, KTS_INNER_CRC, stored, found);
        if (stored != found && !s->bad_crc) { /* reported only for a set kept in place, at the end */
            s->bad_crc = inner ? KTS_INNER_CRC : KTS_BAD_CRC;
            s->bad_at = s->at;
            s->bad_record = s->record;
            s->bad_stored = stored;
            s->bad_found = found;
        }
    }
    if (s->path == KTS_IN_PLACE) {
        if (timed && !r->append_time)
            take(s, s->found.next - 1, m->time);
    } else if (s->path == KTS_DEEP) {
        if (timed && r->magic != 0)
            take(s, offset, m->time);
        if (converted)
            s->found.in_place = 0;
    } else {
        s->found.next += 1;
    }
    if (do_not_fit(fault) || (fault && !r->shipped))
        return bad_fields(s, m);
    if (converted && s->path != KTS_IN_PLACE && m->time < -1 && !r->negative &&
        !(s->path == KTS_CONVERT && r->append_time))
        return kts_refuse(s, KTS_NEGATIVE, m->time, r->magic);
    if (converted && s->path == KTS_CONVERT && m->e.codec) /* the caller promises that no entry is compressed */
        return kts_refuse(s, KTS_COMPRESSED, m->e.codec, 0);
    s->found.number += 1;
    return KTS_OK;
}

/* Checks that there are whole inner messages at p[0:n], before any is read: their bytes, and the last one's offset. */
static int count_inner(struct kts_append *s, int outer_magic, const uint8_t *p, int64_t n, int64_t *bytes,
                       int64_t *last) {
    int64_t at = 0, size = 0, count = 0;
    int32_t stated = 0;
    int status;
    while ((status = kts_inner_size(p + at, n - at, &size, &stated)) == KTS_OK) {
        if (s->asked.r.old && (int8_t)p[at + KTS_MAGIC_AT] != outer_magic)
            return kts_refuse(s, KTS_INNER_MAGIC, (int8_t)p[at + KTS_MAGIC_AT], outer_magic);
        *last = kts_i64(p + at + KTS_OFFSET_AT);
        at += size;
        count += 1;
    }
    if (status == KTS_FAILED)
        return kts_refuse(s, KTS_INNER_SIZE, stated, count);
    *bytes = at;
    return count ? KTS_OK : kts_refuse(s, KTS_WRAPPER_EMPTY, 0, 0);
}

/* The inner messages at p[0:n] of the wrapper at e, decompressed. */
static int wrapper_messages(struct kts_append *s, const uint8_t *e, const uint8_t *p, int64_t n) {
    const int old = s->asked.r.old, most = last_codec(s);
    struct kts_entry outer;
    struct kts_seen_message m;
    int64_t at, last = 0, base = 0, offset;
    kts_see_outer(s, &outer, e, s->size);
    s->record = -1;
    if (count_inner(s, outer.magic, p, n, &n, &last))
        return KTS_FAILED;
    if (old) {
        base = outer.magic > 0 ? kts_minus(outer.offset, last) : -1;
        if (base < 0)
            base = 0;
    } else if (outer.magic == 1 && outer.offset != 0) {
        if (outer.offset < last)
            return kts_refuse(s, KTS_WRAPPER_OFFSET, outer.offset, last);
        base = kts_minus(outer.offset, last);
    }
    for (at = 0; at < n; at += m.e.size) {
        s->record = old ? s->found.number : s->batch_number;
        kts_see_message(s, &m, p + at, (int64_t)kts_i32(p + at + KTS_SIZE_AT) + KTS_OVERHEAD, &outer);
        if (m.e.codec)
            return kts_refuse(s, m.e.codec > most ? KTS_BAD_CODEC : KTS_NESTED, m.e.codec, most);
        offset = kts_plus(base, kts_i64(m.e.p + KTS_OFFSET_AT));
        if (old ? old_message(s, &m, offset, 1) : new_message(s, &m, offset, &outer, outer.magic))
            return KTS_FAILED;
    }
    return KTS_OK;
}

/* --- entries --------------------------------------------------------------------------------------------- */

/* Checks the first entry, and that it is the only one if it must be. */
int kts_first_batch(struct kts_append *s, const uint8_t *p, int64_t n, int source) {
    int64_t size = 0, next = 0;
    int status;
    s->at = 0;
    s->record = -1;
    status = kts_append_size(s, p, n, &size);
    if (status != KTS_OK)
        return status == KTS_END ? kts_refuse(s, KTS_NO_BATCH, 0, 0) : KTS_FAILED;
    s->first_magic = p[KTS_MAGIC_AT];
    if (p[KTS_MAGIC_AT] == 2 || source) {
        s->at = size;
        status = kts_append_size(s, p + size, n - size, &next);
        if (status != KTS_END)
            return status == KTS_OK ? kts_refuse(s, KTS_SECOND_BATCH, 0, 0) : KTS_FAILED;
        s->at = 0;
    }
    return KTS_OK;
}

/* Finishes an entry of 3.9 after its records were read. */
static int end_new_entry(struct kts_append *s, uint8_t *e) {
    struct kts_found *f = &s->found;
    if (s->refused.bads)
        return kts_refuse(s, KTS_POLICY, 0, 0);
    if (s->path != KTS_IN_PLACE)
        return KTS_OK;
    place(s, e, f->next - 1);
    if (e[KTS_MAGIC_AT])
        stamp(s, e, s->size, s->asked.r.append_time ? s->asked.now : f->max);
    if (e[KTS_MAGIC_AT] && kts_later(s, f->max, s->set_max)) {
        s->set_max = f->max;
        s->set_max_offset = f->next - 1;
    }
    f->max = s->set_max;
    f->max_offset = s->set_max_offset;
    return KTS_OK;
}

/* Whether the value of a wrapper can be decompressed: KTS_INFLATE or KTS_FAILED. */
static int wrapper_value(struct kts_append *s, struct kts_seen_message *m) {
    const int fault = kts_message_fields(m);
    if (do_not_fit(fault) || (fault && !s->asked.r.shipped))
        return bad_fields(s, m);
    return m->e.payload == NULL ? kts_refuse(s, KTS_WRAPPER_NULL, 0, 0) : KTS_INFLATE;
}

static int new_entry(struct kts_append *s, uint8_t *e, const uint8_t *reach) {
    const int batch = e[KTS_MAGIC_AT] == 2;
    struct kts_entry b;
    struct kts_seen_message m;
    int codec;
    if (s->path != KTS_READ && new_batch(s, e, s->size))
        return KTS_FAILED;
    if (batch && s->size < KTS_BATCH_HEADER)
        return kts_refuse(s, KTS_SHORT_BATCH, s->size - KTS_OVERHEAD, 0);
    codec = kts_codec_of(s, e);
    if (codec > last_codec(s))
        return kts_refuse(s, KTS_BAD_CODEC, codec, last_codec(s));
    if (s->path == KTS_IN_PLACE)
        s->found.max = s->asked.r.none;
    if (batch) {
        kts_see_outer(s, &b, e, s->size);
        if (b.count < 0 && KTS_COUNT_FIRST >> codec & 1)
            return kts_refuse(s, KTS_BAD_COUNT, b.count, 0);
        if (b.count && codec)
            return KTS_INFLATE;
        if (b.count && batch_records(s, &b, b.payload, b.payload_size, reach, 1, 0))
            return KTS_FAILED;
        return end_new_entry(s, e);
    }
    kts_see_message(s, &m, e, s->size, NULL);
    if (!kts_carries(m.e.magic, codec))
        return kts_refuse(s, KTS_WRAPPER_CODEC, codec, m.e.magic);
    if (codec)
        return wrapper_value(s, &m);
    return new_message(s, &m, s->offset, NULL, m.e.magic) ? KTS_FAILED : end_new_entry(s, e);
}

/* 0.10.2 adds up the sizes of the messages to write, in 32 bits, before it checks any. */
static int old_size(struct kts_append *s, const struct kts_seen_message *m) {
    const int64_t left = m->e.p + m->e.size - m->key_at;
    int64_t key, value;
    if (left < 4)
        return bad_fields(s, m);
    key = kts_i32(m->key_at);
    key = key > 0 ? key : 0;
    if (left - 8 < key)
        return bad_fields(s, m);
    value = kts_i32(m->key_at + 4 + key);
    s->found.number = (int32_t)(uint32_t)(s->found.number + (s->asked.r.magic ? KTS_V1_LEAST : KTS_V0_LEAST) + key +
                                          (value > 0 ? value : 0));
    return KTS_OK;
}

static int old_entry(struct kts_append *s, uint8_t *e) {
    struct kts_seen_message m;
    kts_see_message(s, &m, e, s->size, NULL);
    if (s->path == KTS_READ)
        return old_size(s, &m);
    if (s->path == KTS_DEEP && m.e.codec > last_codec(s))
        return kts_refuse(s, KTS_BAD_CODEC, m.e.codec, last_codec(s));
    if (s->path == KTS_DEEP && m.e.codec)
        return wrapper_value(s, &m);
    if (old_message(s, &m, s->offset, 0))
        return KTS_FAILED;
    if (s->path == KTS_IN_PLACE) {
        place(s, e, s->found.next - 1);
        if (m.e.magic > 0 && s->asked.r.append_time)
            stamp(s, e, s->size, s->asked.now);
    }
    return KTS_OK;
}

int kts_append_entries(struct kts_append *s, uint8_t *p, int64_t n, const uint8_t *reach) {
    int status;
    while ((status = kts_append_size(s, p + s->at, n - s->at, &s->size)) == KTS_OK) {
        uint8_t *e = p + s->at;
        s->offset = kts_i64(e + KTS_OFFSET_AT);
        s->record = -1;
        s->batch_number = 0;
        status = s->asked.r.old ? old_entry(s, e) : new_entry(s, e, reach);
        if (status != KTS_OK)
            return status;
        s->found.batches += 1;
        s->at += s->size;
    }
    return status == KTS_END ? KTS_OK : KTS_FAILED;
}

int kts_append_inflated(struct kts_append *s, uint8_t *p, const uint8_t *out, int64_t n) {
    uint8_t *e = p + s->at;
    struct kts_entry b;
    const int64_t next = s->found.next;
    int status;
    if (kts_is_batch(s, e)) {
        kts_see_outer(s, &b, e, s->size);
        s->found.skipped |= s->by_fields && b.count > 0;
        status = batch_records(s, &b, out, n, out + n, !s->by_fields, 1);
        if (status && s->path == KTS_IN_PLACE)
            s->found.next = next; /* Kafka reads all records of the batch first */
    } else {
        status = wrapper_messages(s, e, out, n);
    }
    if (status == KTS_OK && !s->asked.r.old)
        status = end_new_entry(s, e);
    if (status != KTS_OK)
        return KTS_FAILED;
    s->found.batches += 1;
    s->at += s->size;
    return KTS_OK;
}

/* --- the paths ------------------------------------------------------------------------------------------- */

void kts_begin(struct kts_append *s, int path) {
    struct kts_found *f = &s->found;
    s->path = path;
    s->at = f->number = f->batches = 0;
    f->max = s->set_max = s->asked.r.none;
    f->max_offset = s->set_max_offset = s->unwritable = s->record = -1;
    s->bad_crc = s->by_fields = f->skipped = s->rising = 0;
    s->refused.bads = 0;
    f->next = s->asked.start;
}

/* A set that is kept in place, all of it uncompressed (P1). */
int kts_begin_in_place(struct kts_append *s, const uint8_t *p, int64_t n) {
    kts_begin(s, KTS_IN_PLACE);
    s->rising = !s->asked.r.shipped;
    return s->asked.r.old ? KTS_OK : kts_first_batch(s, p, n, 0);
}

void kts_end_in_place(struct kts_append *s) {
    const struct kts_append_rules *r = &s->asked.r;
    struct kts_found *f = &s->found;
    if (!r->append_time)
        return;
    f->max = s->asked.now;
    f->max_offset = s->asked.start;
    if (!r->old && r->magic == 0)
        f->max = f->max_offset = -1;
    if (!r->old && r->magic == 2)
        f->max_offset = f->next - 1;
}

/* A set that is compressed or will be (P3, P4). */
int kts_begin_deep(struct kts_append *s, const uint8_t *p, int64_t n) {
    const struct kts_append_rules *r = &s->asked.r;
    struct kts_found *f = &s->found;
    kts_begin(s, KTS_DEEP);
    f->in_place = f->source == s->target && r->magic > 0;
    if (r->old)
        return KTS_OK;
    if (kts_first_batch(s, p, n, f->source))
        return KTS_FAILED;
    if (p[KTS_MAGIC_AT] != r->magic)
        f->in_place = 0;
    if (f->source == 0 && p[KTS_MAGIC_AT] == 2 && p[KTS_BATCH_FLAGS_AT] & KTS_CONTROL)
        f->in_place = 1;
    s->by_fields = r->shipped && f->in_place && p[KTS_MAGIC_AT] == 2;
    s->rising = !r->shipped && f->in_place;
    return KTS_OK;
}

/* The first entry gets the offset of the last record and the max timestamp; the rest is unchanged. */
int kts_end_deep_in_place(struct kts_append *s, uint8_t *p, int64_t n) {
    struct kts_found *f = &s->found;
    const int64_t time = s->asked.r.append_time ? s->asked.now : f->max;
    if (s->bad_crc) {
        s->at = s->bad_at;
        s->record = s->bad_record;
        return kts_refuse(s, s->bad_crc, s->bad_stored, s->bad_found);
    }
    s->at = 0;
    s->record = -1;
    if (kts_append_size(s, p, n, &s->size) != KTS_OK)
        return kts_refuse(s, KTS_NOTHING, 0, 0);
    f->next = s->asked.start + f->number;
    f->max_offset = f->next - 1;
    place(s, p, f->max_offset);
    if (s->asked.r.magic)
        stamp(s, p, s->size, time);
    f->max = time;
    return KTS_OK;
}

/* --- the usual sets of producers ------------------------------------------------------------------------- */

/* Checks messages without faults and sets their offsets and times in one pass. Returns whether all were such; if not, the
 * set may be changed up to the first other message. */
static int usual_set(struct kts_append *s, uint8_t *p, int64_t n) {
    const struct kts_append_rules *r = &s->asked.r;
    const struct kts_limits limits = limits_of(s);
    struct kts_run run;
    if (r->magic > 1 || n < KTS_OVERHEAD + KTS_V0_LEAST || p[KTS_MAGIC_AT] != r->magic || r->negative || s->asked.now < 0)
        return 0;
    run.p = p;
    run.last = run.until = p + n;
    run.row = s->asked.start;
    run.most = INT64_MAX;
    run.magic = r->magic;
    run.limits = &limits;
    run.max = run.max_offset = -1;
    kts_run_messages(&run, KTS_CRC | KTS_CHECK);
    if (run.p != p + n || run.row == s->asked.start)
        return 0;
    s->found.entries = run.row - s->asked.start;
    s->found.valid = n;
    s->found.next = run.row;
    s->found.max = run.max;
    s->found.max_offset = run.max_offset;
    kts_end_in_place(s);
    return 1;
}

int kts_append_plain(struct kts_append *s, uint8_t *p, const uint8_t *from, int64_t n, int target) {
    memcpy(p, from, (size_t)n);
    if (target <= 0) {
        if (usual_set(s, p, n))
            return 1;
        if (s->asked.r.magic < 2)
            memcpy(p, from, (size_t)n); /* undo its changes */
    }
    if (kts_analyse(s, p, n, 1) || s->found.entries == 0)
        return 1;
    s->target = target < 0 ? s->found.source : target;
    if (s->found.source || s->target || !s->found.same)
        return 0;
    if (kts_begin_in_place(s, p, s->found.valid) == KTS_OK &&
        kts_append_entries(s, p, s->found.valid, p + n) == KTS_OK)
        kts_end_in_place(s);
    return 1;
}
