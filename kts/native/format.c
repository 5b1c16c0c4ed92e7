#include "format.h"

int kts_varint_slow(const uint8_t **at, const uint8_t *end, int32_t *value) {
    const uint8_t *p = *at;
    uint32_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (p >= end)
            return KTS_VARINT_CUT;
        raw |= (uint32_t)(p[0] & 0x7F) << shift;
        if (*p++ < 0x80) {
            *at = p;
            *value = (int32_t)((raw >> 1) ^ (0 - (raw & 1)));
            return KTS_VARINT_OK;
        }
    }
    return KTS_VARINT_LONG;
}

int kts_varlong_slow(const uint8_t **at, const uint8_t *end, int64_t *value) {
    const uint8_t *p = *at;
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (p >= end)
            return KTS_VARINT_CUT;
        raw |= (uint64_t)(p[0] & 0x7F) << shift;
        if (*p++ < 0x80) {
            *at = p;
            *value = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
            return KTS_VARINT_OK;
        }
    }
    return KTS_VARINT_LONG;
}
