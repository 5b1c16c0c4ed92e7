#include "decode.h"

static inline int wants(const struct kts_pass *d, int column) { return d->want >> column & 1; }

int kts_wanted_of_records(uint32_t want, int views, int verify) {
    return (want >> KTS_C_OFFSET & 1 ? KTS_OFFSETS : 0) | (want >> KTS_C_TIMESTAMP & 1 ? KTS_TIMESTAMPS : 0) |
           (want >> KTS_C_TYPE & 1 ? KTS_TYPES : 0) | (want >> KTS_C_KEY & 1 ? KTS_KEYS : 0) |
           (want >> KTS_C_VALUE & 1 ? KTS_VALUES : 0) | (want >> KTS_C_HEADERS & 1 ? KTS_REST : 0) |
           (views ? KTS_VIEWS : 0) | (verify ? KTS_CRC : 0);
}

static int no_room(struct kts_error *err, int room) {
    return kts_fail(err, room == KTS_ROOM_FULL ? KTS_COLUMN_FULL : KTS_NO_MEMORY, 0, 0);
}

/* The columns that all rows of an entry share. */
static void fill_entry(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, int64_t first,
                       int64_t last) {
    const int batch = e->magic == 2;
    struct kts_buf *f = s->fixed;
    if (first == last || (!batch && !(d->want & KTS_SHARED)))
        return;
    if (d->want & KTS_SHARED) {
        if (wants(d, KTS_C_CODEC))
            kts_fill8(f[KTS_C_CODEC].p, first, last, (uint8_t)e->codec);
        if (wants(d, KTS_C_PRODUCER))
            kts_fill64(f[KTS_C_PRODUCER].p, first, last, e->producer_id);
        if (wants(d, KTS_C_PRODUCER_EPOCH))
            kts_fill16(f[KTS_C_PRODUCER_EPOCH].p, first, last, e->producer_epoch);
        if (wants(d, KTS_C_LEADER_EPOCH))
            kts_fill32(f[KTS_C_LEADER_EPOCH].p, first, last, e->leader_epoch);
        if (wants(d, KTS_C_TRANSACTIONAL))
            kts_fill8(f[KTS_C_TRANSACTIONAL].p, first, last, batch && e->attributes & KTS_TRANSACTIONAL);
        if (wants(d, KTS_C_CONTROL))
            kts_fill8(f[KTS_C_CONTROL].p, first, last, batch && e->attributes & KTS_CONTROL);
        if (wants(d, KTS_C_POSITION))
            kts_fill64(f[KTS_C_POSITION].p, first, last, e->position);
        if (wants(d, KTS_C_BASE_OFFSET))
            kts_fill64(f[KTS_C_BASE_OFFSET].p, first, last, batch ? e->offset : 0);
        if (wants(d, KTS_C_LAST_DELTA))
            kts_fill32(f[KTS_C_LAST_DELTA].p, first, last, e->last_offset_delta);
        if (wants(d, KTS_C_ATTRIBUTES))
            kts_fill16(f[KTS_C_ATTRIBUTES].p, first, last, e->attributes);
        if (wants(d, KTS_C_BASE_TIME))
            kts_fill64(f[KTS_C_BASE_TIME].p, first, last, batch ? e->base_timestamp : 0);
        if (wants(d, KTS_C_MAX_TIME))
            kts_fill64(f[KTS_C_MAX_TIME].p, first, last, batch ? e->max_timestamp : 0);
        if (wants(d, KTS_C_IS_BATCH))
            kts_fill8(f[KTS_C_IS_BATCH].p, first, last, (uint8_t)batch);
        if (wants(d, KTS_C_SHALLOW))
            kts_fill64(f[KTS_C_SHALLOW].p, first, last, kts_last_offset(e));
        if (wants(d, KTS_C_OWN_TIME)) /* a plain message has room for one time, which the append time replaced */
            kts_fill8(f[KTS_C_OWN_TIME].p, first, last, (uint8_t)(batch || e->codec || kts_type_of(e) != 1));
    }
    if (batch) {
        if (wants(d, KTS_C_TYPE))
            kts_fill32(f[KTS_C_TYPE].p, first, last, kts_type_of(e));
        if (wants(d, KTS_C_MAGIC))
            kts_fill8(f[KTS_C_MAGIC].p, first, last, 2);
        if (wants(d, KTS_C_TIMESTAMP) && e->attributes & KTS_LOG_APPEND_TIME)
            kts_fill64(f[KTS_C_TIMESTAMP].p, first, last, e->max_timestamp);
    }
}

