/* Reasons for damage, or for refusing a set of records. kts/errors.py (REASONS) has the messages and Kafka's errors,
 * under the same names without the KTS_.
 */
#ifndef KTS_REFUSALS_H
#define KTS_REFUSALS_H

#define KTS_REASONS(REASON)                                                                                            \
    /* entries */                                                                                                      \
    REASON(BAD_SIZE)                                                                                                   \
    REASON(SIZE_OVERFLOW)                                                                                              \
    REASON(BAD_MAGIC)                                                                                                  \
    REASON(PROPOSED_MAGIC)                                                                                             \
    REASON(SHORT_BATCH)                                                                                                \
    REASON(SHORT_MESSAGE)                                                                                              \
    REASON(TOO_LARGE)                                                                                                  \
    REASON(BAD_CRC)                                                                                                    \
    REASON(BAD_CODEC)                                                                                                  \
    REASON(PAYLOAD)                                                                                                    \
    REASON(SECOND_FRAME)                                                                                               \
    /* a set from a producer */                                                                                        \
    REASON(BASE_OFFSET)                                                                                                \
    REASON(NO_BATCH)                                                                                                   \
    REASON(SECOND_BATCH)                                                                                               \
    REASON(OTHER_MAGIC)                                                                                                \
    REASON(OFFSET_RANGE)                                                                                               \
    REASON(BAD_COUNT)                                                                                                  \
    REASON(COUNT_RANGE)                                                                                                \
    REASON(CONTROL_BATCH)                                                                                              \
    REASON(NO_SEQUENCE)                                                                                                \
    REASON(TRANSACTION)                                                                                                \
    REASON(IDEMPOTENCE)                                                                                                \
    /* the records of a batch */                                                                                       \
    REASON(NEGATIVE_COUNT)                                                                                             \
    REASON(COUNT_LEFT)                                                                                                 \
    REASON(RECORDS_LEFT)                                                                                               \
    REASON(BAD_RECORD)                                                                                                 \
    REASON(BAD_LENGTH)                                                                                                 \
    REASON(RECORD_LENGTH)                                                                                              \
    REASON(RECORD_END)                                                                                                 \
    REASON(RECORD_REST)                                                                                                \
    REASON(VARINT)                                                                                                     \
    REASON(KEY)                                                                                                        \
    REASON(VALUE)                                                                                                      \
    REASON(HEADER_COUNT)                                                                                               \
    REASON(HEADER_KEY)                                                                                                 \
    REASON(HEADER_VALUE)                                                                                               \
    REASON(DELTAS)                                                                                                     \
    /* messages and wrappers */                                                                                        \
    REASON(BAD_FIELDS)                                                                                                 \
    REASON(MESSAGE_KEY)                                                                                                \
    REASON(MESSAGE_VALUE)                                                                                              \
    REASON(MESSAGE_REST)                                                                                               \
    REASON(WRAPPER_NULL)                                                                                               \
    REASON(WRAPPER_EMPTY)                                                                                              \
    REASON(WRAPPER_OFFSET)                                                                                             \
    REASON(WRAPPER_CODEC)                                                                                              \
    REASON(INNER_SIZE)                                                                                                 \
    REASON(SHORT_INNER)                                                                                                \
    REASON(INNER_MAGIC)                                                                                                \
    REASON(UNKNOWN_INNER_MAGIC)                                                                                        \
    REASON(NESTED)                                                                                                     \
    REASON(COMPRESSED)                                                                                                 \
    REASON(INNER_CRC)                                                                                                  \
    REASON(EMPTIED)                                                                                                    \
    /* policy: the set, then what is wrong with one record */                                                          \
    REASON(POLICY)                                                                                                     \
    REASON(NO_KEY)                                                                                                     \
    REASON(OUT_OF_RANGE)                                                                                               \
    REASON(APPEND_TIME)                                                                                                \
    REASON(WRONG_MAGIC)                                                                                                \
    REASON(NO_TIME)                                                                                                    \
    /* a set that cannot be written in the topic's format */                                                           \
    REASON(NEGATIVE)                                                                                                   \
    REASON(HEADERS)                                                                                                    \
    REASON(SKIPPED)                                                                                                    \
    REASON(WRITER_TRANSACTION)                                                                                         \
    REASON(PRODUCER_STATE)                                                                                             \
    REASON(CODEC_FORMAT)                                                                                               \
    REASON(NOTHING)

#define KTS_REASON(name) KTS_##name,
enum kts_reason { KTS_FINE, KTS_REASONS(KTS_REASON) KTS_NO_MEMORY, KTS_COLUMN_FULL };
#undef KTS_REASON

extern const char *const kts_reasons[]; /* their names */

#endif
