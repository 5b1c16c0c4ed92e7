/* The memory of columns: allocate, grow, reuse, and export to Arrow. */
#include "columns.h"

#include <stdlib.h>

/* Minimum size of buffers, and number of slabs kept for reuse. Under a fuzzer, buffers have exactly the requested size
 * and are freed at once, so that it detects every access out of bounds. */
#if defined(KTS_FUZZ)
enum { LEAST_BYTES = 1, SPARES = 0 };
#else
enum { LEAST_BYTES = 4096, SPARES = 16 };
#endif
enum { SPARE_KIB = 24576, SPARES_KIB = 98304 }; /* of one, and of all together */
enum { LARGE_INPUT = 4194304, LARGE_IS_KEPT = 4 }; /* bytes whose slab may be larger than a spare; times its size */

static const int widths[] = {
#define KTS_WIDTH(id, name, width) width,
    KTS_STORED(KTS_WIDTH) KTS_UNSTORED(KTS_WIDTH)
#undef KTS_WIDTH
};

const char *const kts_column_names[] = {
#define KTS_NAME(id, name, width) #name,
    KTS_STORED(KTS_NAME)
#undef KTS_NAME
};

/* Released slabs, kept for reuse: page faults on new memory cost as much as decoding into it. */
static void *spare[SPARES + 1];
static int spares_kib;
static void *large;    /* the last one that was larger, until several times its size was released in smaller ones */
static int large_left; /* KiB of them until then */

int kts_make_larger(struct kts_buf *b, int64_t need) {
    int64_t cap;
    void *p;
    cap = SPARES ? b->cap + (b->cap >> 1) : need;
    if (cap < need)
        cap = need;
    if (cap < LEAST_BYTES)
        cap = LEAST_BYTES;
    p = realloc(b->p, (size_t)cap);
    if (p == NULL)
        return KTS_FAILED;
    b->p = p;
    b->cap = cap;
    return KTS_OK;
}

/* --- slabs ----------------------------------------------------------------------------------------------- */

static KTS_INLINE void each_buf(struct kts_slab *s, void (*visit)(struct kts_buf *, int64_t *), int64_t *sum) {
    struct kts_text *texts[] = {&s->key, &s->value, &s->header_key, &s->header_value};
    struct kts_buf *others[] = {&s->header_offsets, &s->header_valid, &s->kept, &s->bases, &s->sizes, &s->pointers};
    for (int i = 0; i < KTS_COLUMNS; i++) {
        visit(&s->fixed[i], sum);
        visit(&s->bits[i], sum);
    }
    for (int i = 0; i < 4; i++) {
        visit(&texts[i]->offsets, sum);
        visit(&texts[i]->data, sum);
        visit(&texts[i]->valid, sum);
    }
    for (int i = 0; i < 6; i++)
        visit(others[i], sum);
}

static void add_size(struct kts_buf *b, int64_t *sum) { *sum += b->cap; }

static void free_buf(struct kts_buf *b, int64_t *sum) {
    (void)sum;
    free(b->p);
}

static void free_slab(struct kts_slab *s) {
    each_buf(s, free_buf, NULL);
    free(s);
}

struct kts_slab *kts_slab_take(int64_t input_bytes) {
    struct kts_slab *s = NULL;
    if (SPARES && input_bytes >= LARGE_INPUT && (s = kts_swap(&large, NULL)) != NULL)
        s->kib = 0;
    for (int i = 0; i < SPARES && s == NULL; i++)
        s = kts_swap(&spare[i], NULL);
    if (s != NULL)
        kts_add(&spares_kib, -s->kib);
    else
        s = calloc(1, sizeof(struct kts_slab));
    if (s == NULL)
        return NULL;
    s->refs = 1;
    s->may_keep = SPARES && input_bytes >= LARGE_INPUT;
    s->rows = 0;
    s->key.rows = s->key.size = s->key.nulls = 0;
    s->value.rows = s->value.size = s->value.nulls = 0;
    s->header_key.rows = s->header_key.size = s->header_key.nulls = 0;
    s->header_value.rows = s->header_value.size = s->header_value.nulls = 0;
    s->header_nulls = 0;
    s->row_room = s->key_room = s->value_room = 0;
    s->n_kept = 0;
    return s;
}

void kts_slab_unref(struct kts_slab *s, void (*drop_kept)(struct kts_slab *)) {
    struct kts_slab *old;
    int64_t held = 0;
    if (kts_add(&s->refs, -1) != 0)
        return;
    if (s->n_kept)
        drop_kept(s);
    each_buf(s, add_size, &held);
    if (held >> 10 < SPARE_KIB) {
        s->kib = (int)(held >> 10) + 1;
        if (kts_add(&large_left, 0) > 0 && kts_add(&large_left, -s->kib) <= 0 && (old = kts_swap(&large, NULL)) != NULL)
            free_slab(old);
        if (kts_add(&spares_kib, s->kib) <= SPARES_KIB)
            for (int i = 0; i < SPARES; i++)
                if (kts_offer(&spare[i], s))
                    return;
        kts_add(&spares_kib, -s->kib);
    } else if (s->may_keep) {
        kts_add(&large_left, (int)(LARGE_IS_KEPT * (held >> 10)) - kts_add(&large_left, 0));
        s = kts_swap(&large, s);
    }
    if (s != NULL)
        free_slab(s);
}