/* Starts a run from p to `last`; memory is readable up to `reach`. */
static void begin_run(const struct kts_pass *d, struct kts_slab *s, struct kts_run *r, const uint8_t *p, const uint8_t *last,
                      const uint8_t *reach) {
    r->p = p;
    r->last = reach - last >= KTS_SLACK ? last : reach - KTS_SLACK;
    r->row = s->rows;
    r->offsets = kts_longs(s, KTS_C_OFFSET);
    r->timestamps = kts_longs(s, KTS_C_TIMESTAMP);
    r->types = kts_ints(s, KTS_C_TYPE);
    r->key = &s->key;
    r->value = &s->value;
    r->base = d->base;
    r->buffer = d->buffer;
    r->ahead = 0;
}

/* --- a batch --------------------------------------------------------------------------------------------- */

/* DefaultRecordBatch.incrementSequence: 2^31-1 is followed by 0. */
static inline int32_t sequence_at(int32_t base, int32_t delta) {
    const uint32_t left = (uint32_t)INT32_MAX - (uint32_t)delta;
    if (base > (int32_t)left)
        return (int32_t)((uint32_t)delta - ((uint32_t)INT32_MAX - (uint32_t)base) - 1);
    return (int32_t)((uint32_t)base + (uint32_t)delta);
}

static KTS_INLINE void put_string(const struct kts_pass *d, struct kts_text *t, int64_t row, const uint8_t *p, int64_t n,
                       const uint8_t *reach) {
    if (d->views)
        kts_view_put(t, row, p, n, d->base, d->buffer);
    else
        kts_text_put(t, row, p, n, reach);
}

/* Adds the row of a record that may have headers, with every step checked: KTS_OK or KTS_FAILED. */
static int careful_record(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, struct kts_run *r,
                          const uint8_t *end, const uint8_t *reach, struct kts_error *err) {
    const int keep = wants(d, KTS_C_HEADERS);
    const int64_t row = r->row, headers = s->header_key.rows;
    struct kts_record found;
    if (kts_read_record(&r->p, end, reach, d->records, 1, keep ? s : NULL, &found, err))
        return KTS_FAILED;
    if (wants(d, KTS_C_OFFSET))
        r->offsets[row] = kts_plus(e->offset, found.offset_delta);
    if (wants(d, KTS_C_TIMESTAMP))
        r->timestamps[row] = kts_plus(e->base_timestamp, found.time_delta);
    if (d->records & KTS_KEYS)
        put_string(d, &s->key, row, found.key, found.key_size, reach);
    if (d->records & KTS_VALUES)
        put_string(d, &s->value, row, found.value, found.value_size, reach);
    if (keep) {
        kts_offsets(&s->header_offsets)[row + 1] = (int32_t)s->header_key.rows;
        if (s->header_key.rows > headers)
            s->header_valid.p[row >> 3] |= (uint8_t)(1 << (row & 7));
        else
            s->header_nulls += 1;
    }
    r->row += 1;
    return KTS_OK;
}

