/* The two checksums of Kafka's formats: CRC-32C (record batches) and CRC-32 (messages of magic 0 and 1). */
#ifndef KTS_CRC_H
#define KTS_CRC_H

#include "format.h"

#define KTS_FOLDED_LEAST 20 /* bytes; folding fewer does not pay */

extern int kts_crc_fast;     /* the processor has instructions for it */
void kts_crc_init(void);     /* call first: detects the processor's features */
uint32_t kts_crc32c_fast(const uint8_t *p, size_t n);
uint32_t kts_crc32c_slow(const uint8_t *p, size_t n);
uint32_t kts_crc32_fast(const uint8_t *p, size_t n);
uint32_t kts_crc32_slow(const uint8_t *p, size_t n);

static inline uint32_t kts_crc32c(const uint8_t *p, size_t n) {
    return KTS_LIKELY(kts_crc_fast && n >= KTS_FOLDED_LEAST) ? kts_crc32c_fast(p, n) : kts_crc32c_slow(p, n);
}
static inline uint32_t kts_crc32(const uint8_t *p, size_t n) {
    return KTS_LIKELY(kts_crc_fast && n >= KTS_FOLDED_LEAST) ? kts_crc32_fast(p, n) : kts_crc32_slow(p, n);
}

/* The stored and the computed CRC of the whole entry at e. */
static inline uint32_t kts_stored_crc(const uint8_t *e, int batch) {
    return kts_be32(e + (batch ? KTS_BATCH_CRC_AT : KTS_MESSAGE_CRC_AT));
}
static inline uint32_t kts_entry_crc(const uint8_t *e, int64_t size, int batch) {
    return batch ? kts_crc32c(e + KTS_BATCH_CRC_FROM, (size_t)(size - KTS_BATCH_CRC_FROM))
                 : kts_crc32(e + KTS_MESSAGE_CRC_FROM, (size_t)(size - KTS_MESSAGE_CRC_FROM));
}

#endif
