/* The cleaner of compacted logs: entries into an offset map, and entries without the records that may go.
 *
 * Source: Cleaner, CleanedTransactionMetadata, MemoryRecords.filterTo (3.9).
 */
#ifndef KTS_CLEAN_H
#define KTS_CLEAN_H

#include "columns.h"
#include "entries.h"
#include "offset_map.h"
#include "write.h"

struct kts_aborted { /* an entry of a transaction index */
    int64_t producer;
    int64_t first;
    int64_t last;
    int64_t stable;
};

struct kts_producer { /* what a pass knows of a producer */
    int64_t id;      /* -1: the place is free */
    int64_t aborted; /* its open transaction aborts: the place in the list; -1 none */
    int64_t last_data; /* the offset of its last record in the log, -1 none */
    int16_t epoch;
    uint8_t active;   /* the log knows the producer */
    uint8_t met;      /* a batch of the transaction that aborts was met */
    uint8_t commits;  /* a batch of a transaction that does not abort was met */
};

struct kts_producers {
    struct kts_producer *table;
    int64_t room; /* a power of two */
    int64_t count;
    struct kts_aborted *aborted; /* by first offset from `next` on */
    int64_t aborted_count;
    int64_t aborted_room;
    int64_t next; /* the first one that has not begun */
};

struct kts_cleaned { /* what a pass read and wrote */
    int64_t mapped_records; /* read for the map */
    int64_t records_read;
    int64_t records_written;
    int64_t bytes_read;
    int64_t bytes_written;
    int64_t without_key; /* records that went because they have no key */
    int64_t superseded;  /* because of a later one of their key */
    int64_t tombstones;  /* after their delete horizon */
    int64_t aborted;     /* with their transaction */
    int64_t markers;     /* transaction markers that went */
    int64_t kept_tombstones;
    int64_t kept_markers;
    int64_t unmapped; /* records beyond the last mapped offset, which stay */
    int64_t rewritten; /* batches */
    int64_t emptied;   /* batches that stay without records */
};

enum kts_retention { KTS_DELETE, KTS_KEEP_EMPTY, KTS_DELETE_EMPTY };

struct kts_cleaning { /* the state of a pass */
    struct kts_offset_map map;
    struct kts_producers producers;
    struct kts_cleaned done;
    /* asked */
    int64_t start; /* records below are not mapped */
    int64_t now;
    int64_t retention; /* delete.retention.ms */
    int64_t end;       /* the pass ends before this offset */
    int64_t none;      /* with `negative`: the time that is none */
    int negative;      /* times before 1970 count */
    int verify;        /* CRCs */
    int keep_last;     /* a last message of magic 0 or 1 without records to keep stays as it is, instead of a failure */
    int keep_deletes;  /* tombstones of magic 0 and 1 stay */
    /* the entry */
    int retention_of_entry;
    int discard; /* its records may go, whatever their keys */
    int removable_marker;
    struct kts_buf kept; /* a byte for each record */
    /* what is written */
    struct kts_buf out;
    int64_t out_end;
    struct kts_buf body; /* to be compressed */
    int64_t body_end;
    struct kts_head head;
    int magic;
    int32_t count;
    struct kts_buf listed; /* of kts_aborted: the transactions whose markers stay */
    int64_t listed_count;
};

/* Takes the aborted transactions of a segment, which may be known. KTS_OK, or KTS_FAILED without memory. */
int kts_add_aborted(struct kts_producers *t, const struct kts_aborted *found, int64_t count);

/* Forgets all producers and transactions. */
void kts_forget_producers(struct kts_producers *t);

/* Forgets which producers the log knows, or adds one: KTS_OK, or KTS_FAILED without memory. */
void kts_no_active_producers(struct kts_producers *t);
int kts_add_active_producer(struct kts_producers *t, int64_t id, int epoch, int64_t last_data);

/* The two walks over data[0:size] from *at on, which they move: to the end of the last whole entry (KTS_END), or to a
 * compressed entry, which is returned in e (KTS_INFLATE). The first also stops at the record that the map has no room for
 * (KTS_FULL), the second where kts_cleaning.body is to be compressed (KTS_STOP); or KTS_FAILED. */
int kts_map_entries(struct kts_cleaning *c, const uint8_t *data, int64_t size, int64_t *at, struct kts_entry *e,
                    struct kts_error *err);
int kts_filter_entries(struct kts_cleaning *c, const uint8_t *data, int64_t size, int64_t *at, struct kts_entry *e,
                       struct kts_error *err);

/* The same for entry e, which lies at *at and is p[0:n] decompressed; KTS_OK if it is done. */
int kts_map_inflated(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t *at,
                     struct kts_error *err);
int kts_filter_inflated(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t *at,
                        struct kts_error *err);

/* Writes the entry whose body was compressed to p[0:n]: KTS_OK, KTS_HUGE, or KTS_FAILED without memory. */
int kts_put_compressed(struct kts_cleaning *c, const uint8_t *p, int64_t n);

void kts_cleaning_free(struct kts_cleaning *c);

#endif
