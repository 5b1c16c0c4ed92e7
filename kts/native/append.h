/* Sets of records being appended: checked, given offsets and timestamps in place, or read to be rewritten.
 *
 * Two releases of Kafka are followed, 0.10.2.2 (`old`) and 3.9.2. Their LogValidators make different checks in different
 * orders, so a refusal names the fault that the release would find first.
 */
#ifndef KTS_APPEND_H
#define KTS_APPEND_H

#include "records.h"

struct kts_append_rules { /* of a topic */
    int old;         /* 0.10.2, otherwise 3.9 */
    int shipped;     /* exactly as released, with its defects */
    int magic;       /* message.format.version */
    int append_time; /* message.timestamp.type is LogAppendTime */
    int compacted;   /* keys are required */
    int client;      /* the appender is a client, */
    int replica;     /* or a follower, otherwise the broker itself */
    int exempt;      /* the limits do not apply to -1 */
    int negative;    /* times before 1970 count */
    int missing;     /* a record without a timestamp is refused */
    int64_t none;    /* with `negative`: the time that is none, -1, or INT64_MIN where -1 is a time too */
    int64_t before;  /* most ms that a time may be before the clock */
    int64_t after;   /* and after it */
    int64_t largest; /* max.message.bytes */
};

struct kts_asked {
    struct kts_append_rules r;
    int64_t now;
    int64_t start; /* offset of the first record */
    int32_t epoch;
};

struct kts_found {
    /* by the shallow walk */
    int64_t entries;
    int64_t valid; /* bytes of whole entries */
    int64_t first;
    int64_t last;
    int64_t first_or_last; /* of the first entry */
    int64_t top;           /* greatest timestamp */
    int64_t top_offset;
    int source; /* codec */
    int monotonic;
    int same; /* every entry has the topic's magic */
    /* by the deep walk */
    int64_t number;  /* of records */
    int64_t batches; /* entries that were read */
    int64_t next;    /* offset counter */
    int64_t max;
    int64_t max_offset;
    int in_place; /* the set is kept, except for offsets, timestamps and types */
    int skipped;  /* records were read without checking their lengths: keys and values are not known */
};

struct kts_bad { /* a record refused by policy */
    int64_t record;
    int64_t offset;
    int64_t time;
    int64_t wrong; /* enum kts_reason */
};

struct kts_refused {
    int reason; /* enum kts_reason */
    int64_t position;
    int64_t offset;
    int64_t record;
    int64_t a; /* the numbers of the reason's words */
    int64_t b;
    struct kts_bad *bad; /* freed by the owner of the set */
    int64_t bads;
    int64_t bad_room;
};

enum kts_path {
    KTS_IN_PLACE, /* uncompressed, in the topic's format */
    KTS_READ,     /* uncompressed, to be converted: read first, */
    KTS_CONVERT,  /* then checked */
    KTS_DEEP      /* compressed, or to be compressed */
};

struct kts_append { /* the state of one append */
    struct kts_asked asked;
    struct kts_found found;
    struct kts_refused refused;
    int path;
    int target; /* codec */
    /* the entry being read */
    int64_t at;
    int64_t size;
    int64_t offset;
    int64_t record;       /* -1: none */
    int64_t batch_number; /* of the next record in the entry */
    /* state of the walk */
    int64_t set_max; /* in place: of the batches before this one */
    int64_t set_max_offset;
    int64_t unwritable; /* first record that a writer refuses, -1 none */
    int64_t unwritable_time;
    int unwritable_why;
    int by_fields; /* compressed records are read without checking their lengths */
    int rising;    /* offset deltas must be 0, 1, 2 ... */
    int bad_crc;   /* the reason, if the CRC of a message is wrong: of the first such one, */
    int64_t bad_at; /* in this entry */
    int64_t bad_record;
    uint32_t bad_stored; /* and both CRCs */
    uint32_t bad_found;
    int first_magic;
};

int kts_refuse(struct kts_append *s, int reason, int64_t a, int64_t b); /* KTS_FAILED */

/* Whether the release takes the entry at e for a record batch. */
static inline int kts_is_batch(const struct kts_append *s, const uint8_t *e) {
    return !s->asked.r.old && e[KTS_MAGIC_AT] == 2;
}
static inline int kts_codec_of(const struct kts_append *s, const uint8_t *e) {
    return e[kts_is_batch(s, e) ? KTS_BATCH_FLAGS_AT : KTS_MESSAGE_ATTRIBUTES_AT] & KTS_CODEC_MASK;
}
/* Whether a time is later than another; -1 is no time, or `none` if times before 1970 count. */
static inline int kts_later(const struct kts_append *s, int64_t time, int64_t than) {
    if (KTS_LIKELY(!s->asked.r.negative))
        return time > than;
    return time != s->asked.r.none && (than == s->asked.r.none || time > than);
}

