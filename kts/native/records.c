#include "records.h"
#include "utf8.h"

static int bad_varint(struct kts_error *err, int status, int64_t most, int64_t left) {
    if (status == KTS_VARINT_LONG)
        return kts_fail(err, KTS_VARINT, most, 0);
    return kts_fail(err, KTS_RECORD_END, 0, left > 0 ? left : 0);
}

/* --- headers --------------------------------------------------------------------------------------------- */

/* Header key `row` as UTF-8; there is room for three bytes for each of its bytes. */
static inline void put_header_key(struct kts_text *t, int64_t row, const uint8_t *p, int64_t n, const uint8_t *reach) {
    int64_t good = kts_utf8_valid(p, n);
    uint8_t *to;
    int step;
    if (good == n) {
        kts_text_put(t, row, p, n, reach);
    } else {
        to = t->data.p + t->size;
        while (n > 0) {
            good = kts_utf8_valid(p, n);
            memcpy(to, p, (size_t)good);
            to += good;
            p += good;
            n -= good;
            if (n > 0) {
                step = kts_utf8_step(p, n);
                *to++ = 0xEF;
                *to++ = 0xBF;
                *to++ = 0xBD;
                p -= step;
                n += step;
            }
        }
        t->size = to - t->data.p;
        kts_offsets(&t->offsets)[row + 1] = (int32_t)t->size;
    }
}

static int headers_room(struct kts_slab *s, int32_t count, int64_t left, struct kts_error *err) {
    int room;
    if (s->header_key.rows + count > INT32_MAX)
        return kts_fail(err, KTS_COLUMN_FULL, 0, 0);
    room = kts_text_room(&s->header_key, count, 3 * left, 0); /* an ill-formed byte of a key becomes three */
    if (room == KTS_ROOM)
        room = kts_text_room(&s->header_value, count, left, 0);
    if (room != KTS_ROOM)
        return kts_fail(err, room == KTS_ROOM_FULL ? KTS_COLUMN_FULL : KTS_NO_MEMORY, 0, 0);
    return KTS_OK;
}

static KTS_APART int read_headers(struct kts_slab *keep, int32_t count, const uint8_t **at, const uint8_t *end,
                                  const uint8_t *reach, struct kts_error *err) {
    const uint8_t *p = *at, *key;
    const int64_t row = keep ? keep->header_key.rows : 0;
    int32_t i, key_size, n;
    int status;
    if (count < 0 || count > end - p)
        return kts_fail(err, KTS_HEADER_COUNT, count, end - p);
    if (keep && headers_room(keep, count, end - p, err))
        return KTS_FAILED;
    for (i = 0; i < count; i++) {
        if ((status = kts_varint(&p, end, &key_size)))
            return bad_varint(err, status, 5, end - p);
        if (key_size < 0 || key_size > end - p)
            return kts_fail(err, KTS_HEADER_KEY, key_size, end - p);
        key = p;
        p += key_size;
        if ((status = kts_varint(&p, end, &n)))
            return bad_varint(err, status, 5, end - p);
        if (n > end - p)
            return kts_fail(err, KTS_HEADER_VALUE, n, end - p);
        if (keep) {
            put_header_key(&keep->header_key, row + i, key, key_size, reach);
            kts_text_put(&keep->header_value, row + i, p, n, reach);
        }
        p += n > 0 ? n : 0;
    }
    if (keep)
        keep->header_key.rows = keep->header_value.rows = row + count;
    *at = p;
    return KTS_OK;
}

/* --- a record -------------------------------------------------------------------------------------------- */

/* Reads a key or value: KTS_OK and its place; *size is -1 for null. */
static inline int read_string(const uint8_t **at, const uint8_t *stop, int fault, const uint8_t **string, int64_t *size,
                              struct kts_error *err) {
    int32_t n;
    const int status = kts_varint(at, stop, &n);
    if (status)
        return bad_varint(err, status, 5, stop - *at);
    if (n > stop - *at)
        return kts_fail(err, fault, n, stop - *at);
    *string = *at;
    *size = n < 0 ? -1 : n;
    *at += n > 0 ? n : 0;
    return KTS_OK;
}

