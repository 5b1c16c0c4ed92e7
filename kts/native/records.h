/* Records of a batch (magic 2) and uncompressed messages (magic 0 and 1): hot loops for those that producers usually write,
 * and a reader for all records, every step checked. Decoding and appending use the same. */
#ifndef KTS_RECORDS_H
#define KTS_RECORDS_H

#include "columns.h"
#include "entries.h"

enum { /* what is wanted of records and messages */
    KTS_OFFSETS = 1,
    KTS_TIMESTAMPS = 2,
    KTS_TYPES = 4, /* of messages: those of a batch are all the same */
    KTS_KEYS = 8,
    KTS_VALUES = 16,
    KTS_REST = 32, /* to be sure that each record is whole, headers included */
    KTS_VIEWS = 64,
    KTS_CRC = 128,  /* of each message */
    KTS_CHECK = 256 /* against the limits of a set being appended, instead of columns */
};

enum { KTS_LOOK = 24 }; /* bytes behind `last` that are read where nothing is kept */

struct kts_record {
    const uint8_t *stop; /* behind it; NULL: not even its length was read */
    int64_t time_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size; /* -1: null */
    const uint8_t *value;
    int64_t value_size; /* -1: null */
    int32_t headers;
};

struct kts_run { /* records or messages being read, one after the other */
    const uint8_t *p;     /* the next one */
    const uint8_t *last;  /* they end here at the latest; KTS_SLACK bytes behind it can be read */
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
    int64_t ahead;         /* distance to the next batch, whose CRC is due then: fetched meanwhile */
    int magic;             /* of messages */
    const uint8_t *latest; /* the last message that was read, or NULL */
    const struct kts_limits *limits; /* KTS_CHECK */
    int64_t max;                     /* KTS_CHECK: greatest timestamp, and its offset */
    int64_t max_offset;
};

struct kts_limits { /* what usual records of a set being appended keep to */
    int64_t now;
    int64_t before; /* most ms a time lies behind the clock */
    int64_t after;  /* and before it */
    int64_t largest; /* most bytes of a message */
    int limited;     /* the two hold */
    int keys;        /* are needed */
    int exempt;      /* the timestamp -1 is */
    int append_time; /* stamp the clock's time on messages */
};

/* Reads records as producers usually write them, without headers and with nothing wrong, and stops in front of all else.
 * There is no test of bounds between the fields: five varints and the attributes take 21 bytes at most, so p is never that
 * far behind `last` before it is looked at. With KTS_CHECK nothing is kept of them but the greatest timestamp: then only
 * KTS_LOOK bytes behind `last` are read, and the offset deltas must be 0, 1, 2 ... as the rows are. */
void kts_run_records(struct kts_run *r, int want);

/* Reads uncompressed messages of one magic; stops in front of a damaged one, too. With KTS_CHECK they get the offsets
 * `row`, `row` + 1 ... and their stamps in place. */
void kts_run_messages(struct kts_run *r, int want);

/* Reads the record at *at, every step checked, and moves on behind it: KTS_OK or KTS_FAILED.
 *
 * What lies behind the last field that is wanted (KTS_KEYS, KTS_VALUES, KTS_REST) is not looked at. `whole`: its fields
 * fill the stated length; else they are read on as they come. Headers are kept in the slab `keep`, or (NULL) passed over;
 * up to `reach` memory may be read. */
int kts_read_record(const uint8_t **at, const uint8_t *end, const uint8_t *reach, int want, int whole,
                    struct kts_slab *keep, struct kts_record *r, struct kts_error *err);

#endif