/* Size of the entry at p, including the 12 bytes of overhead: KTS_OK, KTS_END or KTS_FAILED. */
int kts_append_size(struct kts_append *s, const uint8_t *p, int64_t left, int64_t *size);

/* The shallow walk (analyzeAndValidateRecords): KTS_OK or KTS_FAILED. `leader` is not set for a follower. */
int kts_analyse(struct kts_append *s, const uint8_t *p, int64_t n, int leader);

/* Whether all entries have the topic's magic: 1 or 0, or KTS_FAILED at an impossible entry. */
int kts_same_magic(struct kts_append *s, const uint8_t *p, int64_t n);

/* Copies a set from `from` to p and does all the work that needs no decompression: 1 if the set is finished (or refused,
 * or empty), 0 if the deep walk remains. `target` is the topic's codec, -1 the producer's. */
int kts_append_plain(struct kts_append *s, uint8_t *p, const uint8_t *from, int64_t n, int target);

/* Each path begins, walks over the entries and ends; all return KTS_OK or KTS_FAILED, the walk also KTS_INFLATE at a
 * compressed entry. */
void kts_begin(struct kts_append *s, int path);
int kts_begin_in_place(struct kts_append *s, const uint8_t *p, int64_t n);
int kts_begin_deep(struct kts_append *s, const uint8_t *p, int64_t n);
int kts_first_batch(struct kts_append *s, const uint8_t *p, int64_t n, int source);
int kts_append_entries(struct kts_append *s, uint8_t *p, int64_t n, const uint8_t *reach);
int kts_append_inflated(struct kts_append *s, uint8_t *p, const uint8_t *out, int64_t n);
void kts_end_in_place(struct kts_append *s);
int kts_end_deep_in_place(struct kts_append *s, uint8_t *p, int64_t n);

/* A message as one release of Kafka sees it: an inner one has its wrapper's timestamp type, and under LogAppendTime also
 * its wrapper's timestamp. */
struct kts_seen_message {
    struct kts_entry e;
    const uint8_t *key_at; /* position of the key's length */
    int64_t time;
    int append_time;
};
static inline void kts_see_message(const struct kts_append *s, struct kts_seen_message *m, const uint8_t *e, int64_t size,
                                   const struct kts_entry *outer) {
    const int magic = (int8_t)e[KTS_MAGIC_AT];
    m->e.p = e;
    m->e.size = size;
    m->e.magic = magic;
    m->e.attributes = (int8_t)e[KTS_MESSAGE_ATTRIBUTES_AT];
    m->e.codec = m->e.attributes & KTS_CODEC_MASK;
    m->key_at = e + (magic == 0 ? KTS_V0_KEY_AT : KTS_V1_KEY_AT);
    m->time = magic == 0 ? -1 : kts_i64(e + KTS_MESSAGE_TIME_AT);
    m->append_time = magic != 0 && m->e.attributes & KTS_LOG_APPEND_TIME;
    if (outer && (s->asked.r.old ? magic > 0 : magic == 1)) {
        m->append_time = outer->magic != 0 && outer->attributes & KTS_LOG_APPEND_TIME;
        if (m->append_time)
            m->time = outer->max_timestamp;
    }
}
/* Finds its key and value: KTS_FINE, or the reason; with KTS_MESSAGE_REST they are set, too. */
static inline int kts_message_fields(struct kts_seen_message *m) {
    struct kts_error err;
    return kts_message_body(m->key_at, m->e.p + m->e.size, &m->e, &err) ? err.reason : KTS_FINE;
}

/* Header of the batch or wrapper at e. */
void kts_see_outer(const struct kts_append *s, struct kts_entry *outer, const uint8_t *e, int64_t size);

/* --- rewritten sets -------------------------------------------------------------------------------------- */

struct kts_writer { /* of messages of magic 0 or 1, or of the records of a batch */
    uint8_t *out; /* with KTS_SLACK bytes to spare */
    int64_t size;
    int64_t offset; /* of the next record */
    int64_t base;   /* written offsets are relative to it */
    int magic;
    int keep;        /* messages of this magic are kept unchanged */
    int stamp;       /* kept messages also get the append time and its type */
    int append_time; /* other messages get the append time and its type */
    int own_type;    /* the type bit of the source is kept */
    int prefix;      /* width of the last record's length */
    int64_t now;
    int64_t top; /* greatest time */
    int64_t top_offset;
    int64_t first_time; /* of a batch */
};

/* Writes the records of the uncompressed entry at e. */
void kts_rewrite_entry(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size);
/* Writes the records of the compressed entry at e, decompressed at p[0:n]. */
void kts_rewrite_inflated(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size,
                          const uint8_t *p, int64_t n);
/* Whether checked records are already exactly as a writer would write them, so that they need no rewrite. */
int kts_as_written(const uint8_t *p, int64_t n, int64_t count);

#endif
