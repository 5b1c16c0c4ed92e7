/* Sets of records being appended: the rules of a topic, the shallow walk over a set, and what is stamped on an entry.
 *
 * Two releases of Kafka are followed, 0.10.2.2 (`old`) and 3.9.2. Their LogValidators differ in what they look at and in
 * which order, so whatever is refused is refused with the first thing that theirs would name.
 */
#ifndef KTS_APPEND_H
#define KTS_APPEND_H

#include <stdlib.h>

#include "_records.h"
#include "_refusals.h"

struct kts_rules {
    int old;         /* 0.10.2, else 3.9 */
    int shipped;     /* exactly, with its defects */
    int magic;       /* message.format.version */
    int append_time; /* message.timestamp.type is LogAppendTime */
    int compacted;   /* keys are needed */
    int client;      /* who appends: a client, */
    int replica;     /* or a follower, else the broker itself */
    int exempt;      /* -1 is held against no limit */
    int negative;    /* times before 1970 are times */
    int64_t before;  /* most ms a time may lie behind the clock */
    int64_t after;   /* and before it */
    int64_t largest; /* max.message.bytes */
};

struct kts_bad { /* a record refused by policy */
    int64_t record;
    int64_t offset;
    int64_t time;
    int64_t wrong;
};

enum kts_path { KTS_IN_PLACE, KTS_READ, KTS_CONVERT, KTS_DEEP };

struct kts_append {
    struct kts_rules r;
    int64_t now;
    int32_t epoch;
    int path;
    int source; /* codecs */
    int target;
    /* the shallow walk */
    int64_t first;
    int64_t last;
    int64_t first_or_last; /* of the first entry */
    int64_t top;
    int64_t top_offset;
    int64_t valid;
    int64_t entries;
    int monotonic;
    int same; /* every entry has the topic's magic */
    int plain; /* none is compressed */
    /* the records */
    int64_t start;
    int64_t next; /* offset counter */
    int64_t max;
    int64_t max_offset;
    int64_t set_max; /* in place: of the batches before this one */
    int64_t set_max_offset;
    int64_t number; /* of the next record in the set */
    int64_t unwritable; /* first record that a writer refuses, -1 none */
    int unwritable_why;
    int64_t unwritable_time;
    int in_place;
    int by_fields; /* compressed records are read without regard to their lengths, */
    int skipped;   /* and some were: their keys and values are not known */
    int rising;    /* offset deltas are to be 0, 1, 2 ... */
    int bad_crc;   /* of an inner message */
    int first_magic;
    int64_t batches;
    int64_t at; /* position of the entry being read */
    int64_t size;
    int64_t batch_number; /* of the next record in the entry */
    /* what is wrong */
    int fault;
    int64_t offset;
    int64_t record;
    int64_t a;
    int64_t b;
    struct kts_bad *bad;
    int64_t bads;
    int64_t bad_room;
    int bad_times;
};

static inline int kts_refuse(struct kts_append *s, int fault, int64_t a, int64_t b) {
    s->fault = fault;
    s->a = a;
    s->b = b;
    return -1;
}

static inline int64_t kts_minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* The same where it fits, else the extreme that it passes. */
static inline int64_t kts_minus_at_most(int64_t a, int64_t b) {
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b)
        return b < 0 ? INT64_MAX : INT64_MIN;
    return a - b;
}

/* Size of the entry at p with its 12 bytes: 1 known, 0 end or cut entry, -1 refused. */
static int kts_entry_size(struct kts_append *s, const uint8_t *p, int64_t left, int64_t *size) {
    int32_t stated;
    int magic;
    if (left < 12)
        return 0;
    stated = (int32_t)kts_be32(p + 8);
    if (stated < 14)
        return kts_refuse(s, KTS_BAD_SIZE, stated, 0);
    if (!s->r.old && left < 17)
        return 0;
    magic = left < 17 ? 0 : (int8_t)p[16];
    if (!s->r.old && (magic < 0 || magic > 2))
        return kts_refuse(s, KTS_BAD_MAGIC, magic, 2);
    if (stated > INT32_MAX - 12)
        return kts_refuse(s, KTS_SIZE_OVERFLOW, stated, 0);
    *size = (int64_t)stated + 12;
    if (left < *size)
        return 0;
    if (s->r.old && !s->r.shipped && magic != 0 && magic != 1)
        return kts_refuse(s, KTS_BAD_MAGIC, magic, 1);
    return 1;
}

static inline int kts_codec(const struct kts_append *s, const uint8_t *e) {
    return (!s->r.old && e[16] == 2 ? e[22] : e[17]) & 7;
}

static inline uint32_t kts_entry_crc(const uint8_t *e, int64_t size, int batch) {
    return batch ? kts_crc32c(e + 21, (size_t)size - 21) : kts_crc32(e + 16, (size_t)size - 16);
}

static inline int kts_later(const struct kts_append *s, int64_t time, int64_t than) {
    return s->r.negative ? time != -1 && (than == -1 || time > than) : time > than;
}

