/* Kafka's codecs, in the order of their numbers: name, the first magic whose entries carry it, and whether Kafka checks
 * the count of a batch before it reads the first bytes of the codec's data. kts/compression.py (CODECS) has the rest.
 */
#ifndef KTS_CODECS_H
#define KTS_CODECS_H

#define KTS_CODECS(CODEC)                                                                                              \
    CODEC(NONE, 0, 0)                                                                                                  \
    CODEC(GZIP, 0, 0)                                                                                                  \
    CODEC(SNAPPY, 0, 0)                                                                                                \
    CODEC(LZ4, 0, 0)                                                                                                   \
    CODEC(ZSTD, 2, 1) /* KIP-110 */

enum kts_codec {
#define KTS_CODEC(name, magic, count_first) KTS_##name,
    KTS_CODECS(KTS_CODEC)
#undef KTS_CODEC
    KTS_CODECS_END
};

enum {
#define KTS_IN_MESSAGES(name, magic, count_first) +((magic) < 2)
#define KTS_COUNT_BIT(name, magic, count_first) | (count_first) << KTS_##name
    KTS_LAST_CODEC = KTS_CODECS_END - 1,
    KTS_LAST_OF_MESSAGES = 0 KTS_CODECS(KTS_IN_MESSAGES) - 1, /* of magic 0 and 1, and so the last that 0.10.2 knows */
    KTS_COUNT_FIRST = 0 KTS_CODECS(KTS_COUNT_BIT)           /* a bit for each codec */
#undef KTS_IN_MESSAGES
#undef KTS_COUNT_BIT
};

extern const char *const kts_codec_names[]; /* in capitals */

static inline int kts_carries(int magic, int codec) { return magic >= 2 || codec <= KTS_LAST_OF_MESSAGES; }

#endif
