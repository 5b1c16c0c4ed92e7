#include "avro.h"
#include "utf8.h"

#include <stdlib.h>

enum {
    DEEPEST = 500,        /* levels of a value */
    MOST_CELLS = 1 << 24, /* nulls and defaults that a value becomes */
    MOST_EMPTY = 1 << 16, /* items of a value that take no bytes */
    FEW_KEYS = 8          /* of a map, compared each with each */
};
#if defined(KTS_FUZZ)
enum { LEAST_ROWS = 1, LEAST_BYTES = 1, EXACT = 512 }; /* a fuzzer detects every access out of bounds */
#else
enum { LEAST_ROWS = 64, LEAST_BYTES = 256, EXACT = 0 }; /* beyond so many rows or bytes, room doubles */
#endif

const char *const kts_avro_op_names[] = {
#define KTS_AVRO_OP(name) #name,
    KTS_AVRO_OPS(KTS_AVRO_OP)
#undef KTS_AVRO_OP
};
const char *const kts_avro_words[] = {
#define KTS_AVRO_REASON(name, words) words,
    KTS_AVRO_REASONS(KTS_AVRO_REASON)
#undef KTS_AVRO_REASON
};

struct span {
    const uint8_t *p;
    int64_t size;
};

struct walk {
    struct kts_avro_column *columns;
    const struct kts_avro_node *nodes;
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *reach; /* memory is readable up to here */
    int64_t cells;        /* places that were visited, */
    int64_t most;         /* and how many may be */
    int64_t made;         /* nulls and defaults */
    int64_t empty;        /* items that took no bytes */
    int32_t depth;
    int32_t why;
    int32_t node;
    struct kts_buf spans;
};

static int read_value(struct walk *w, int32_t number);

static KTS_APART int refuse(struct walk *w, int32_t number, int32_t why) {
    w->why = why;
    w->node = number;
    return KTS_FAILED;
}

/* --- the memory of columns ------------------------------------------------------------------------------- */

static KTS_APART int enlarge(struct walk *w, struct kts_buf *b, int64_t need) {
    int64_t cap = b->cap >= EXACT ? 2 * b->cap : 0;
    void *p;
    if (cap < need)
        cap = need;
    if (cap < LEAST_BYTES)
        cap = LEAST_BYTES;
    p = realloc(b->p, (size_t)cap);
    if (p == NULL)
        return refuse(w, 0, KTS_AVRO_WHY_MEMORY);
    b->p = p;
    b->cap = cap;
    return KTS_OK;
}

static int bytes_room(struct walk *w, struct kts_buf *b, int64_t need) {
    return KTS_LIKELY(need <= b->cap) ? KTS_OK : enlarge(w, b, need);
}

static int has_offsets(const struct kts_avro_column *c) {
    return c->kind == KTS_AVRO_COLUMN_TEXT || c->kind == KTS_AVRO_COLUMN_LIST || c->kind == KTS_AVRO_COLUMN_MAP;
}

/* Makes the bitmap as large as the column has room, with all rows valid. */
static int valid_room(struct walk *w, struct kts_avro_column *c) {
    const int64_t before = c->valid.p == NULL ? 0 : c->valid.cap, need = (c->room + 7) >> 3;
    if (need <= before)
        return KTS_OK;
    if (enlarge(w, &c->valid, need) != KTS_OK)
        return KTS_FAILED;
    memset(c->valid.p + before, 0xFF, (size_t)(c->valid.cap - before));
    return KTS_OK;
}

static KTS_APART int rows_room(struct walk *w, struct kts_avro_column *c, int64_t rows) {
    int64_t room = c->room >= EXACT ? 2 * c->room : 0;
    if (room < rows)
        room = rows;
    if (room < LEAST_ROWS)
        room = LEAST_ROWS;
    if (room > INT32_MAX)
        room = INT32_MAX;
    if (rows > room)
        return refuse(w, 0, KTS_AVRO_WHY_FULL);
    if (c->width > 0 && bytes_room(w, &c->data, room * c->width) != KTS_OK)
        return KTS_FAILED;
    if (has_offsets(c)) {
        const int first = c->offsets.p == NULL;
        if (bytes_room(w, &c->offsets, 4 * (room + 1)) != KTS_OK)
            return KTS_FAILED;
        if (first)
            kts_offsets(&c->offsets)[0] = 0;
    }
    c->room = room;
    return c->valid.p == NULL ? KTS_OK : valid_room(w, c);
}

