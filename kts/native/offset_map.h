/* The offset map of a cleaner: the hashes of keys, and the last offset of each. */
#ifndef KTS_OFFSET_MAP_H
#define KTS_OFFSET_MAP_H

#include "platform.h"
#include "status.h"

enum { KTS_SLOT_BYTES = 24, KTS_FEW_SLOTS = 4096, KTS_HASH_WORDS = 2 };

struct kts_hash { /* SipHash-2-4 of 128 bits, with a secret of the map: nobody can choose keys that collide */
    uint64_t words[KTS_HASH_WORDS];
};

struct kts_slot {
    struct kts_hash hash;
    int64_t next; /* the offset + 1; 0: the slot is free */
};

struct kts_offset_map {
    struct kts_slot *slots;
    int64_t count;      /* of slots; few at first */
    int64_t most_slots; /* they may become so many, */
    int64_t most_keys;  /* and hold so many keys */
    int64_t keys;
    int64_t latest; /* the last offset that was mapped, -1 none */
    uint64_t secret[KTS_HASH_WORDS];
};

/* An empty map of at most `most_slots` slots, below 2^32, and `most_keys` keys, no more than slots. KTS_OK, or KTS_FAILED
 * without memory. */
int kts_map_begin(struct kts_offset_map *m, int64_t most_slots, int64_t most_keys, const uint8_t *secret);
void kts_map_free(struct kts_offset_map *m);

void kts_hash_of(const uint64_t *secret, const uint8_t *p, int64_t n, struct kts_hash *hash);

/* Where the search for a hash begins: slots are in the order of the hashes, but for those that were pushed on. */
static inline int64_t kts_map_home(const struct kts_offset_map *m, const struct kts_hash *hash) {
    return (int64_t)(((hash->words[0] >> 32) * (uint64_t)m->count) >> 32);
}

/* Sets the offset of a key: KTS_OK, KTS_FULL if the map has no room for a key more, whether it has this one or not, or
 * KTS_FAILED without memory. */
int kts_map_put(struct kts_offset_map *m, const struct kts_hash *hash, int64_t offset);

/* The offset of a key, -1 if the map does not have it. */
int64_t kts_map_get(const struct kts_offset_map *m, const struct kts_hash *hash);

#endif
