/* Decodes entries into columns: batches, messages, and wrappers, which Python decompresses. */
#ifndef KTS_DECODE_H
#define KTS_DECODE_H

#include "records.h"

struct kts_pass { /* a pass over a buffer */
    const uint8_t *data;
    int64_t size;
    int64_t position;
    uint32_t want; /* a bit for each column */
    int records;   /* the same as fields of records and messages */
    int views;
    int verify;
    const uint8_t *base; /* start of the current variadic buffer of views */
    int32_t buffer;      /* its number */
};

/* The fields of records and messages that the wanted columns need. */
int kts_wanted_of_records(uint32_t want, int views, int verify);

/* Appends whole uncompressed entries until `stop` is passed (KTS_STOP), the buffer ends (KTS_END), a compressed entry
 * follows, which is returned in e (KTS_INFLATE), or views need their next buffer (KTS_BASE); or KTS_FAILED. */
int kts_decode(struct kts_pass *d, struct kts_slab *s, int64_t stop, struct kts_entry *e, struct kts_error *err);

/* Appends the records of entry e, decompressed at p[0:n], and moves past it: KTS_OK or KTS_FAILED. */
int kts_decode_inflated(struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, const uint8_t *p, int64_t n,
                        struct kts_error *err);

/* The rows of the entries of a buffer as columns, from headers and CRCs alone: KTS_END or KTS_FAILED. */
int kts_scan(const uint8_t *data, int64_t size, uint32_t want, struct kts_slab *s, struct kts_error *err);

/* Rows of a table as the same columns: KTS_OK, or KTS_FAILED without memory. */
int kts_columns_of_rows(const struct kts_row *rows, int64_t count, uint32_t want, struct kts_slab *s);

#endif