static inline int one_more(struct walk *w, struct kts_avro_column *c) {
    return KTS_LIKELY(c->rows < c->room) ? KTS_OK : rows_room(w, c, c->rows + 1);
}

static int put_null(struct walk *w, int32_t number) {
    struct kts_avro_column *c = w->columns + number;
    if (++w->made > MOST_CELLS)
        return refuse(w, w->node, KTS_AVRO_WHY_MANY);
    if (one_more(w, c) != KTS_OK || (c->valid.p == NULL && valid_room(w, c) != KTS_OK))
        return KTS_FAILED;
    if (has_offsets(c))
        kts_offsets(&c->offsets)[c->rows + 1] = kts_offsets(&c->offsets)[c->rows];
    else if (c->kind != KTS_AVRO_COLUMN_STRUCT)
        memset(c->data.p + c->rows * c->width, 0, (size_t)c->width);
    else
        for (int32_t i = 0; i < c->count; i++)
            if (put_null(w, c->children[i]) != KTS_OK)
                return KTS_FAILED;
    c->valid.p[c->rows >> 3] &= (uint8_t) ~(1u << (c->rows & 7));
    c->nulls += 1;
    c->rows += 1;
    return KTS_OK;
}

/* Forgets all that lies behind so many rows. */
static void take_back(struct kts_avro_column *columns, int32_t number, int64_t rows) {
    struct kts_avro_column *c = columns + number;
    int64_t below = rows;
    if (c->nulls)
        for (int64_t row = rows; row < c->rows; row++)
            if (!(c->valid.p[row >> 3] >> (row & 7) & 1)) {
                c->valid.p[row >> 3] |= (uint8_t)(1u << (row & 7));
                c->nulls -= 1;
            }
    c->rows = rows;
    if (has_offsets(c))
        below = kts_offsets(&c->offsets)[rows];
    if (c->kind == KTS_AVRO_COLUMN_TEXT)
        c->size = below;
    while (c->keys_twice > 0 && ((int64_t *)(void *)c->twice.p)[c->keys_twice - 1] >= rows)
        c->keys_twice -= 1;
    for (int32_t i = 0; i < c->count; i++)
        take_back(columns, c->children[i], below);
}

#define PUT(type, value)                                                                                               \
    do {                                                                                                               \
        struct kts_avro_column *const to = w->columns + n->column;                                                     \
        if (one_more(w, to) != KTS_OK)                                                                                 \
            return KTS_FAILED;                                                                                         \
        ((type *)(void *)to->data.p)[to->rows++] = (value);                                                            \
        return KTS_OK;                                                                                                 \
    } while (0)

static int put_text(struct walk *w, int32_t column, const uint8_t *p, int64_t size, const uint8_t *reach) {
    struct kts_avro_column *c = w->columns + column;
    const int64_t need = c->size + size;
    if (need > INT32_MAX)
        return refuse(w, w->node, KTS_AVRO_WHY_FULL);
    if (one_more(w, c) != KTS_OK || bytes_room(w, &c->data, need + KTS_SLACK) != KTS_OK)
        return KTS_FAILED;
    kts_copy(c->data.p + c->size, p, size, reach);
    c->size = need;
    kts_offsets(&c->offsets)[++c->rows] = (int32_t)need;
    return KTS_OK;
}

static int put_struct(struct walk *w, int32_t column) {
    struct kts_avro_column *c = w->columns + column;
    if (one_more(w, c) != KTS_OK)
        return KTS_FAILED;
    c->rows += 1;
    return KTS_OK;
}

/* --- what values consist of ------------------------------------------------------------------------------ */

/* A number in zigzag of up to `most` bytes. */
static KTS_APART int long_varint(struct walk *w, int32_t number, int most, int64_t *found) {
    const uint8_t *p = w->at;
    uint64_t made = 0;
    uint8_t byte = 0x80;
    for (int shift = 0; byte & 0x80; shift += 7) {
        if (p == w->end)
            return refuse(w, number, KTS_AVRO_WHY_CUT);
        if (shift == 7 * most)
            return refuse(w, number, KTS_AVRO_WHY_LONG_NUMBER);
        byte = *p++;
        if ((shift == 63 && (byte & 0x7F) > 1) || (most == 5 && shift == 28 && (byte & 0x7F) > 15))
            return refuse(w, number, KTS_AVRO_WHY_WIDE_NUMBER);
        made |= (uint64_t)(byte & 0x7F) << shift;
    }
    w->at = p;
    *found = (int64_t)((made >> 1) ^ (0 - (made & 1)));
    return KTS_OK;
}