/* Appends the records at p[0:n] of batch e: KTS_OK or KTS_FAILED. */
static int read_batch(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, const uint8_t *p, int64_t n,
                      const uint8_t *reach, struct kts_error *err) {
    const uint8_t *end = p + n;
    const int64_t first = s->rows;
    int64_t row, before;
    int room, careful = 0;
    struct kts_run r;
    err->count = e->count;
    if (e->count < 0)
        return kts_fail(err, KTS_NEGATIVE_COUNT, e->count, 0);
    if ((int64_t)e->count * KTS_SMALLEST_RECORD > n)
        return kts_fail(err, KTS_COUNT_LEFT, e->count, n);
    if (e->count == 0) {
        err->record = -1;
        return n ? kts_fail(err, KTS_RECORDS_LEFT, 0, n) : KTS_OK;
    }
    if ((room = kts_row_room(s, d->want, d->views, e->count, n)))
        return no_room(err, room);
    begin_run(d, s, &r, p, end, reach);
    if (p == e->payload)
        r.ahead = e->size;
    r.most = first + e->count;
    r.base_offset = e->offset;
    r.base_timestamp = e->base_timestamp;
    for (;;) {
        before = r.row;
        if (careful == 0) {
            kts_run_records(&r, d->records);
            if (wants(d, KTS_C_HEADERS)) {
                kts_fill32(s->header_offsets.p, before + 1, r.row + 1, (int32_t)s->header_key.rows);
                s->header_nulls += r.row - before;
            }
            if (r.row == before)
                careful = 16; /* probably records with headers: the next ones have some, too */
        } else {
            careful -= 1;
        }
        if (r.row == r.most)
            break;
        err->record = r.row - first;
        if (careful_record(d, s, e, &r, end, reach, err))
            return KTS_FAILED;
    }
    err->record = -1;
    if (r.p != end)
        return kts_fail(err, KTS_RECORDS_LEFT, e->count, end - r.p);
    s->rows = s->key.rows = s->value.rows = r.row;
    if (wants(d, KTS_C_CREATE_TIME))
        memcpy(kts_longs(s, KTS_C_CREATE_TIME) + first, r.timestamps + first, (size_t)(8 * (r.row - first)));
    if (wants(d, KTS_C_SEQUENCE))
        for (row = first; row < r.row; row++)
            kts_ints(s, KTS_C_SEQUENCE)[row] =
                e->base_sequence < 0 ? -1 : sequence_at(e->base_sequence, (int32_t)kts_minus(r.offsets[row], e->offset));
    fill_entry(d, s, e, first, r.row);
    return KTS_OK;
}

/* --- messages -------------------------------------------------------------------------------------------- */

/* Appends message e; `outer` is its wrapper, or e itself: KTS_OK or KTS_FAILED. */
static int put_message(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e,
                       const struct kts_entry *outer, const uint8_t *reach, struct kts_error *err) {
    const int64_t row = s->rows, size = (e->key_size > 0 ? e->key_size : 0) + e->payload_size;
    int64_t timestamp = e->max_timestamp;
    int32_t type = -1;
    int room;
    if (row == s->row_room || s->key.size + e->key_size > s->key_room || s->value.size + e->payload_size > s->value_room) {
        room = kts_row_room(s, d->want, d->views, 512, size > 65536 ? size : 65536);
        if (room == KTS_ROOM_FULL)
            room = kts_row_room(s, d->want, d->views, 1, size);
        if (room)
            return no_room(err, room);
    }
    if (e->magic) { /* the type is that of the outer message; magic 0 has none (LegacyRecord.timestampType) */
        type = kts_type_of(outer);
        if (type == 1)
            timestamp = outer->max_timestamp;
    }
    if (wants(d, KTS_C_OFFSET))
        kts_longs(s, KTS_C_OFFSET)[row] = e->offset;
    if (wants(d, KTS_C_TIMESTAMP))
        kts_longs(s, KTS_C_TIMESTAMP)[row] = timestamp;
    if (wants(d, KTS_C_CREATE_TIME))
        kts_longs(s, KTS_C_CREATE_TIME)[row] = e->max_timestamp;
    if (wants(d, KTS_C_TYPE))
        kts_ints(s, KTS_C_TYPE)[row] = type;
    if (wants(d, KTS_C_MAGIC))
        s->fixed[KTS_C_MAGIC].p[row] = (uint8_t)e->magic;
    if (wants(d, KTS_C_SEQUENCE))
        kts_ints(s, KTS_C_SEQUENCE)[row] = -1;
    if (wants(d, KTS_C_KEY))
        put_string(d, &s->key, row, e->key, e->key_size, reach);
    if (wants(d, KTS_C_VALUE))
        put_string(d, &s->value, row, e->payload, e->payload != NULL ? e->payload_size : -1, reach);
    if (wants(d, KTS_C_HEADERS)) {
        kts_offsets(&s->header_offsets)[row + 1] = (int32_t)s->header_key.rows;
        s->header_nulls += 1;
    }
    s->rows = s->key.rows = s->value.rows = row + 1;
    return KTS_OK;
}

enum { /* room is made for this many messages at once */
    RUN_BYTES = 65536,
    RUN_ROWS = 2560 /* the most messages in so many bytes */
};

/* Appends uncompressed messages of one magic, as many as the hot loop accepts; returns the last of them, or NULL.
 * `outer` is their wrapper, or NULL. */