void kts_set_mark(struct kts_slab *s) {
    s->mark.rows = s->rows;
    s->mark.key_size = s->key.size;
    s->mark.key_nulls = s->key.nulls;
    s->mark.value_size = s->value.size;
    s->mark.value_nulls = s->value.nulls;
    s->mark.headers = s->header_key.rows;
    s->mark.header_nulls = s->header_nulls;
    s->mark.header_key_size = s->header_key.size;
    s->mark.header_value_size = s->header_value.size;
    s->mark.header_value_nulls = s->header_value.nulls;
}

void kts_take_back(struct kts_slab *s) {
    s->rows = s->key.rows = s->value.rows = s->mark.rows;
    s->key.size = s->mark.key_size;
    s->key.nulls = s->mark.key_nulls;
    s->value.size = s->mark.value_size;
    s->value.nulls = s->mark.value_nulls;
    s->header_key.rows = s->header_value.rows = s->mark.headers;
    s->header_nulls = s->mark.header_nulls;
    s->header_key.size = s->mark.header_key_size;
    s->header_value.size = s->mark.header_value_size;
    s->header_value.nulls = s->mark.header_value_nulls;
}

/* --- room ------------------------------------------------------------------------------------------------ */

int kts_text_room(struct kts_text *t, int64_t rows, int64_t size, int views) {
    int64_t old;
    if (views) {
        if (kts_grow(&t->offsets, (t->rows + rows) * 16))
            return KTS_ROOM_MEMORY;
    } else {
        if (t->size + size > INT32_MAX)
            return KTS_ROOM_FULL;
        if (kts_grow(&t->offsets, (t->rows + rows + 1) * 4) || kts_grow(&t->data, t->size + size + KTS_SLACK))
            return KTS_ROOM_MEMORY;
        if (t->rows == 0)
            kts_offsets(&t->offsets)[0] = 0;
    }
    old = t->valid.cap;
    if (kts_grow(&t->valid, (t->rows + rows + 8) >> 3))
        return KTS_ROOM_MEMORY;
    if (t->nulls && t->valid.cap > old)
        memset(t->valid.p + old, 0xFF, (size_t)(t->valid.cap - old));
    return KTS_ROOM;
}

int kts_row_room(struct kts_slab *s, uint32_t want, int views, int64_t rows, int64_t size) {
    int64_t old;
    int status;
    for (int i = 0; i < KTS_COLUMNS; i++)
        if (widths[i] && want >> i & 1 && kts_grow(&s->fixed[i], (s->rows + rows) * widths[i]))
            return KTS_ROOM_MEMORY;
    if (want >> KTS_C_KEY & 1 && (status = kts_text_room(&s->key, rows, size, views)))
        return status;
    if (want >> KTS_C_VALUE & 1 && (status = kts_text_room(&s->value, rows, size, views)))
        return status;
    if (want >> KTS_C_HEADERS & 1) {
        old = s->header_valid.cap;
        if (kts_grow(&s->header_offsets, (s->rows + rows + 1) * 4) || kts_grow(&s->header_valid, (s->rows + rows + 8) >> 3))
            return KTS_ROOM_MEMORY;
        if (s->rows == 0) {
            kts_offsets(&s->header_offsets)[0] = 0;
            old = 0;
        }
        memset(s->header_valid.p + old, 0, (size_t)(s->header_valid.cap - old));
    }
    s->row_room = s->rows + rows;
    s->key_room = s->key.size + size;
    s->value_room = s->value.size + size;
    return KTS_ROOM;
}

/* --- to Arrow -------------------------------------------------------------------------------------------- */

static const uint8_t nothing[64]; /* for arrays without rows: Arrow needs an address */

static const void *address(const struct kts_buf *b) { return b->p != NULL ? b->p : nothing; }

/* Packs a column of bytes 0 and 1 into the bitmap `bits`; returns the number of zeros, or -1 without memory. */
static int64_t pack(struct kts_slab *s, int column) {
    const int64_t rows = s->rows, whole = rows >> 3; /* eight rows at a time */
    const uint8_t *p = s->fixed[column].p;
    int64_t ones = 0, i;
    uint64_t eight;
    uint8_t *bits, last = 0;
    if (kts_grow(&s->bits[column], whole + 1))
        return -1;
    bits = s->bits[column].p;
    for (i = 0; i < whole; i++) {
        memcpy(&eight, p + 8 * i, 8);
        bits[i] = (uint8_t)((eight * 0x0102040810204080u) >> 56); /* row k is at bit 8k: its factor is 2^(56 - 7k) */
        ones += (int64_t)((eight * 0x0101010101010101u) >> 56);
    }
    for (i = 8 * whole; i < rows; i++) {
        last |= (uint8_t)(p[i] << (i & 7));
        ones += p[i];
    }
    bits[whole] = last;
    return rows - ones;
}