static KTS_INLINE int varint(struct walk *w, int32_t number, int most, int64_t *found) {
    const uint8_t *p = w->at;
    if (KTS_LIKELY(w->end - p >= 4)) {
        uint32_t made = p[0];
        if (made < 0x80) {
            w->at = p + 1;
        } else if (p[1] < 0x80) {
            made = (made & 0x7F) | (uint32_t)p[1] << 7;
            w->at = p + 2;
        } else if (p[2] < 0x80) {
            made = (made & 0x7F) | (uint32_t)(p[1] & 0x7F) << 7 | (uint32_t)p[2] << 14;
            w->at = p + 3;
        } else {
            return long_varint(w, number, most, found);
        }
        *found = (int32_t)((made >> 1) ^ (0 - (made & 1)));
        return KTS_OK;
    }
    return long_varint(w, number, most, found);
}

/* So many bytes, which are passed over. */
static KTS_INLINE int take(struct walk *w, int32_t number, int64_t size, const uint8_t **p) {
    *p = w->at;
    if (size < 0 || size > w->end - w->at)
        return refuse(w, number, KTS_AVRO_WHY_LENGTH);
    w->at += size;
    return KTS_OK;
}

static KTS_INLINE int take_sized(struct walk *w, int32_t number, const uint8_t **p, int64_t *size) {
    *p = w->at;
    return varint(w, number, 10, size) == KTS_OK ? take(w, number, *size, p) : KTS_FAILED;
}

static KTS_INLINE int flag(struct walk *w, int32_t number, uint8_t *found) {
    const uint8_t *p;
    if (take(w, number, 1, &p) != KTS_OK)
        return KTS_FAILED;
    *found = *p;
    if (*p > 1) {
        w->at = p;
        return refuse(w, number, KTS_AVRO_WHY_FLAG);
    }
    return KTS_OK;
}

static int put_string(struct walk *w, int32_t number, int32_t column) {
    const uint8_t *p;
    int64_t size;
    if (take_sized(w, number, &p, &size) != KTS_OK)
        return KTS_FAILED;
    if (!kts_is_utf8(p, size)) {
        w->at = p;
        return refuse(w, number, KTS_AVRO_WHY_TEXT);
    }
    return put_text(w, column, p, size, w->reach);
}

static int put_time(struct walk *w, int32_t number, int64_t found) {
    const struct kts_avro_node *n = w->nodes + number;
    if (found < n->low || found > n->high)
        return refuse(w, number, KTS_AVRO_WHY_TIME);
    if (n->factor > 0)
        found *= n->factor;
    else /* to the past, as all times are cut */
        found = found / -n->factor - (found % -n->factor < 0);
    PUT(int64_t, found);
}