static const uint8_t *usual_messages(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *outer,
                                     const uint8_t **at, const uint8_t *end, const uint8_t *until,
                                     const uint8_t *reach) {
    const uint8_t *last = end - *at < RUN_BYTES ? end : *at + RUN_BYTES;
    const int64_t first = s->rows;
    int32_t type;
    struct kts_run r;
    if ((d->views && (d->base == NULL || last - d->base > INT32_MAX)) ||
        kts_row_room(s, d->want, d->views, RUN_ROWS, RUN_BYTES))
        return NULL; /* then they are read one by one, and that reports the fault */
    begin_run(d, s, &r, *at, last, reach);
    r.latest = NULL;
    r.most = first + RUN_ROWS;
    r.until = until;
    r.magic = (*at)[KTS_MAGIC_AT];
    kts_run_messages(&r, d->records);
    *at = r.p;
    s->rows = s->key.rows = s->value.rows = r.row;
    if (wants(d, KTS_C_CREATE_TIME)) /* there is room, so neither is NULL */
        memcpy(kts_longs(s, KTS_C_CREATE_TIME) + first, r.timestamps + first, (size_t)(8 * (r.row - first)));
    if (outer != NULL && r.magic) {
        type = kts_type_of(outer);
        if (wants(d, KTS_C_TYPE))
            kts_fill32(s->fixed[KTS_C_TYPE].p, first, r.row, type);
        if (wants(d, KTS_C_TIMESTAMP) && type == 1)
            kts_fill64(s->fixed[KTS_C_TIMESTAMP].p, first, r.row, outer->max_timestamp);
    }
    if (wants(d, KTS_C_MAGIC))
        kts_fill8(s->fixed[KTS_C_MAGIC].p, first, r.row, (uint8_t)r.magic);
    if (wants(d, KTS_C_SEQUENCE))
        kts_fill32(s->fixed[KTS_C_SEQUENCE].p, first, r.row, -1);
    if (wants(d, KTS_C_HEADERS)) {
        kts_fill32(s->header_offsets.p, first + 1, r.row + 1, (int32_t)s->header_key.rows);
        s->header_nulls += r.row - first;
    }
    return r.latest;
}

/* Appends the inner messages at p[0:n] of wrapper e (AbstractLegacyRecordBatch.DeepRecordsIterator): KTS_OK or
 * KTS_FAILED. */
static int read_wrapper(const struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, const uint8_t *p,
                        int64_t n, struct kts_error *err) {
    const uint8_t *const end = p + n, *latest;
    const int64_t first = s->rows;
    int64_t last = 0, base, row;
    int64_t *offsets;
    struct kts_entry inner;
    int32_t stated = 0;
    int status;
    err->count = -1;
    err->record = 0;
    inner.p = p;
    for (;;) {
        if (end - inner.p > KTS_MAGIC_AT && inner.p[KTS_MAGIC_AT] < 2) {
            latest = usual_messages(d, s, e, &inner.p, end, end, end);
            if (latest != NULL) {
                last = kts_i64(latest);
                continue;
            }
        }
        status = kts_inner_size(inner.p, end - inner.p, &inner.size, &stated);
        if (status == KTS_END)
            break; /* an incomplete inner message is left out, as in Kafka */
        err->record = s->rows - first;
        if (status == KTS_FAILED)
            return kts_fail(err, KTS_SHORT_INNER, stated, KTS_V0_LEAST);
        if (kts_inner_message(&inner, d->verify, err) || put_message(d, s, &inner, e, end, err))
            return KTS_FAILED;
        last = inner.offset;
        inner.p += inner.size;
    }
    err->record = -1;
    if (s->rows == first)
        return kts_fail(err, KTS_WRAPPER_EMPTY, 0, 0);
    if (e->magic == 1 && e->offset != 0) {
        if (e->offset < last)
            return kts_fail(err, KTS_WRAPPER_OFFSET, e->offset, last);
        base = kts_minus(e->offset, last);
        if (wants(d, KTS_C_OFFSET)) {
            offsets = kts_longs(s, KTS_C_OFFSET);
            for (row = first; row < s->rows; row++)
                offsets[row] = kts_plus(offsets[row], base);
        }
    }
    fill_entry(d, s, e, first, s->rows);
    return KTS_OK;
}

/* --- the walk -------------------------------------------------------------------------------------------- */