int kts_read_record(const uint8_t **at, const uint8_t *end, const uint8_t *reach, int want, int whole,
                    struct kts_slab *keep, struct kts_record *r, struct kts_error *err) {
    const uint8_t *p = *at, *stop = end;
    int32_t length, offset_delta;
    int status;
    r->stop = NULL;
    r->headers = 0;
    if ((status = kts_varint(&p, end, &length)))
        return bad_varint(err, status, 5, end - p);
    if (whole) {
        if (length < 0 || length > end - p)
            return kts_fail(err, KTS_RECORD_LENGTH, length, end - p);
        stop = p + length;
    }
    r->stop = stop;
    p += 1; /* attributes of a record are unused; a length of 0 fails just below */
    if ((status = kts_varlong(&p, stop, &r->time_delta)))
        return bad_varint(err, status, 10, stop - p);
    if ((status = kts_varint(&p, stop, &offset_delta)))
        return bad_varint(err, status, 5, stop - p);
    r->offset_delta = offset_delta;
    if (want & (KTS_KEYS | KTS_VALUES | KTS_REST) && read_string(&p, stop, KTS_KEY, &r->key, &r->key_size, err))
        return KTS_FAILED;
    if (want & (KTS_VALUES | KTS_REST) && read_string(&p, stop, KTS_VALUE, &r->value, &r->value_size, err))
        return KTS_FAILED;
    if (want & KTS_REST) {
        if ((status = kts_varint(&p, stop, &r->headers)))
            return bad_varint(err, status, 5, stop - p);
        if (r->headers && read_headers(keep, r->headers, &p, stop, reach, err))
            return KTS_FAILED;
        if (whole && p != stop)
            return kts_fail(err, KTS_RECORD_REST, length, stop - p);
    }
    *at = whole ? stop : p;
    return KTS_OK;
}

/* --- the hot loops: each is written once and compiled for each usual set of columns ---------------------- */

enum {
    TIMES = KTS_OFFSETS | KTS_TIMESTAMPS,
    KEY_VALUE = KTS_KEYS | KTS_VALUES,
    USUAL = TIMES | KEY_VALUE | KTS_REST
};

/* Masks of the two words of a view of n <= 12 bytes: the length and up to four bytes, and the other bytes. */
#define MASK(bytes) (~0ull >> 8 * (8 - (bytes)))
static const uint64_t short_views[13][2] = {
    {MASK(4), 0},       {MASK(5), 0},       {MASK(6), 0},       {MASK(7), 0},       {MASK(8), 0},
    {MASK(8), MASK(1)}, {MASK(8), MASK(2)}, {MASK(8), MASK(3)}, {MASK(8), MASK(4)}, {MASK(8), MASK(5)},
    {MASK(8), MASK(6)}, {MASK(8), MASK(7)}, {MASK(8), MASK(8)},
};

/* As kts_view_put, if KTS_SLACK bytes at p are readable. */
static KTS_INLINE void put_view(const struct kts_run *r, struct kts_text *t, int64_t row, const uint8_t *p, int64_t n) {
    uint8_t *v = t->offsets.p + 16 * row;
    uint64_t low = 0, high = 0;
    uint32_t word;
    if (KTS_LIKELY(n >= 0)) {
        memcpy(&word, p, 4);
        low = (uint32_t)n | (uint64_t)word << 32;
        if (n > 12) {
            high = (uint32_t)r->buffer | (uint64_t)(uint32_t)(p - r->base) << 32;
        } else {
            memcpy(&high, p + 4, 8);
            low &= short_views[n][0];
            high &= short_views[n][1];
        }
    } else {
        kts_text_null(t, row);
    }
    memcpy(v, &low, 8);
    memcpy(v + 8, &high, 8);
}

/* One string of a row; the size of the text is kept in a register, as `end`. */
static KTS_INLINE void put(const struct kts_run *r, struct kts_text *t, const int want, int64_t row, const uint8_t *p,
                           int64_t n, uint8_t **end) {
    if (want & KTS_VIEWS) {
        put_view(r, t, row, p, n);
        return;
    }
    if (KTS_LIKELY(n >= 0)) {
        kts_copy_wide(*end, p, n);
        *end += n;
    } else {
        kts_text_null(t, row);
    }
    kts_offsets(&t->offsets)[row + 1] = (int32_t)(*end - t->data.p);
}

