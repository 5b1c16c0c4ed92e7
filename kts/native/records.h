/* Records of a batch (magic 2) and uncompressed messages (magic 0 and 1): hot loops for those that producers usually
 * write, and a reader for all records that checks every step. Decoding and appending share them. */
#ifndef KTS_RECORDS_H
#define KTS_RECORDS_H

#include "columns.h"
#include "entries.h"

enum { /* the wanted fields and checks of records and messages */
    KTS_OFFSETS = 1,
    KTS_TIMESTAMPS = 2,
    KTS_TYPES = 4, /* of messages: all records of a batch have the same */
    KTS_KEYS = 8,
    KTS_VALUES = 16,
    KTS_REST = 32, /* check that each record is whole, including headers */
    KTS_VIEWS = 64,
    KTS_CRC = 128,  /* of each message */
    KTS_CHECK = 256 /* check the limits of a set being appended, instead of filling columns */
};

enum { KTS_LOOK = 24 }; /* bytes after `last` that may be read if no column is filled */

struct kts_record {
    const uint8_t *stop; /* its end; NULL: its length could not be read */
    int64_t time_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size; /* -1: null */
    const uint8_t *value;
    int64_t value_size; /* -1: null */
    int32_t headers;
};

struct kts_run { /* the state of reading records or messages in sequence */
    const uint8_t *p;     /* the next one */
    const uint8_t *last;  /* they end here at the latest; KTS_SLACK bytes after it are readable */
    const uint8_t *until; /* the last message begins before this */
    int64_t base_offset;  /* of a batch */
    int64_t base_timestamp;
    int64_t row;
    int64_t most; /* row to stop at */
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *types;
    struct kts_text *key;
    struct kts_text *value;
    const uint8_t *base; /* of the views */
    int32_t buffer;
    int64_t ahead;         /* distance to the next batch, which is prefetched for its CRC */
    int magic;             /* of messages */
    const uint8_t *latest; /* the last message that was read, or NULL */
    const struct kts_limits *limits; /* KTS_CHECK */
    int64_t max;                     /* KTS_CHECK: greatest timestamp, and its offset */
    int64_t max_offset;
};

struct kts_limits { /* the limits that usual records of an appended set meet */
    int64_t now;
    int64_t before; /* most ms that a time may be before the clock */
    int64_t after;  /* and after it */
    int64_t largest; /* most bytes of a message */
    int limited;     /* `before` and `after` apply */
    int keys;        /* keys are required */
    int exempt;      /* the timestamp -1 is exempt */
    int append_time; /* messages get the append time */
};

/* Reads records as producers usually write them, without headers and faults, and stops before any other. Bounds are not
 * tested between the fields: five varints and the attributes take 21 bytes at most, so p is never further past `last`
 * before the next test. With KTS_CHECK only the max timestamp is kept: then only KTS_LOOK bytes after `last` are read,
 * and the offset deltas must be 0, 1, 2 ... as the rows are. */
void kts_run_records(struct kts_run *r, int want);

/* Reads uncompressed messages of one magic; stops before a damaged one, too. With KTS_CHECK they get the offsets `row`,
 * `row` + 1 ... and, under LogAppendTime, the append time in place. */
void kts_run_messages(struct kts_run *r, int want);

/* Reads the record at *at, checks every step, and moves past it: KTS_OK or KTS_FAILED.
 *
 * Bytes after the last wanted field (KTS_KEYS, KTS_VALUES, KTS_REST) are not checked. `whole`: the fields must fill the
 * length field; otherwise it is ignored. Headers are stored in the slab `keep`, or skipped if it is NULL; memory is
 * readable up to `reach`. */
int kts_read_record(const uint8_t **at, const uint8_t *end, const uint8_t *reach, int want, int whole,
                    struct kts_slab *keep, struct kts_record *r, struct kts_error *err);

#endif
