/* Which bytes are UTF-8. */
#ifndef KTS_UTF8_H
#define KTS_UTF8_H

#include "platform.h"

/* Size of the well-formed sequence at p (2 to 4; a lead byte above 7f), or minus the size of the ill-formed part that one
 * U+FFFD replaces (Unicode's maximal subpart, except for surrogates; as in Java). */
static inline int kts_utf8_step(const uint8_t *p, int64_t n) {
    const uint8_t b = p[0];
    uint8_t low = 0x80, high = 0xBF;
    int need, i;
    if (b >= 0xC2 && b <= 0xDF) {
        need = 2;
    } else if (b >= 0xE0 && b <= 0xEF) {
        need = 3;
        if (b == 0xE0)
            low = 0xA0;
        else if (b == 0xED)
            high = 0x9F;
    } else if (b >= 0xF0 && b <= 0xF4) {
        need = 4;
        if (b == 0xF0)
            low = 0x90;
        else if (b == 0xF4)
            high = 0x8F;
    } else {
        return -1;
    }
    if (b == 0xED && n > 1 && p[1] >= 0xA0 && p[1] <= 0xBF)
        return n > 2 && p[2] >> 6 == 2 ? -3 : -2; /* a surrogate: one U+FFFD for all of it, as in Java */
    for (i = 1; i < need; i++) {
        if (i >= n || p[i] < low || p[i] > high)
            return -i;
        low = 0x80;
        high = 0xBF;
    }
    return need;
}

/* Length of the longest valid UTF-8 prefix. */
static inline int64_t kts_utf8_valid(const uint8_t *p, int64_t n) {
    int64_t i = 0;
    uint64_t eight;
    int step;
    while (i < n) {
        if (n - i >= 8) {
            memcpy(&eight, p + i, 8);
            if ((eight & 0x8080808080808080u) == 0) {
                i += 8;
                continue;
            }
        }
        if (p[i] < 0x80) {
            i += 1;
            continue;
        }
        step = kts_utf8_step(p + i, n - i);
        if (step < 2)
            return i;
        i += step;
    }
    return n;
}

/* Whether n bytes are UTF-8, which most often is ASCII: no branch for each few of its bytes. */
static inline int kts_is_utf8(const uint8_t *p, int64_t n) {
    uint64_t seen = 0, eight;
    if (n >= 8) {
        for (int64_t i = 0; i < n - 8; i += 8) {
            memcpy(&eight, p + i, 8);
            seen |= eight;
        }
        memcpy(&eight, p + n - 8, 8);
        seen |= eight;
    } else {
        for (int64_t i = 0; i < n; i++)
            seen |= p[i];
    }
    return (seen & 0x8080808080808080u) == 0 || kts_utf8_valid(p, n) == n;
}

#endif