int kts_decode(struct kts_pass *d, struct kts_slab *s, int64_t stop, struct kts_entry *e, struct kts_error *err) {
    const uint8_t *const end = d->data + d->size, *p, *latest;
    int status;
    for (;;) {
        if (d->position >= stop)
            return KTS_STOP;
        p = d->data + d->position;
        if (end - p > KTS_MAGIC_AT && p[KTS_MAGIC_AT] < 2 && !(d->want & KTS_SHARED)) {
            latest = usual_messages(d, s, NULL, &p, end, d->data + (stop < d->size ? stop : d->size), end);
            d->position = p - d->data;
            if (latest != NULL)
                continue;
        }
        kts_set_mark(s);
        status = kts_next_entry(d->data, d->size, d->position, e, err);
        if (status != KTS_OK)
            return status;
        if (kts_check_entry(e, d->verify, err))
            return KTS_FAILED;
        if (e->codec)
            return KTS_INFLATE;
        if (d->views && (d->base == NULL || e->p + e->size - d->base > INT32_MAX)) {
            d->base = e->p;
            return KTS_BASE;
        }
        if (e->magic == 2) {
            if (read_batch(d, s, e, e->payload, e->payload_size, end, err))
                return KTS_FAILED;
        } else {
            if (put_message(d, s, e, e, e->p + e->size, err))
                return KTS_FAILED;
            fill_entry(d, s, e, s->rows - 1, s->rows);
        }
        d->position += e->size;
    }
}

int kts_decode_inflated(struct kts_pass *d, struct kts_slab *s, const struct kts_entry *e, const uint8_t *p, int64_t n,
                        struct kts_error *err) {
    if (e->magic == 2 ? read_batch(d, s, e, p, n, p + n, err) : read_wrapper(d, s, e, p, n, err))
        return KTS_FAILED;
    d->base = NULL; /* views of what follows point into another buffer */
    d->position += e->size;
    return KTS_OK;
}

static inline void put_row(struct kts_slab *s, int64_t i, const struct kts_row *r) {
    kts_longs(s, KTS_C_POSITION)[i] = r->position;
    kts_ints(s, KTS_C_SIZE)[i] = r->size;
    s->fixed[KTS_C_MAGIC].p[i] = (uint8_t)r->magic;
    s->fixed[KTS_C_IS_BATCH].p[i] = r->magic == 2 || r->codec == 0;
    kts_longs(s, KTS_C_BASE_OFFSET)[i] = r->base_offset;
    kts_longs(s, KTS_C_OFFSET)[i] = r->last_offset;
    kts_ints(s, KTS_C_LAST_DELTA)[i] = r->count;
    kts_longs(s, KTS_C_BASE_TIME)[i] = r->base_timestamp;
    kts_longs(s, KTS_C_MAX_TIME)[i] = r->max_timestamp;
    kts_ints(s, KTS_C_TYPE)[i] = r->timestamp_type;
    s->fixed[KTS_C_CODEC].p[i] = (uint8_t)r->codec;
    kts_ints(s, KTS_C_LEADER_EPOCH)[i] = r->leader_epoch;
    kts_longs(s, KTS_C_PRODUCER)[i] = r->producer_id;
    ((int16_t *)(void *)s->fixed[KTS_C_PRODUCER_EPOCH].p)[i] = r->producer_epoch;
    kts_ints(s, KTS_C_SEQUENCE)[i] = r->base_sequence;
    s->fixed[KTS_C_TRANSACTIONAL].p[i] = r->transactional;
    s->fixed[KTS_C_CONTROL].p[i] = r->control;
    s->fixed[KTS_C_CRC_OK].p[i] = (uint8_t)r->crc_ok;
}

int kts_scan(const uint8_t *data, int64_t size, uint32_t want, struct kts_slab *s, struct kts_error *err) {
    struct kts_entry e;
    struct kts_row row;
    int status;
    for (int64_t position = 0; (status = kts_next_entry(data, size, position, &e, err)) == KTS_OK; position += e.size) {
        if (s->rows == s->row_room && kts_row_room(s, want, 0, 64 + s->rows, 0))
            return kts_fail(err, KTS_NO_MEMORY, 0, 0);
        kts_row_of(&e, kts_crc_ok(&e, err), &row);
        put_row(s, s->rows++, &row);
    }
    return status;
}

int kts_columns_of_rows(const struct kts_row *rows, int64_t count, uint32_t want, struct kts_slab *s) {
    if (kts_row_room(s, want, 0, count, 0))
        return KTS_FAILED;
    for (s->rows = 0; s->rows < count; s->rows++)
        put_row(s, s->rows, rows + s->rows);
    return KTS_OK;
}
