/* The least that a reader of single messages (magic 0 and 1) has to do: a CRC of each, and one copy of everything. */
#include "../kts/_crc.h"

void floor_init(void) {
    kts_crc_init();
}

static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Whole messages only. The copies go to the front of `room`, which is larger than a slice by the largest message. */
int64_t floor_messages(const uint8_t *p, int64_t n, uint8_t *room, int64_t slice) {
    int64_t count = 0, copied = 0, position = 0;
    while (position < n) {
        int64_t size = 12 + be32(p + position + 8);
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