static KTS_INLINE void record_loop(struct kts_run *r, const int want) {
    const uint8_t *p = r->p, *start = p, *stop, *key = p, *value = p;
    const uint8_t *const last = r->last;
    const uint64_t base_offset = r->base_offset, base_timestamp = r->base_timestamp;
    int64_t row = r->row, key_size = 0, size = 0;
    const int64_t most = r->most, ahead = r->ahead;
    int64_t *const offsets = r->offsets, *const timestamps = r->timestamps;
    struct kts_text *const keys = r->key, *const values = r->value;
    uint8_t *to_key = want & KTS_CHECK ? NULL : keys->data.p + keys->size;
    uint8_t *to_value = want & KTS_CHECK ? NULL : values->data.p + values->size;
    int unusual = 0;
    uint32_t raw;
    uint64_t delta, offset_delta;
    const struct kts_limits *const limits = r->limits;
    int64_t max = r->max, max_offset = r->max_offset, time;
    while (row < most && p < last) {
        start = p;
        raw = kts_quick(&p, &unusual);
        if (raw & 1 || (int64_t)(raw >> 1) > last - p)
            break;
        stop = p + (raw >> 1);
        if (!(want & KTS_CHECK) && raw >> 1 <= KTS_SLACK) { /* the processor prefetches longer ones better by itself */
            kts_prefetch(p + ahead);
            if (want & KEY_VALUE)
                kts_prefetch(p + ahead + 64);
        }
        p += 1; /* attributes of a record are unused */
        delta = kts_unzigzag(kts_quick(&p, &unusual));
        offset_delta = kts_unzigzag(kts_quick(&p, &unusual));
        if (want & (KTS_KEYS | KTS_VALUES | KTS_REST)) {
            raw = kts_quick(&p, &unusual);
            key = p;
            key_size = raw & 1 ? -1 : (int64_t)(raw >> 1);
            if (key_size > stop - p)
                break;
            p += raw & 1 ? 0 : key_size;
        }
        if (want & (KTS_VALUES | KTS_REST)) {
            raw = kts_quick(&p, &unusual);
            value = p;
            size = raw & 1 ? -1 : (int64_t)(raw >> 1);
            if (size > stop - p)
                break;
            p += raw & 1 ? 0 : size;
        }
        if (want & KTS_REST ? p + 1 != stop || p[0] : p > stop)
            break;
        if (unusual)
            break;
        if (want & KTS_CHECK) {
            if (offset_delta != (uint64_t)row || (limits->keys && key_size < 0))
                break;
            time = (int64_t)(base_timestamp + delta);
            if (time < 0 || (limits->limited && (limits->now - time > limits->before || time - limits->now > limits->after)))
                break;
            if (time > max) {
                max = time;
                max_offset = (int64_t)(base_offset + offset_delta);
            }
        }
        if (want & KTS_KEYS)
            put(r, keys, want, row, key, key_size, &to_key);
        if (want & KTS_VALUES)
            put(r, values, want, row, value, size, &to_value);
        if (want & KTS_OFFSETS)
            offsets[row] = (int64_t)(base_offset + offset_delta);
        if (want & KTS_TIMESTAMPS)
            timestamps[row] = (int64_t)(base_timestamp + delta);
        row += 1;
        p = start = stop;
    }
    r->p = start;
    r->row = row;
    if (want & KTS_CHECK) {
        r->max = max;
        r->max_offset = max_offset;
        return;
    }
    keys->size = to_key - keys->data.p;
    values->size = to_value - values->data.p;
}

/* Sets offset and time of a message of an appended set if it meets the limits: 1, otherwise 0. */
static KTS_INLINE int stamp_message(struct kts_run *r, uint8_t *p, int64_t size, int64_t offset, int32_t key_size,
                                    const int magic) {
    const struct kts_limits *const limits = r->limits;
    int64_t time;
    if ((limits->keys && key_size < 0) || size > limits->largest)
        return 0;
    kts_put64(p + KTS_OFFSET_AT, (uint64_t)offset);
    if (magic && limits->append_time) {
        p[KTS_MESSAGE_ATTRIBUTES_AT] = KTS_LOG_APPEND_TIME;
        kts_put64(p + KTS_MESSAGE_TIME_AT, (uint64_t)limits->now);
        kts_put32(p + KTS_MESSAGE_CRC_AT, kts_entry_crc(p, size, 0));
    } else if (magic) {
        time = kts_i64(p + KTS_MESSAGE_TIME_AT);
        if (time < 0 ? time != -1 || !limits->exempt
                     : limits->now - time > limits->before || time - limits->now > limits->after)
            return 0;
        if (time > r->max) {
            r->max = time;
            r->max_offset = offset;
        }
    }
    return 1;
}

