/* The status that functions of the core return. */
#ifndef KTS_STATUS_H
#define KTS_STATUS_H

enum kts_status {
    KTS_FAILED = -1, /* the caller's error or refusal says why */
    KTS_OK = 0,      /* done; a walk: found an entry */
    KTS_END = 1,     /* no bytes are left, or the last entry is incomplete */
    KTS_STOP = 2,    /* the slice is full */
    KTS_INFLATE = 3, /* the entry must be decompressed first */
    KTS_BASE = 4,    /* views need the next variadic buffer */
    KTS_FULL = 5,    /* the row no longer fits the batch */
    KTS_CRAMPED = 6, /* the sink must grow */
    KTS_HUGE = 7     /* the row is too large for any entry */
};

#endif
