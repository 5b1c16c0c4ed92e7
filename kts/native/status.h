/* What a function of the core returns, wherever it returns a status. */
#ifndef KTS_STATUS_H
#define KTS_STATUS_H

enum kts_status {
    KTS_FAILED = -1, /* the error or the refusal that was handed in says why */
    KTS_OK = 0,      /* done; of a walk: here is an entry */
    KTS_END = 1,     /* no bytes are left, or an entry is cut there */
    KTS_STOP = 2,    /* the piece is full */
    KTS_INFLATE = 3, /* the entry must be decompressed first */
    KTS_BASE = 4,    /* views need the next variadic buffer */
    KTS_FULL = 5,    /* the row does not fit the batch any more */
    KTS_CRAMPED = 6, /* the sink must become larger */
    KTS_HUGE = 7     /* the row is too large for any entry */
};

#endif
