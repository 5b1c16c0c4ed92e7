#include "offset_map.h"

#include <stdlib.h>

/* --- the hash -------------------------------------------------------------------------------------------- */

static inline uint64_t turned(uint64_t v, int n) { return v << n | v >> (64 - n); }

static inline void rounds(uint64_t v[4], int n) {
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turned(v[1], 13) ^ v[0];
        v[3] = turned(v[3], 16) ^ v[2];
        v[0] = turned(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = turned(v[1], 17) ^ v[2];
        v[3] = turned(v[3], 21) ^ v[0];
        v[2] = turned(v[2], 32);
    }
}

void kts_hash_of(const uint64_t *secret, const uint8_t *p, int64_t n, struct kts_hash *hash) {
    uint64_t v[4] = {0x736f6d6570736575 ^ secret[0], 0x646f72616e646f6d ^ secret[1] ^ 0xEE,
                     0x6c7967656e657261 ^ secret[0], 0x7465646279746573 ^ secret[1]};
    uint64_t word, last = (uint64_t)n << 56;
    int64_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    }
    if (left > 0) {
        word = 0;
        memcpy(&word, p, (size_t)left);
        last |= word;
    }
    v[3] ^= last;
    rounds(v, 2);
    v[0] ^= last;
    v[2] ^= 0xEE;
    rounds(v, 4);
    hash->words[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xDD;
    rounds(v, 4);
    hash->words[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* --- the map --------------------------------------------------------------------------------------------- */

static inline int same(const struct kts_hash *a, const struct kts_hash *b) {
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

/* How far a slot lies behind the home of its hash. */
static inline int64_t distance(const struct kts_offset_map *m, const struct kts_hash *hash, int64_t at) {
    const int64_t far = at - kts_map_home(m, hash);
    return far < 0 ? far + m->count : far;
}

/* The slot of a hash, or where it would be put: a search ends at a slot whose own hash has come less far. */
static inline struct kts_slot *slot_of(const struct kts_offset_map *m, const struct kts_hash *hash, int *found) {
    int64_t at = kts_map_home(m, hash), far;
    struct kts_slot *s = m->slots + at;
    *found = 0;
    for (far = 0; s->next && far < m->count; far++) {
        if (same(&s->hash, hash)) {
            *found = 1;
            break;
        }
        if (distance(m, &s->hash, at) < far)
            break;
        at = at + 1 == m->count ? 0 : at + 1;
        s = m->slots + at;
    }
    return s;
}

/* Puts a new entry into a slot; what lies there is pushed on, as far as a free slot. */
static void put_new(struct kts_offset_map *m, struct kts_slot *s, struct kts_slot entry) {
    const struct kts_slot *const end = m->slots + m->count;
    struct kts_slot pushed;
    while (s->next) {
        pushed = *s;
        *s = entry;
        entry = pushed;
        s = s + 1 == end ? m->slots : s + 1;
    }
    *s = entry;
}

static int grow(struct kts_offset_map *m) {
    struct kts_slot *const before = m->slots;
    const int64_t count = m->count;
    const int64_t more = m->most_slots / 8 > count ? 8 * count : m->most_slots;
    struct kts_slot *const slots = calloc((size_t)more, sizeof(struct kts_slot));
    int64_t i;
    int found;
    if (slots == NULL)
        return KTS_FAILED;
    m->slots = slots;
    m->count = more;
    for (i = 0; i < count; i++)
        if (before[i].next)
            put_new(m, slot_of(m, &before[i].hash, &found), before[i]);
    free(before);
    return KTS_OK;
}

int kts_map_begin(struct kts_offset_map *m, int64_t most_slots, int64_t most_keys, const uint8_t *secret) {
    m->count = most_slots < KTS_FEW_SLOTS ? most_slots : KTS_FEW_SLOTS;
    m->most_slots = most_slots;
    m->most_keys = most_keys;
    m->keys = 0;
    m->latest = -1;
    memcpy(m->secret, secret, sizeof(m->secret));
    m->slots = calloc((size_t)m->count, sizeof(struct kts_slot));
    return m->slots == NULL ? KTS_FAILED : KTS_OK;
}

void kts_map_free(struct kts_offset_map *m) {
    free(m->slots);
    m->slots = NULL;
}

int kts_map_put(struct kts_offset_map *m, const struct kts_hash *hash, int64_t offset) {
    struct kts_slot *s;
    int found;
    if (m->keys >= m->most_keys)
        return KTS_FULL;
    if (2 * (m->keys + 1) > m->count && m->count < m->most_slots && grow(m))
        return KTS_FAILED;
    s = slot_of(m, hash, &found);
    if (found) {
        s->next = kts_plus(offset, 1);
    } else {
        put_new(m, s, (struct kts_slot){*hash, kts_plus(offset, 1)});
        m->keys += 1;
    }
    m->latest = offset;
    return KTS_OK;
}

int64_t kts_map_get(const struct kts_offset_map *m, const struct kts_hash *hash) {
    int found;
    const struct kts_slot *const s = slot_of(m, hash, &found);
    return found ? kts_minus(s->next, 1) : -1;
}
