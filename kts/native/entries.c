#include "entries.h"

#define KTS_CODEC(name, magic, count_first) #name,
const char *const kts_codec_names[] = {KTS_CODECS(KTS_CODEC)};
#undef KTS_CODEC

void kts_batch_header(struct kts_entry *e) {
    const uint8_t *p = e->p;
    e->leader_epoch = kts_i32(p + KTS_BATCH_EPOCH_AT);
    e->attributes = (int16_t)kts_be16(p + KTS_BATCH_ATTRIBUTES_AT);
    e->codec = e->attributes & KTS_CODEC_MASK;
    e->last_offset_delta = kts_i32(p + KTS_BATCH_DELTA_AT);
    e->base_timestamp = kts_i64(p + KTS_BATCH_BASE_TIME_AT);
    e->max_timestamp = kts_i64(p + KTS_BATCH_MAX_TIME_AT);
    e->producer_id = kts_i64(p + KTS_BATCH_PRODUCER_AT);
    e->producer_epoch = (int16_t)kts_be16(p + KTS_BATCH_PRODUCER_EPOCH_AT);
    e->base_sequence = kts_i32(p + KTS_BATCH_SEQUENCE_AT);
    e->count = kts_i32(p + KTS_BATCH_COUNT_AT);
    e->payload = p + KTS_BATCH_HEADER;
    e->payload_size = e->size - KTS_BATCH_HEADER;
    e->key = NULL;
    e->key_size = -1;
}

int kts_read_header(const uint8_t *data, int64_t size, int64_t position, struct kts_entry *e, struct kts_error *err) {
    const uint8_t *p = data + position;
    const int64_t left = size - position;
    int64_t least;
    err->position = position;
    err->record = -1;
    err->count = -1;
    err->offset = left >= 8 ? kts_i64(p) : -1;
    e->size = 0;
    if (kts_entry_size(p, left, KTS_GENERATION_3_9, &e->size, err) == KTS_FAILED)
        return KTS_FAILED;
    if (e->size == 0)
        return KTS_END;
    e->p = p;
    e->position = position;
    e->offset = err->offset;
    e->magic = p[KTS_MAGIC_AT];
    if (e->magic == 2) {
        if (e->size < KTS_BATCH_HEADER && e->size <= left)
            return kts_fail(err, KTS_SHORT_BATCH, e->size - KTS_OVERHEAD, 0);
        if (left < KTS_BATCH_HEADER)
            return KTS_END;
        kts_batch_header(e);
    } else {
        least = e->magic ? KTS_V1_LEAST : KTS_V0_LEAST;
        if (e->size - KTS_OVERHEAD < least && e->size <= left)
            return kts_fail(err, KTS_SHORT_MESSAGE, e->size - KTS_OVERHEAD, least);
        if (left < KTS_OVERHEAD + KTS_V0_LEAST)
            return KTS_END;
        kts_message_header(e);
    }
    return KTS_OK;
}

int kts_next_entry(const uint8_t *data, int64_t size, int64_t position, struct kts_entry *e, struct kts_error *err) {
    const int status = kts_read_header(data, size, position, e, err);
    return status == KTS_OK && e->size > size - position ? KTS_END : status;
}
