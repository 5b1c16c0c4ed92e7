/* Columns being filled: the memory of one slab, which is handed to Arrow without a copy. */
#ifndef KTS_COLUMNS_H
#define KTS_COLUMNS_H

#include "platform.h"
#include "status.h"

struct ArrowArray { /* Arrow's C data interface, its published layout */
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct kts_buf {
    uint8_t *p;
    int64_t cap;
};

struct kts_text { /* a column of byte strings */
    struct kts_buf offsets; /* or 16-byte views */
    struct kts_buf data;
    struct kts_buf valid; /* bitmap, written once there is a null */
    int64_t rows;
    int64_t size;
    int64_t nulls;
};

/* The columns that are decoded: name, and the bytes of a row, 0 if they differ. kts.codec.columns has their types. */
#define KTS_STORED(COLUMN)                                                                                             \
    COLUMN(OFFSET, offset, 8)                                                                                          \
    COLUMN(TIMESTAMP, timestamp, 8)                                                                                    \
    COLUMN(TYPE, timestampType, 4)                                                                                     \
    COLUMN(KEY, key, 0)                                                                                                \
    COLUMN(VALUE, value, 0)                                                                                            \
    COLUMN(HEADERS, headers, 0)                                                                                        \
    COLUMN(MAGIC, magic, 1)                                                                                            \
    COLUMN(CODEC, codec, 1)                                                                                            \
    COLUMN(PRODUCER, producerId, 8)                                                                                    \
    COLUMN(PRODUCER_EPOCH, producerEpoch, 2)                                                                           \
    COLUMN(SEQUENCE, sequence, 4)                                                                                      \
    COLUMN(LEADER_EPOCH, partitionLeaderEpoch, 4)                                                                      \
    COLUMN(TRANSACTIONAL, transactional, 1)                                                                            \
    COLUMN(CONTROL, control, 1)                                                                                        \
    COLUMN(POSITION, position, 8)                                                                                      \
    COLUMN(CREATE_TIME, createTimestamp, 8)                                                                            \
    COLUMN(BASE_OFFSET, baseOffset, 8)                                                                                 \
    COLUMN(LAST_DELTA, lastOffsetDelta, 4)                                                                             \
    COLUMN(ATTRIBUTES, attributes, 2)                                                                                  \
    COLUMN(BASE_TIME, baseTimestamp, 8)                                                                                \
    COLUMN(MAX_TIME, maxTimestamp, 8)

/* What a walk needs besides. OWN_TIME is 0 where the record has no createTimestamp. */
#define KTS_UNSTORED(COLUMN)                                                                                           \
    COLUMN(IS_BATCH, , 1)                                                                                              \
    COLUMN(SHALLOW, , 8)                                                                                               \
    COLUMN(SIZE, , 4)                                                                                                  \
    COLUMN(CRC_OK, , 1)                                                                                                \
    COLUMN(OWN_TIME, , 1)

enum kts_column {
#define KTS_COLUMN(id, name, width) KTS_C_##id,
    KTS_STORED(KTS_COLUMN)
    KTS_UNSTORED(KTS_COLUMN)
#undef KTS_COLUMN
    KTS_COLUMNS,
    KTS_STORED_COLUMNS = KTS_C_IS_BATCH
};

extern const char *const kts_column_names[]; /* of the stored ones */

/* The columns that fill_entry writes for messages, too. */
#define KTS_SHARED                                                                                                      \
    (1u << KTS_C_CODEC | 1u << KTS_C_PRODUCER | 1u << KTS_C_PRODUCER_EPOCH | 1u << KTS_C_LEADER_EPOCH |                 \
     1u << KTS_C_TRANSACTIONAL | 1u << KTS_C_CONTROL | 1u << KTS_C_POSITION | 1u << KTS_C_BASE_OFFSET |                 \
     1u << KTS_C_LAST_DELTA | 1u << KTS_C_ATTRIBUTES | 1u << KTS_C_BASE_TIME | 1u << KTS_C_MAX_TIME |                   \
     1u << KTS_C_IS_BATCH | 1u << KTS_C_SHALLOW | 1u << KTS_C_OWN_TIME)

enum { KTS_NODES = 32 };

struct kts_mark { /* the state before an entry, to remove its rows */
    int64_t rows;
    int64_t key_size, key_nulls, value_size, value_nulls;
    int64_t headers, header_nulls, header_key_size, header_value_size, header_value_nulls;
};

struct kts_slab { /* the memory of one Arrow batch */
    int refs;
    int kib;      /* of its memory, while it is kept for reuse */
    int may_keep; /* also when it grew large: its input was large too, and no few bytes that unpack to many */
    int64_t rows;
    struct kts_buf fixed[KTS_COLUMNS];
    struct kts_buf bits[KTS_COLUMNS];
    struct kts_text key;
    struct kts_text value;
    struct kts_text header_key;
    struct kts_text header_value;
    struct kts_buf header_offsets;
    struct kts_buf header_valid;
    int64_t header_nulls;
    int64_t row_room; /* allocated rows, and bytes of keys and values */
    int64_t key_room;
    int64_t value_room;
    struct kts_mark mark;
    struct kts_buf kept;  /* the Python objects that the views point into, */
    struct kts_buf bases; /* their addresses */
    struct kts_buf sizes; /* and sizes, as Arrow's variadic buffers */
    int n_kept;
    struct ArrowArray nodes[KTS_NODES];
    struct ArrowArray *kids[KTS_NODES];
    struct kts_buf pointers; /* every array's buffers */
};

enum kts_room { KTS_ROOM = 0, KTS_ROOM_FULL, KTS_ROOM_MEMORY }; /* a column passes 2 GiB; there is no memory */

int kts_make_larger(struct kts_buf *b, int64_t need); /* KTS_OK, or KTS_FAILED without memory */
static inline int kts_grow(struct kts_buf *b, int64_t need) { /* the same, if the buffer is smaller than that */
    return KTS_LIKELY(need <= b->cap) ? KTS_OK : kts_make_larger(b, need);
}
struct kts_slab *kts_slab_take(int64_t input_bytes); /* for a piece of that many bytes; NULL without memory */
void kts_slab_unref(struct kts_slab *s, void (*drop_kept)(struct kts_slab *));
void kts_set_mark(struct kts_slab *s);
void kts_take_back(struct kts_slab *s); /* removes the rows of a damaged entry */

/* Makes room for `rows` more strings of `size` bytes in all. */
int kts_text_room(struct kts_text *t, int64_t rows, int64_t size, int views);
/* Makes room for `rows` more rows of the columns `want`, with `size` bytes of keys and of values. */
int kts_row_room(struct kts_slab *s, uint32_t want, int views, int64_t rows, int64_t size);

/* Describes the slab's rows to Arrow, as a struct of n columns; NULL without memory. The array then holds the slab, and
 * `release` is called for each of its nodes. */
struct ArrowArray *kts_export(struct kts_slab *s, const uint8_t *ids, int n, int views, uint32_t nullable,
                              void (*release)(struct ArrowArray *));

static inline void kts_fill8(uint8_t *p, int64_t first, int64_t last, uint8_t v) {
    memset(p + first, v, (size_t)(last - first));
}
static inline void kts_fill16(uint8_t *p, int64_t first, int64_t last, int16_t v) {
    for (int64_t i = first; i < last; i++)
        ((int16_t *)(void *)p)[i] = v;
}
static inline void kts_fill32(uint8_t *p, int64_t first, int64_t last, int32_t v) {
    for (int64_t i = first; i < last; i++)
        ((int32_t *)(void *)p)[i] = v;
}
static inline void kts_fill64(uint8_t *p, int64_t first, int64_t last, int64_t v) {
    for (int64_t i = first; i < last; i++)
        ((int64_t *)(void *)p)[i] = v;
}

static inline int64_t *kts_longs(struct kts_slab *s, int column) { return (int64_t *)(void *)s->fixed[column].p; }
static inline int32_t *kts_ints(struct kts_slab *s, int column) { return (int32_t *)(void *)s->fixed[column].p; }
static inline int32_t *kts_offsets(struct kts_buf *b) { return (int32_t *)(void *)b->p; }

/* --- byte strings, one at a time ------------------------------------------------------------------------- */

static inline void kts_text_null(struct kts_text *t, int64_t row) {
    if (t->nulls == 0)
        memset(t->valid.p, 0xFF, (size_t)t->valid.cap);
    t->nulls += 1;
    t->valid.p[row >> 3] &= (uint8_t) ~(1u << (row & 7));
}

/* String `row`: n bytes at p (n < 0: null); memory is readable up to `end`. */
static inline void kts_text_put(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *end) {
    if (KTS_LIKELY(n >= 0)) {
        kts_copy(t->data.p + t->size, p, n, end);
        t->size += n;
    } else {
        kts_text_null(t, row);
    }
    kts_offsets(&t->offsets)[row + 1] = (int32_t)t->size;
}

/* View `row`: up to 12 bytes inline, padded with zeros; otherwise prefix, buffer number and offset from `base`. */
static inline void kts_view_put(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *base,
                                int32_t buffer) {
    uint8_t *v = t->offsets.p + 16 * row;
    int32_t words[4] = {n < 0 ? 0 : (int32_t)n, 0, 0, 0};
    if (n > 12) {
        memcpy(words + 1, p, 4);
        words[2] = buffer;
        words[3] = (int32_t)(p - base);
    } else if (n >= 0) {
        memcpy(words + 1, p, (size_t)n);
    } else {
        kts_text_null(t, row);
    }
    memcpy(v, words, 16);
}

#endif