/* A number of two's complement, high byte first, as 16 bytes, low byte first. */
static int put_decimal(struct walk *w, int32_t number, const uint8_t *p, int64_t size) {
    const struct kts_avro_node *n = w->nodes + number;
    struct kts_avro_column *c = w->columns + n->column;
    const uint8_t sign = size > 0 && p[0] >> 7 ? 0xFF : 0;
    uint8_t made[16];
    uint64_t half[2], carry;
    uint32_t limbs[4];
    for (; size > 16 && *p == sign; size--)
        p++;
    if (size > 16)
        return refuse(w, number, KTS_AVRO_WHY_DIGITS);
    memset(made, sign, 16);
    for (int64_t i = 0; i < size; i++)
        made[i] = p[size - 1 - i];
    if ((made[15] ^ sign) >> 7) /* of 16 bytes behind a sign, which they do not have */
        return refuse(w, number, KTS_AVRO_WHY_DIGITS);
    memcpy(half, made, 16);
    if (sign) {
        half[0] = ~half[0] + 1;
        half[1] = ~half[1] + (half[0] == 0);
    }
    if (half[1] > n->limit[1] || (half[1] == n->limit[1] && half[0] >= n->limit[0]))
        return refuse(w, number, KTS_AVRO_WHY_DIGITS);
    memcpy(limbs, half, 16);
    for (int64_t shift = 0; shift < n->factor; shift++) {
        carry = 0;
        for (int i = 0; i < 4; i++) {
            carry += (uint64_t)limbs[i] * 10;
            limbs[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    for (int64_t shift = 0; shift > n->factor; shift--) {
        carry = 0;
        for (int i = 3; i >= 0; i--) {
            carry = carry << 32 | limbs[i];
            limbs[i] = (uint32_t)(carry / 10);
            carry %= 10;
        }
        if (carry)
            return refuse(w, number, KTS_AVRO_WHY_ROUNDED);
    }
    memcpy(half, limbs, 16);
    if (sign) {
        half[0] = ~half[0] + 1;
        half[1] = ~half[1] + (half[0] == 0);
    }
    if (one_more(w, c) != KTS_OK)
        return KTS_FAILED;
    memcpy(c->data.p + 16 * c->rows, half, 16);
    c->rows += 1;
    return KTS_OK;
}

static int put_symbol(struct walk *w, int32_t number) {
    const struct kts_avro_node *n = w->nodes + number;
    int64_t found;
    int32_t place;
    if (varint(w, number, 5, &found) != KTS_OK)
        return KTS_FAILED;
    if (found < 0 || found >= n->size)
        return refuse(w, number, KTS_AVRO_WHY_SYMBOL);
    if (n->column < 0)
        return KTS_OK;
    place = n->children[found];
    if (place < 0)
        return refuse(w, number, KTS_AVRO_WHY_UNKNOWN_SYMBOL);
    return put_text(w, n->column, n->bytes + n->ends[place], n->ends[place + 1] - n->ends[place],
                    n->bytes + n->ends[place + 1]);
}

/* --- what contains others -------------------------------------------------------------------------------- */

static int by_size_and_bytes(const void *a, const void *b) {
    const struct span *one = a, *other = b;
    if (one->size != other->size)
        return one->size < other->size ? -1 : 1;
    return one->size == 0 ? 0 : memcmp(one->p, other->p, (size_t)one->size);
}

/* Notes a map that has a key twice. Many keys are sorted, because an attacker chooses them. */
static int look_for_twins(struct walk *w, int32_t column, int64_t first) {
    struct kts_avro_column *c = w->columns + column;
    const struct kts_avro_column *keys = w->columns + c->children[0];
    const int32_t *edges = kts_offsets((struct kts_buf *)&keys->offsets) + first;
    const int64_t count = keys->rows - first;
    struct span few[FEW_KEYS], *spans = few;
    int twins = 0;
    if (count < 2)
        return KTS_OK;
    if (count > FEW_KEYS) {
        if (bytes_room(w, &w->spans, count * (int64_t)sizeof *spans) != KTS_OK)
            return KTS_FAILED;
        spans = (struct span *)(void *)w->spans.p;
    }
    for (int64_t i = 0; i < count; i++) {
        spans[i].p = keys->data.p + edges[i];
        spans[i].size = edges[i + 1] - edges[i];
    }
    if (count > FEW_KEYS) {
        qsort(spans, (size_t)count, sizeof *spans, by_size_and_bytes);
        for (int64_t i = 1; i < count && !twins; i++)
            twins = by_size_and_bytes(spans + i - 1, spans + i) == 0;
    } else {
        for (int64_t i = 1; i < count; i++)
            for (int64_t j = 0; j < i; j++)
                twins |= by_size_and_bytes(spans + i, spans + j) == 0;
    }
    if (!twins)
        return KTS_OK;
    if (bytes_room(w, &c->twice, 8 * (c->keys_twice + 1)) != KTS_OK)
        return KTS_FAILED;
    ((int64_t *)(void *)c->twice.p)[c->keys_twice++] = c->rows;
    return KTS_OK;
}

/* The items of an array or a map, in blocks whose counts and sizes are claims. */
static int read_blocks(struct walk *w, int32_t number) {
    const struct kts_avro_node *n = w->nodes + number;
    const int is_map = n->op == KTS_AVRO_MAP;
    struct kts_avro_column *c = n->column < 0 ? NULL : w->columns + n->column;
    const int64_t first = c == NULL ? 0 : w->columns[c->children[0]].rows;
    const uint8_t *begin, *block, *key;
    int64_t count, size, key_size;
    for (;;) {
        if (varint(w, number, 10, &count) != KTS_OK)
            return KTS_FAILED;
        if (count == 0)
            break;
        size = -1;
        if (count < 0) {
            if (count == INT64_MIN)
                return refuse(w, number, KTS_AVRO_WHY_COUNT);
            count = -count;
            if (varint(w, number, 10, &size) != KTS_OK)
                return KTS_FAILED;
            if (size < 0 || size > w->end - w->at)
                return refuse(w, number, KTS_AVRO_WHY_BLOCK);
        }
        block = w->at;
        for (; count > 0; count--) {
            begin = w->at;
            if (is_map && (c == NULL ? take_sized(w, number, &key, &key_size) : put_string(w, number, c->children[0])))
                return KTS_FAILED;
            if (read_value(w, n->children[0]) != KTS_OK)
                return KTS_FAILED;
            if (w->at == begin && ++w->empty > MOST_EMPTY)
                return refuse(w, number, KTS_AVRO_WHY_NOTHINGS);
        }
        if (size >= 0 && w->at - block != size)
            return refuse(w, number, KTS_AVRO_WHY_BLOCK_SIZE);
    }
    if (c == NULL)
        return KTS_OK;
    if (is_map && look_for_twins(w, n->column, first) != KTS_OK)
        return KTS_FAILED;
    if (one_more(w, c) != KTS_OK)
        return KTS_FAILED;
    kts_offsets(&c->offsets)[++c->rows] = (int32_t)w->columns[c->children[0]].rows;
    return KTS_OK;
}

static int read_fields(struct walk *w, const struct kts_avro_node *n) {
    for (int32_t i = 0; i < n->count; i++)
        if (read_value(w, n->children[i]) != KTS_OK)
            return KTS_FAILED;
    return n->column < 0 ? KTS_OK : put_struct(w, n->column);
}

static int read_branch(struct walk *w, int32_t number) {
    const struct kts_avro_node *n = w->nodes + number;
    int64_t branch;
    if (varint(w, number, 10, &branch) != KTS_OK)
        return KTS_FAILED;
    if (branch < 0 || branch >= n->count)
        return refuse(w, number, KTS_AVRO_WHY_BRANCH);
    return read_value(w, n->children[branch]);
}

/* A value of one of several types: the member of a struct whose others are null. */
static int read_member(struct walk *w, const struct kts_avro_node *n) {
    const struct kts_avro_column *c = w->columns + n->column;
    for (int32_t i = 0; i < c->count; i++)
        if (i != n->size && put_null(w, c->children[i]) != KTS_OK)
            return KTS_FAILED;
    return read_value(w, n->children[0]) == KTS_OK ? put_struct(w, n->column) : KTS_FAILED;
}

/* A value that the writer did not write: that of the reader's schema, in Avro. */
static int read_default(struct walk *w, const struct kts_avro_node *n) {
    const uint8_t *at = w->at, *end = w->end, *reach = w->reach;
    const int64_t cells = w->cells, most = w->most;
    int status;
    w->at = n->bytes;
    w->end = w->reach = n->bytes + n->ends[0];
    w->most = INT64_MAX;
    status = read_value(w, n->children[0]);
    w->made += w->cells - cells + 1;
    w->cells = cells;
    w->most = most;
    w->at = at;
    w->end = end;
    w->reach = reach;
    if (status == KTS_OK && w->made > MOST_CELLS)
        return refuse(w, (int32_t)(n - w->nodes), KTS_AVRO_WHY_MANY);
    return status;
}

/* A place that contains others. */
static int read_within(struct walk *w, int32_t number) {
    const struct kts_avro_node *n = w->nodes + number;
    int status;
    w->cells += 1 + (n->op == KTS_AVRO_RECORD ? n->size : 0);
    if (w->cells > w->most)
        return refuse(w, number, KTS_AVRO_WHY_CELLS);
    w->depth += 1;
    if (w->depth > DEEPEST)
        return refuse(w, number, KTS_AVRO_WHY_DEEP);
    if (n->op == KTS_AVRO_UNION)
        status = read_branch(w, number);
    else if (n->op == KTS_AVRO_RECORD)
        status = read_fields(w, n);
    else if (n->op == KTS_AVRO_MEMBER)
        status = read_member(w, n);
    else
        status = read_blocks(w, number);
    w->depth -= 1;
    return status;
}

static int read_value(struct walk *w, int32_t number) {
    const struct kts_avro_node *const n = w->nodes + number;
    const uint8_t *p;
    int64_t found;
    uint8_t truth;
    int32_t narrow;
    float single;
    double number64;
    switch (n->op) {
    case KTS_AVRO_BOOLEAN:
        if (flag(w, number, &truth) != KTS_OK)
            return KTS_FAILED;
        PUT(uint8_t, truth);
    case KTS_AVRO_INT:
        if (varint(w, number, 5, &found) != KTS_OK)
            return KTS_FAILED;
        narrow = (int32_t)found;
        PUT(int32_t, narrow);
    case KTS_AVRO_INT_LONG:
        if (varint(w, number, 5, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(int64_t, found);
    case KTS_AVRO_LONG:
        if (varint(w, number, 10, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(int64_t, found);
    case KTS_AVRO_INT_FLOAT:
        if (varint(w, number, 5, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(float, (float)found);
    case KTS_AVRO_LONG_FLOAT:
        if (varint(w, number, 10, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(float, (float)found);
    case KTS_AVRO_INT_DOUBLE:
        if (varint(w, number, 5, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(double, (double)found);
    case KTS_AVRO_LONG_DOUBLE:
        if (varint(w, number, 10, &found) != KTS_OK)
            return KTS_FAILED;
        PUT(double, (double)found);
    case KTS_AVRO_FLOAT: /* as bits: a NaN keeps its own */
        if (take(w, number, 4, &p) != KTS_OK)
            return KTS_FAILED;
        memcpy(&narrow, p, 4);
        PUT(int32_t, narrow);
    case KTS_AVRO_DOUBLE:
        if (take(w, number, 8, &p) != KTS_OK)
            return KTS_FAILED;
        memcpy(&found, p, 8);
        PUT(int64_t, found);
    case KTS_AVRO_FLOAT_DOUBLE:
        if (take(w, number, 4, &p) != KTS_OK)
            return KTS_FAILED;
        memcpy(&single, p, 4);
        number64 = (double)single;
        PUT(double, number64);
    case KTS_AVRO_TIME_INT:
        return varint(w, number, 5, &found) == KTS_OK ? put_time(w, number, found) : KTS_FAILED;
    case KTS_AVRO_TIME_LONG:
        return varint(w, number, 10, &found) == KTS_OK ? put_time(w, number, found) : KTS_FAILED;
    case KTS_AVRO_STRING:
        return put_string(w, number, n->column);
    case KTS_AVRO_BYTES:
        return take_sized(w, number, &p, &found) == KTS_OK ? put_text(w, n->column, p, found, w->reach) : KTS_FAILED;
    case KTS_AVRO_FIXED:
        return take(w, number, n->size, &p) == KTS_OK ? put_text(w, n->column, p, n->size, w->reach) : KTS_FAILED;
    case KTS_AVRO_DECIMAL:
        return take_sized(w, number, &p, &found) == KTS_OK ? put_decimal(w, number, p, found) : KTS_FAILED;
    case KTS_AVRO_DECIMAL_FIXED:
        return take(w, number, n->size, &p) == KTS_OK ? put_decimal(w, number, p, n->size) : KTS_FAILED;
    case KTS_AVRO_ENUM:
    case KTS_AVRO_SKIP_ENUM:
        return put_symbol(w, number);
    case KTS_AVRO_ARRAY:
    case KTS_AVRO_MAP:
    case KTS_AVRO_UNION:
    case KTS_AVRO_MEMBER:
    case KTS_AVRO_RECORD:
        return read_within(w, number);
    case KTS_AVRO_DEFAULT:
        return read_default(w, n);
    case KTS_AVRO_NOTHING:
        w->node = number;
        return n->column < 0 ? KTS_OK : put_null(w, n->column);
    case KTS_AVRO_SKIP_BOOLEAN:
        return flag(w, number, &truth);
    case KTS_AVRO_SKIP_INT:
        return varint(w, number, 5, &found);
    case KTS_AVRO_SKIP_LONG:
        return varint(w, number, 10, &found);
    case KTS_AVRO_SKIP_BYTES:
        return take_sized(w, number, &p, &found);
    case KTS_AVRO_SKIP_FIXED:
        return take(w, number, n->size, &p);
    default:
        return refuse(w, number, KTS_AVRO_WHY_NO_RESOLUTION);
    }
}

/* --- rows ------------------------------------------------------------------------------------------------ */

/* Room for so many rows, also of the fields of structs, which have as many. */
static int reserve(struct walk *w, int32_t number, int64_t rows) {
    struct kts_avro_column *c = w->columns + number;
    if (rows_room(w, c, rows) != KTS_OK)
        return KTS_FAILED;
    for (int32_t i = 0; i < c->count; i++)
        if (reserve(w, c->children[i], c->kind == KTS_AVRO_COLUMN_STRUCT ? rows : 0) != KTS_OK)
            return KTS_FAILED;
    return KTS_OK;
}

static int note(struct walk *w, struct kts_avro_job *job, int64_t row, int32_t program, int64_t position) {
    struct kts_avro_refused found = {row, position, w->why, program, w->node, 0};
    if (bytes_room(w, &job->refused, (job->refused_count + 1) * (int64_t)sizeof found) != KTS_OK)
        return KTS_FAILED;
    ((struct kts_avro_refused *)(void *)job->refused.p)[job->refused_count++] = found;
    return KTS_OK;
}

static int read_row(struct walk *w, struct kts_avro_job *job, int64_t row) {
    const int32_t code = job->codes == NULL ? 0 : job->codes[row];
    const int64_t bit = job->valid_first + row;
    const uint8_t *first = job->data + job->edges[row];
    int status;
    w->cells = w->made = w->empty = 0;
    w->depth = w->why = w->node = 0;
    if (code < 0 || (job->valid != NULL && !(job->valid[bit >> 3] >> (bit & 7) & 1)))
        return put_null(w, 0);
    w->end = job->data + job->edges[row + 1];
    if (job->heads != NULL)
        first += job->heads[row];
    w->nodes = job->programs[code].nodes;
    w->at = first;
    w->most = MOST_EMPTY + 16 * (w->end - first);
    status = read_value(w, job->programs[code].root);
    if (status == KTS_OK && w->at != w->end)
        status = refuse(w, job->programs[code].root, KTS_AVRO_WHY_REST);
    if (status == KTS_OK || w->why == KTS_AVRO_WHY_MEMORY || w->why == KTS_AVRO_WHY_FULL)
        return status;
    take_back(job->columns, 0, row);
    if (note(w, job, row, code, w->at - first) != KTS_OK)
        return KTS_FAILED;
    w->made = 0;
    return put_null(w, 0);
}

static void pack_flags(struct kts_avro_column *c) {
    uint8_t byte = 0;
    for (int64_t row = 0; row < c->rows; row++) {
        byte |= (uint8_t)(c->data.p[row] << (row & 7));
        if ((row & 7) == 7 || row + 1 == c->rows) {
            c->data.p[row >> 3] = byte;
            byte = 0;
        }
    }
}

int kts_avro_read(struct kts_avro_job *job) {
    struct walk w = {0};
    int status;
    w.columns = job->columns;
    w.reach = job->data + job->data_size;
    status = reserve(&w, 0, job->rows);
    for (int64_t row = 0; row < job->rows && status == KTS_OK; row++) {
        status = read_row(&w, job, row);
        if (job->stop && job->refused_count)
            break;
    }
    free(w.spans.p);
    if (status != KTS_OK)
        return w.why == KTS_AVRO_WHY_FULL ? KTS_FULL : KTS_FAILED;
    for (int32_t i = 0; i < job->column_count; i++)
        if (job->columns[i].kind == KTS_AVRO_COLUMN_FLAGS)
            pack_flags(job->columns + i);
    return KTS_OK;
}

void kts_avro_free(struct kts_avro_job *job) {
    for (int32_t i = 0; i < job->column_count; i++) {
        free(job->columns[i].data.p);
        free(job->columns[i].offsets.p);
        free(job->columns[i].valid.p);
        free(job->columns[i].twice.p);
    }
    free(job->refused.p);
}

void kts_avro_ids(const int32_t *edges, const uint8_t *data, int64_t rows, int64_t *ids) {
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *p = data + edges[row];
        ids[row] = -1;
        if (edges[row + 1] - edges[row] >= 5 && p[0] == 0)
            ids[row] = (int64_t)p[1] << 24 | (int64_t)p[2] << 16 | (int64_t)p[3] << 8 | p[4];
    }
}
