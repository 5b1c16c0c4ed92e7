/* Entries into columns: batches, messages, and wrappers that were decompressed by the surface. */
#ifndef KTS_DECODE_H
#define KTS_DECODE_H

#include "records.h"

struct kts_pass { /* a pass over a buffer */
    const uint8_t *data;
    int64_t size;
    int64_t position;
    uint32_t want; /* a bit for each column */
    int records;   /* the same, as what is wanted of records and messages */
    int views;
    int verify;
    const uint8_t *base; /* start of the variadic buffer that views point into now */
    int32_t buffer;      /* its number */
};

/* What the columns that are wanted need of records and messages. */
int kts_wanted_of_records(uint32_t want, int views, int verify);

/* Appends whole uncompressed entries until `stop` is passed (KTS_STOP) or the buffer ends (KTS_END), or a compressed one
 * comes, which is left in e (KTS_INFLATE), or views need their next buffer (KTS_BASE); or KTS_FAILED. */
int kts_decode(struct kts_pass *d, struct kts_slab *s, int64_t stop, struct kts_entry *e, struct kts_error *err);

/* Appends what entry e holds, decompressed at p[0:n], and passes over it: KTS_OK or KTS_FAILED. */
int kts_decode_inflated(struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, const uint8_t *p, int64_t n,
                        struct kts_error *err);

/* One row an entry, from headers and CRCs alone: KTS_END or KTS_FAILED. */
int kts_scan(struct kts_pass *d, struct kts_slab *s, struct kts_error *err);

#endif
