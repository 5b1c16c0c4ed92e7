/* Sets of records being appended: checked, given offsets and times in place, or read to be written anew.
 *
 * Two releases of Kafka are followed, 0.10.2.2 (`old`) and 3.9.2. Their LogValidators differ in what they look at and in
 * which order, so whatever is refused is refused with the first thing that theirs would name.
 */
#ifndef KTS_APPEND_H
#define KTS_APPEND_H

#include "records.h"

struct kts_append_rules { /* of a topic */
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
    int in_place; /* the set is kept as it came, but for offsets and stamps */
    int skipped;  /* records were read without regard to their lengths: keys and values are not known */
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
    struct kts_bad *bad; /* freed by whoever owns the set */
    int64_t bads;
    int64_t bad_room;
};

enum kts_path {
    KTS_IN_PLACE, /* uncompressed, in the topic's format */
    KTS_READ,     /* uncompressed, to be converted: read first, */
    KTS_CONVERT,  /* then looked at */
    KTS_DEEP      /* compressed, or to be */
};

struct kts_append { /* a set on its way through */
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
    /* the rest is what the walk remembers */
    int64_t set_max; /* in place: of the batches before this one */
    int64_t set_max_offset;
    int64_t unwritable; /* first record that a writer refuses, -1 none */
    int64_t unwritable_time;
    int unwritable_why;
    int by_fields; /* compressed records are read without regard to their lengths */
    int rising;    /* offset deltas are to be 0, 1, 2 ... */
    int bad_crc;   /* the reason, where the CRC of a message is wrong: of the first one, */
    int64_t bad_at; /* in this entry */
    int64_t bad_record;
    uint32_t bad_stored; /* and both CRCs */
    uint32_t bad_found;
    int first_magic;
};

int kts_refuse(struct kts_append *s, int reason, int64_t a, int64_t b); /* KTS_FAILED */

/* Whether the entry at e is a record batch to that release. */
static inline int kts_is_batch(const struct kts_append *s, const uint8_t *e) {
    return !s->asked.r.old && e[KTS_MAGIC_AT] == 2;
}
static inline int kts_codec_of(const struct kts_append *s, const uint8_t *e) {
    return e[kts_is_batch(s, e) ? KTS_BATCH_FLAGS_AT : KTS_MESSAGE_ATTRIBUTES_AT] & KTS_CODEC_MASK;
}
/* Whether a time is later than another, -1 being none. */
static inline int kts_later(const struct kts_append *s, int64_t time, int64_t than) {
    return s->asked.r.negative ? time != -1 && (than == -1 || time > than) : time > than;
}

/* Size of the entry at p with its 12 bytes: KTS_OK, KTS_END or KTS_FAILED. */
int kts_append_size(struct kts_append *s, const uint8_t *p, int64_t left, int64_t *size);

/* The shallow walk (analyzeAndValidateRecords): KTS_OK or KTS_FAILED. `leader` is not set for a follower. */
int kts_analyse(struct kts_append *s, const uint8_t *p, int64_t n, int leader);

/* Whether all entries have the topic's magic: 1 or 0, or KTS_FAILED on the way. */
int kts_same_magic(struct kts_append *s, const uint8_t *p, int64_t n);

/* Copies a set from `from` to p and does all that can be done without decompressing: 1 where it is done with (also: refused
 * or empty), 0 where the deep walk is left to do. `target` is the topic's codec, -1 the producer's. */
int kts_append_plain(struct kts_append *s, uint8_t *p, const uint8_t *from, int64_t n, int target);

/* Each path begins, walks over the entries and ends; all return KTS_OK or KTS_FAILED, the walk also KTS_INFLATE in front
 * of a compressed entry. */
void kts_begin(struct kts_append *s, int path);
int kts_begin_in_place(struct kts_append *s, const uint8_t *p, int64_t n);
int kts_begin_deep(struct kts_append *s, const uint8_t *p, int64_t n);
int kts_first_batch(struct kts_append *s, const uint8_t *p, int64_t n, int source);
int kts_append_entries(struct kts_append *s, uint8_t *p, int64_t n, const uint8_t *reach);
int kts_append_inflated(struct kts_append *s, uint8_t *p, const uint8_t *out, int64_t n);
void kts_end_in_place(struct kts_append *s);
int kts_end_deep_in_place(struct kts_append *s, uint8_t *p, int64_t n);

/* A message as one release of Kafka sees it: an inner one has its wrapper's type, and its time too where that is
 * LogAppendTime. */
struct kts_seen_message {
    struct kts_entry e;
    const uint8_t *key_at; /* of the key's length */
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
/* Where its key and value lie: KTS_FINE, or the reason; for KTS_MESSAGE_REST they are set, too. */
static inline int kts_message_fields(struct kts_seen_message *m) {
    struct kts_error err;
    return kts_message_body(m->key_at, m->e.p + m->e.size, &m->e, &err) ? err.reason : KTS_FINE;
}

/* Header of the batch or wrapper at e. */
void kts_see_outer(const struct kts_append *s, struct kts_entry *outer, const uint8_t *e, int64_t size);

/* --- sets written anew ----------------------------------------------------------------------------------- */

struct kts_writer { /* of messages of magic 0 or 1, or of the records of a batch */
    uint8_t *out; /* with KTS_SLACK bytes to spare */
    int64_t size;
    int64_t offset; /* of the next */
    int64_t base;   /* that offsets are written relative to */
    int magic;
    int keep;        /* what has this magic stays as it is */
    int stamp;       /* the clock's time and type to those that are kept, too */
    int append_time; /* the clock's time and type to those that are not */
    int own_type;    /* a type bit of the source is carried over */
    int prefix;      /* width of the last record's length */
    int64_t now;
    int64_t top; /* greatest time */
    int64_t top_offset;
    int64_t first_time; /* of a batch */
};

/* Writes what the uncompressed entry at e holds. */
void kts_rewrite_entry(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size);
/* Writes what the compressed entry at e holds, decompressed at p[0:n]. */
void kts_rewrite_inflated(const struct kts_append *s, struct kts_writer *w, const uint8_t *e, int64_t size,
                          const uint8_t *p, int64_t n);
/* Whether records that were looked at are just what a writer would make of them: then they need not be written anew. */
int kts_as_written(const uint8_t *p, int64_t n, int64_t count);

#endif
