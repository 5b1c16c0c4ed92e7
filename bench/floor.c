/* The least that a reader has to do with uncompressed bytes: CRCs, and one copy of everything. */
#include "../kts/native/crc.c"

void floor_init(void) {
    kts_crc_init();
}

static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Single messages (magic 0 and 1), whole ones only: a CRC of each, and the copy. The copies go to the front of `room`,
 * which is larger than a slice by the largest message. */
int64_t floor_messages(const uint8_t *p, int64_t n, uint8_t *room, int64_t slice) {
    int64_t count = 0, copied = 0, position = 0;
    while (position < n) {
        int64_t size = 12 + (int64_t)be32(p + position + 8);
        if (kts_crc32(p + position + 16, size - 16) != be32(p + position + 12))
            return -1;
        position += size;
        count++;
        if (position - copied >= slice || position >= n) {
            memcpy(room, p + copied, position - copied);
            copied = position;
        }
    }
    return count;
}

/* The CRC of every batch (magic 2) or outermost message (magic 0 and 1), nothing else. */
int64_t floor_crcs(const uint8_t *p, int64_t n) {
    int64_t count = 0, position = 0;
    while (position < n) {
        const uint8_t *entry = p + position;
        int64_t size = 12 + (int64_t)be32(entry + 8);
        if (entry[16] == 2 ? kts_crc32c(entry + 21, size - 21) != be32(entry + 17)
                           : kts_crc32(entry + 16, size - 16) != be32(entry + 12))
            return -1;
        position += size;
        count++;
    }
    return count;
}

/* `count` pieces of `size` bytes: CRC-32C of each, or CRC-32. */
uint32_t floor_checksums(const uint8_t *p, int64_t size, int64_t count, int castagnoli) {
    uint32_t all = 0;
    for (int64_t i = 0; i < count; i++, p += size)
        all ^= castagnoli ? kts_crc32c(p, size) : kts_crc32(p, size);
    return all;
}