static KTS_INLINE void message_loop(struct kts_run *r, const int want, const int magic) {
    const uint8_t *p = r->p;
    const uint8_t *const last = r->last, *const until = r->until;
    const int head = KTS_OVERHEAD + (magic ? KTS_V1_LEAST : KTS_V0_LEAST);
    const int unusual = want & KTS_CHECK ? 0xFF : KTS_CODEC_MASK; /* attributes */
    int64_t row = r->row;
    const int64_t most = r->most;
    struct kts_text *const keys = r->key, *const values = r->value;
    uint8_t *to_key = want & KTS_CHECK ? NULL : keys->data.p + keys->size;
    uint8_t *to_value = want & KTS_CHECK ? NULL : values->data.p + values->size;
    while (row < most && p < until && last - p >= head) {
        const uint8_t *key = p + head - 4;
        int32_t size = kts_i32(p + KTS_SIZE_AT), key_size = kts_i32(key - 4), value_size;
        if (size < head - KTS_OVERHEAD || size > last - p - KTS_OVERHEAD || p[KTS_MAGIC_AT] != magic ||
            p[KTS_MESSAGE_ATTRIBUTES_AT] & unusual)
            break;
        if (key_size > size - (head - KTS_OVERHEAD))
            break;
        const uint8_t *value = key + (key_size > 0 ? key_size : 0) + 4;
        value_size = kts_i32(value - 4);
        if (p + KTS_OVERHEAD + size - value != (value_size > 0 ? value_size : 0))
            break;
        if (want & KTS_CRC && kts_entry_crc(p, (int64_t)size + KTS_OVERHEAD, 0) != kts_stored_crc(p, 0))
            break;
        if (want & KTS_CHECK && !stamp_message(r, (uint8_t *)p, (int64_t)size + KTS_OVERHEAD, row, key_size, magic))
            break;
        if (want & KTS_KEYS)
            put(r, keys, want, row, key, key_size, &to_key);
        if (want & KTS_VALUES)
            put(r, values, want, row, value, value_size, &to_value);
        if (want & KTS_OFFSETS)
            r->offsets[row] = kts_i64(p);
        if (want & KTS_TIMESTAMPS)
            r->timestamps[row] = magic ? kts_i64(p + KTS_MESSAGE_TIME_AT) : -1;
        if (want & KTS_TYPES)
            r->types[row] = magic ? (p[KTS_MESSAGE_ATTRIBUTES_AT] & KTS_LOG_APPEND_TIME) != 0 : -1;
        row += 1;
        r->latest = p;
        p += KTS_OVERHEAD + size;
    }
    r->p = p;
    r->row = row;
    if (want & KTS_CHECK)
        return;
    keys->size = to_key - keys->data.p;
    values->size = to_value - values->data.p;
}

/* Each in its own function, so that the compiler shares no code between them. */
#define RECORD_LOOP(name, want)                     \
    static KTS_APART void name(struct kts_run *r) { \
        record_loop(r, want);                       \
    }
RECORD_LOOP(usual, USUAL)
RECORD_LOOP(usual_views, USUAL | KTS_VIEWS)
RECORD_LOOP(times, TIMES)
RECORD_LOOP(keys_values, KEY_VALUE)
RECORD_LOOP(times_keys_values, TIMES | KEY_VALUE)
RECORD_LOOP(check, KTS_REST | KTS_CHECK)
#undef RECORD_LOOP

void kts_run_records(struct kts_run *r, int want) {
    want &= ~(KTS_TYPES | KTS_CRC);
    switch (want) {
    case USUAL:
        usual(r);
        break;
    case USUAL | KTS_VIEWS:
        usual_views(r);
        break;
    case TIMES:
        times(r);
        break;
    case KEY_VALUE:
        keys_values(r);
        break;
    case TIMES | KEY_VALUE:
        times_keys_values(r);
        break;
    case KTS_REST | KTS_CHECK:
        check(r);
        break;
    default:
        record_loop(r, want & ~KTS_CHECK);
    }
}

void kts_run_messages(struct kts_run *r, int want) {
    enum { ALL = TIMES | KTS_TYPES | KEY_VALUE | KTS_CRC };
    want &= ~KTS_REST;
    if (want == ALL && r->magic)
        message_loop(r, ALL, 1);
    else if (want == ALL)
        message_loop(r, ALL, 0);
    else if (want == (ALL | KTS_VIEWS) && r->magic)
        message_loop(r, ALL | KTS_VIEWS, 1);
    else if (want == (ALL | KTS_VIEWS))
        message_loop(r, ALL | KTS_VIEWS, 0);
    else if (want == (KTS_CRC | KTS_CHECK) && r->magic)
        message_loop(r, KTS_CRC | KTS_CHECK, 1);
    else if (want == (KTS_CRC | KTS_CHECK))
        message_loop(r, KTS_CRC | KTS_CHECK, 0);
    else
        message_loop(r, want & ~KTS_CHECK, r->magic);
}