struct exported { /* the state of an export */
    struct kts_slab *s;
    int used;         /* nodes */
    const void **at;  /* next place for the address of a buffer */
    void (*release)(struct ArrowArray *);
};

static struct ArrowArray *node(struct exported *x, int64_t rows, int64_t nulls, int buffers) {
    struct ArrowArray *a = &x->s->nodes[x->used];
    x->s->kids[x->used] = a;
    x->used += 1;
    memset(a, 0, sizeof(*a));
    a->length = rows;
    a->null_count = nulls;
    a->n_buffers = buffers;
    a->buffers = x->at;
    x->at += buffers;
    a->buffers[0] = NULL;
    a->release = x->release;
    a->private_data = x->s;
    return a;
}

static void text_node(struct exported *x, struct kts_text *t, int views) {
    struct kts_slab *s = x->s;
    struct ArrowArray *a = node(x, t->rows, t->nulls, views ? 3 + s->n_kept : 3);
    a->buffers[0] = t->nulls ? t->valid.p : NULL;
    a->buffers[1] = t->rows ? address(&t->offsets) : nothing;
    if (!views) {
        a->buffers[2] = address(&t->data);
    } else {
        for (int i = 0; i < s->n_kept; i++)
            a->buffers[2 + i] = ((void **)(void *)s->bases.p)[i];
        a->buffers[2 + s->n_kept] = address(&s->sizes);
    }
}

/* The column that says where a column has values. */
static int validity_of(int column) { return column == KTS_C_CREATE_TIME ? KTS_C_OWN_TIME : KTS_C_IS_BATCH; }

/* One child of the row that is not a byte string: KTS_OK, or KTS_FAILED without memory. `nulls`: of the validity columns. */
static int column_node(struct exported *x, int column, uint32_t nullable, const int64_t *nulls) {
    struct kts_slab *s = x->s;
    struct ArrowArray *a = node(x, s->rows, 0, 2);
    if (column == KTS_C_HEADERS) {
        a->null_count = s->header_nulls;
        a->buffers[0] = address(&s->header_valid);
        a->buffers[1] = s->rows ? address(&s->header_offsets) : nothing;
    } else if (column == KTS_C_TRANSACTIONAL || column == KTS_C_CONTROL || column == KTS_C_CRC_OK) {
        if (pack(s, column) < 0)
            return KTS_FAILED;
        a->buffers[1] = address(&s->bits[column]);
    } else {
        a->buffers[1] = address(&s->fixed[column]);
        if (nullable >> column & 1) {
            a->null_count = nulls[validity_of(column)];
            a->buffers[0] = address(&s->bits[validity_of(column)]);
        }
    }
    return KTS_OK;
}

struct ArrowArray *kts_export(struct kts_slab *s, const uint8_t *ids, int n, int views, uint32_t nullable,
                              void (*release)(struct ArrowArray *)) {
    struct exported x = {s, 0, NULL, release};
    struct ArrowArray *a;
    int64_t nulls[KTS_COLUMNS];
    int i, direct;
    if (kts_grow(&s->pointers, (int64_t)sizeof(void *) * (4 * KTS_COLUMNS + 3 + 2 * s->n_kept)))
        return NULL;
    x.at = (const void **)(void *)s->pointers.p;
    for (i = 0; i < KTS_COLUMNS; i++)
        nulls[i] = -1; /* not packed */
    for (i = 0; i < KTS_COLUMNS; i++)
        if (nullable >> i & 1 && nulls[validity_of(i)] < 0 && (nulls[validity_of(i)] = pack(s, validity_of(i))) < 0)
            return NULL;
    a = node(&x, s->rows, 0, 1);
    /* children of the row first: their addresses must be contiguous */
    direct = x.used;
    a->n_children = n;
    a->children = &s->kids[direct];
    for (i = 0; i < n; i++) {
        if (ids[i] == KTS_C_KEY)
            text_node(&x, &s->key, views);
        else if (ids[i] == KTS_C_VALUE)
            text_node(&x, &s->value, views);
        else if (column_node(&x, ids[i], nullable, nulls))
            return NULL;
    }
    for (i = 0; i < n; i++) {
        if (ids[i] != KTS_C_HEADERS)
            continue;
        s->nodes[direct + i].n_children = 1;
        s->nodes[direct + i].children = &s->kids[x.used];
        a = node(&x, s->header_key.rows, 0, 1);
        a->n_children = 2;
        a->children = &s->kids[x.used];
        text_node(&x, &s->header_key, 0);
        text_node(&x, &s->header_value, 0);
    }
    s->refs = x.used;
    return &s->nodes[0];
}
