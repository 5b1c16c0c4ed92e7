/* Avro values become the buffers of Arrow columns, by a program that was made of the schemas of writer and reader. */
#ifndef KTS_AVRO_H
#define KTS_AVRO_H

#include "columns.h"

/* What the memory of a column is. */
enum kts_avro_kind {
    KTS_AVRO_COLUMN_FLAGS,  /* a byte for each row, packed to a bitmap at the end */
    KTS_AVRO_COLUMN_FIXED,  /* `width` bytes for each row */
    KTS_AVRO_COLUMN_TEXT,   /* offsets and bytes */
    KTS_AVRO_COLUMN_LIST,   /* offsets; one child */
    KTS_AVRO_COLUMN_MAP,    /* offsets; the children are keys and values */
    KTS_AVRO_COLUMN_STRUCT, /* children only */
    KTS_AVRO_COLUMN_KINDS
};

struct kts_avro_column {
    int32_t kind;
    int32_t width;
    int32_t count; /* of children */
    const int32_t *children;
    int64_t rows;
    int64_t room; /* rows that the buffers hold */
    int64_t nulls;
    int64_t size;          /* of TEXT: bytes in `data` */
    int64_t keys_twice;    /* of MAP: rows in `twice` */
    struct kts_buf data;
    struct kts_buf offsets;
    struct kts_buf valid; /* a bitmap, from the first null on */
    struct kts_buf twice; /* the rows, each 8 bytes, in which a key is there twice */
};

/* What is done at a place of the writer's schema. SKIP: no column wants it. A_B: the writer has A, the reader B. */
#define KTS_AVRO_OPS(OP)                                                                                               \
    OP(BOOLEAN) OP(INT) OP(LONG) OP(FLOAT) OP(DOUBLE) OP(INT_LONG) OP(INT_FLOAT) OP(INT_DOUBLE) OP(LONG_FLOAT)         \
    OP(LONG_DOUBLE) OP(FLOAT_DOUBLE) OP(TIME_INT) OP(TIME_LONG) OP(STRING) OP(BYTES) OP(FIXED) OP(DECIMAL)             \
    OP(DECIMAL_FIXED) OP(ENUM) OP(ARRAY) OP(MAP) OP(UNION) OP(MEMBER) OP(RECORD) OP(DEFAULT) OP(NOTHING) OP(REFUSED)   \
    OP(SKIP_BOOLEAN) OP(SKIP_INT) OP(SKIP_LONG) OP(SKIP_BYTES) OP(SKIP_FIXED) OP(SKIP_ENUM)

enum kts_avro_op {
#define KTS_AVRO_OP(name) KTS_AVRO_##name,
    KTS_AVRO_OPS(KTS_AVRO_OP)
#undef KTS_AVRO_OP
    KTS_AVRO_OP_COUNT
};
extern const char *const kts_avro_op_names[];

struct kts_avro_node {
    int32_t op;
    int32_t column;          /* what it fills; -1: nothing */
    int32_t count;           /* of children */
    const int32_t *children; /* fields, branches, the item; of ENUM: the place of a symbol in `bytes`, or -1 */
    int64_t size;            /* of FIXED; of ENUM the number of symbols; of MEMBER the number of the member; of RECORD
                              * how many fields the writer has */
    int64_t factor;          /* of TIME: the unit of the column in the writer's, negative to divide; of DECIMAL: how many
                              * digits more the column has behind the point */
    int64_t low, high;       /* of TIME: the least and the greatest number */
    uint64_t limit[2];       /* of DECIMAL: the first number, low half and high half, that has too many digits */
    const uint8_t *bytes;    /* of ENUM: symbols; of DEFAULT: a value in Avro */
    const int32_t *ends;     /* of ENUM: where each symbol ends, behind a 0; of DEFAULT: where the value does */
};

/* Why a value is refused, and the words. */
#define KTS_AVRO_REASONS(REASON)                                                                                       \
    REASON(SOUND, "")                                                                                                  \
    REASON(CUT, "it ends within a number")                                                                             \
    REASON(LONG_NUMBER, "a number has too many bytes")                                                                 \
    REASON(WIDE_NUMBER, "a number is out of range")                                                                    \
    REASON(LENGTH, "a length exceeds the bytes left")                                                                  \
    REASON(BLOCK, "a block exceeds the bytes left")                                                                    \
    REASON(COUNT, "a count is out of range")                                                                           \
    REASON(BLOCK_SIZE, "a block has another size than it says")                                                        \
    REASON(NOTHINGS, "more than 65,536 items take no bytes")                                                           \
    REASON(FLAG, "a boolean is neither 0 nor 1")                                                                       \
    REASON(SYMBOL, "an enum has no such symbol")                                                                       \
    REASON(UNKNOWN_SYMBOL, "the reader's enum lacks the symbol, and has no default")                                   \
    REASON(BRANCH, "a union has no such branch")                                                                       \
    REASON(TEXT, "a string is not UTF-8")                                                                              \
    REASON(TIME, "a time is out of range")                                                                             \
    REASON(DIGITS, "a decimal has more digits than its precision")                                                     \
    REASON(ROUNDED, "a decimal has digits behind the point that the column lacks")                                     \
    REASON(DEEP, "it is more than 500 levels deep")                                                                    \
    REASON(CELLS, "it has too many fields for its bytes")                                                              \
    REASON(MANY, "it has more than 16,777,216 fields and items")                                                       \
    REASON(REST, "bytes follow the Avro value")                                                                        \
    REASON(NO_RESOLUTION, "")                                                                                          \
    REASON(FULL, "")                                                                                                   \
    REASON(MEMORY, "")

enum kts_avro_reason {
#define KTS_AVRO_REASON(name, words) KTS_AVRO_WHY_##name,
    KTS_AVRO_REASONS(KTS_AVRO_REASON)
#undef KTS_AVRO_REASON
    KTS_AVRO_REASON_COUNT
};
extern const char *const kts_avro_words[];

struct kts_avro_refused {
    int64_t row;
    int64_t position; /* in the value */
    int32_t reason;
    int32_t program;
    int32_t node;
    int32_t unused;
};

struct kts_avro_program {
    const struct kts_avro_node *nodes;
    int32_t root;
};

struct kts_avro_job {
    struct kts_avro_column *columns; /* the first is that of the value */
    int32_t column_count;
    const struct kts_avro_program *programs;
    int64_t rows;
    const int32_t *edges; /* row i lies between edges i and i + 1 */
    const uint8_t *data;
    int64_t data_size;
    const uint8_t *valid; /* a bitmap, or NULL */
    int64_t valid_first;  /* the bit of row 0 */
    const int32_t *codes; /* of each row its program, -1: null; or NULL: the first program */
    const uint8_t *heads; /* bytes of each row before its value; or NULL */
    int stop;             /* at the first refusal */
    struct kts_buf refused;
    int64_t refused_count;
};

/* Fills the columns. KTS_OK; KTS_FULL: a column passes 2 GiB; KTS_FAILED: there is no memory. */
int kts_avro_read(struct kts_avro_job *job);
void kts_avro_free(struct kts_avro_job *job); /* the columns' memory, and that of the refusals */

/* The id of the schema in front of each value, as Confluent's serialisers put it there, or -1. */
void kts_avro_ids(const int32_t *edges, const uint8_t *data, int64_t rows, int64_t *ids);

#endif