/* The shallow walk (analyzeAndValidateRecords): 0, or -1 refused. `leader` is not set for a follower. */
static int kts_analyse(struct kts_append *s, const uint8_t *p, int64_t n, int leader) {
    int64_t size = 0, time, last;
    int status, batch, codec, later = 0;
    uint32_t crc;
    s->first = s->last = s->first_or_last = s->top = s->top_offset = -1;
    s->valid = s->entries = 0;
    s->monotonic = s->same = s->plain = 1;
    s->source = 0;
    while ((status = kts_entry_size(s, p, n - s->valid, &size)) > 0) {
        s->at = s->valid;
        s->offset = last = (int64_t)kts_be64(p);
        batch = !s->r.old && p[16] == 2;
        /* what a leader of a later epoch wrote is left out with all that follows (KAFKA-18723), its sizes are seen */
        if (batch && s->r.replica && (int32_t)kts_be32(p + 12) != -1 && (int32_t)kts_be32(p + 12) > s->epoch)
            later = 1;
        if (later) {
            p += size;
            n -= size;
            continue;
        }
        if (batch && leader && s->r.client && last != 0)
            return kts_refuse(s, KTS_BASE_OFFSET, last, 0);
        if (batch && size < 27)
            return kts_refuse(s, KTS_SHORT_BATCH, size - 12, 0);
        if (batch)
            last = (int64_t)((uint64_t)last + (uint64_t)(int64_t)(int32_t)kts_be32(p + 23));
        if (s->r.old ? s->first < 0 : s->entries == 0 && batch)
            s->first = s->offset;
        if (s->entries == 0)
            s->first_or_last = batch ? s->offset : last;
        if (s->last >= last)
            s->monotonic = 0;
        s->last = last;
        if (size > s->r.largest && (leader || s->r.old))
            return kts_refuse(s, KTS_TOO_LARGE, size, s->r.largest);
        if (batch && size < 61)
            return kts_refuse(s, KTS_BAD_CRC, 0, 0);
        crc = kts_entry_crc(p, size, batch);
        if (crc != kts_be32(p + (batch ? 17 : 12)))
            return kts_refuse(s, KTS_BAD_CRC, kts_be32(p + (batch ? 17 : 12)), crc);
        time = batch ? (int64_t)kts_be64(p + 35) : p[16] ? (int64_t)kts_be64(p + 18) : -1;
        if (kts_later(s, time, s->top)) {
            s->top = time;
            s->top_offset = last;
        }
        codec = kts_codec(s, p);
        if (codec > (s->r.old ? 3 : 4))
            return kts_refuse(s, KTS_BAD_CODEC, codec, s->r.old ? 3 : 4);
        if (codec) {
            s->source = codec;
            s->plain = 0;
        }
        if (p[16] != s->r.magic)
            s->same = 0;
        s->entries += 1;
        s->valid += size;
        p += size;
    }
    s->at = s->valid;
    return status;
}

/* Whether all entries have the topic's magic: 1, 0, or -1 refused on the way. */
static int kts_same_magic(struct kts_append *s, const uint8_t *p, int64_t n) {
    int64_t size = 0, at = 0;
    int status;
    while ((status = kts_entry_size(s, p + at, n - at, &size)) > 0) {
        if ((int8_t)p[at + 16] != s->r.magic)
            return 0;
        at += size;
    }
    s->at = at;
    return status < 0 ? -1 : 1;
}

/* A record that policy refuses; 0, or -1 without memory. */
static int kts_wrong_record(struct kts_append *s, int64_t record, int64_t offset, int64_t time, int wrong) {
    if (s->bads == s->bad_room) {
        int64_t room = s->bad_room ? 2 * s->bad_room : 64;
        struct kts_bad *more = realloc(s->bad, (size_t)room * sizeof(struct kts_bad));
        if (more == NULL)
            return kts_refuse(s, KTS_NO_MEMORY, 0, 0);
        s->bad = more;
        s->bad_room = room;
    }
    s->bad[s->bads].record = record;
    s->bad[s->bads].offset = offset;
    s->bad[s->bads].time = time;
    s->bad[s->bads].wrong = wrong;
    s->bads += 1;
    s->bad_times |= wrong == KTS_OUT_OF_RANGE || wrong == KTS_APPEND_TIME;
    return 0;
}

static inline int kts_unlimited(const struct kts_rules *r) { return r->before == INT64_MAX && r->after == INT64_MAX; }

/* What is wrong with a record's time, by its type (`append_time`) or the topic's limits; 0 nothing. */
static inline int kts_wrong_time(const struct kts_append *s, int64_t time, int append_time) {
    const struct kts_rules *r = &s->r;
    int64_t behind, ahead;
    if (!r->append_time && !(r->exempt && time == -1) && !(r->negative && kts_unlimited(r))) {
        /* Java's difference wraps around, and so passes the limits with times that are farthest from them. */
        behind = r->shipped ? kts_minus(s->now, time) : kts_minus_at_most(s->now, time);
        ahead = r->shipped ? kts_minus(0, behind) : kts_minus_at_most(time, s->now);
        if (behind > r->before || ahead > r->after || (r->negative && behind == INT64_MIN))
            return KTS_OUT_OF_RANGE;
        if (!r->old && r->shipped)
            return 0; /* 3.6 and later look at the type only where no limit holds */
    }
    return append_time ? KTS_APPEND_TIME : 0;
}

#endif
