#include "clean.h"

#include "records.h"

#include <stdlib.h>

enum { ABORT_MARKER = 0, COMMIT_MARKER = 1, OTHER_MARKER = -1, ROWS_AT_ONCE = 32 };

static int no_memory(struct kts_error *err) { return kts_fail(err, KTS_NO_MEMORY, 0, 0); }

/* --- producers and their transactions -------------------------------------------------------------------- */

static struct kts_producer *place_of(struct kts_producer *table, int64_t room, int64_t id) {
    uint64_t hash = (uint64_t)id * 0x9E3779B97F4A7C15u;
    int64_t at = (int64_t)(hash >> 32) & (room - 1);
    while (table[at].id != -1 && table[at].id != id)
        at = (at + 1) & (room - 1);
    return table + at;
}

static struct kts_producer *known(const struct kts_producers *t, int64_t id) {
    struct kts_producer *p;
    if (t->room == 0 || id < 0)
        return NULL;
    p = place_of(t->table, t->room, id);
    return p->id == id ? p : NULL;
}

/* The producer, added if it is new; NULL without memory. */
static struct kts_producer *producer(struct kts_producers *t, int64_t id) {
    struct kts_producer *p, *table;
    int64_t room, i;
    if (2 * (t->count + 1) > t->room) {
        room = t->room ? 2 * t->room : 64;
        table = malloc((size_t)room * sizeof(struct kts_producer));
        if (table == NULL)
            return NULL;
        for (i = 0; i < room; i++)
            table[i].id = -1;
        for (i = 0; i < t->room; i++)
            if (t->table[i].id != -1)
                *place_of(table, room, t->table[i].id) = t->table[i];
        free(t->table);
        t->table = table;
        t->room = room;
    }
    p = place_of(t->table, t->room, id);
    if (p->id == -1) {
        *p = (struct kts_producer){.id = id, .aborted = -1, .last_data = -1};
        t->count += 1;
    }
    return p;
}

void kts_forget_producers(struct kts_producers *t) {
    free(t->table);
    free(t->aborted);
    memset(t, 0, sizeof(*t));
}

void kts_no_active_producers(struct kts_producers *t) {
    int64_t i;
    for (i = 0; i < t->room; i++)
        t->table[i].active = 0;
}

int kts_add_active_producer(struct kts_producers *t, int64_t id, int epoch, int64_t last_data) {
    struct kts_producer *const p = producer(t, id);
    if (p == NULL)
        return KTS_FAILED;
    p->active = 1;
    p->epoch = (int16_t)epoch;
    p->last_data = last_data;
    return KTS_OK;
}

static int by_first_offset(const void *a, const void *b) {
    const int64_t x = ((const struct kts_aborted *)a)->first, y = ((const struct kts_aborted *)b)->first;
    return x < y ? -1 : x > y;
}

int kts_add_aborted(struct kts_producers *t, const struct kts_aborted *found, int64_t count) {
    struct kts_aborted *list = t->aborted;
    const int64_t need = t->aborted_count + count;
    if (count == 0)
        return KTS_OK;
    if (need > t->aborted_room) {
        list = realloc(list, (size_t)(2 * need) * sizeof(struct kts_aborted));
        if (list == NULL)
            return KTS_FAILED;
        t->aborted = list;
        t->aborted_room = 2 * need;
    }
    memcpy(list + t->aborted_count, found, (size_t)count * sizeof(struct kts_aborted));
    t->aborted_count = need;
    for (int64_t i = need - count; i < need; i++)
        if (i > t->next && by_first_offset(list + i - 1, list + i) > 0) {
            qsort(list + t->next, (size_t)(need - t->next), sizeof(struct kts_aborted), by_first_offset);
            break;
        }
    return KTS_OK;
}

/* The aborted transactions that begin up to an offset are open from now on. */
static int begin_aborted(struct kts_producers *t, int64_t offset) {
    struct kts_producer *p;
    for (; t->next < t->aborted_count && t->aborted[t->next].first <= offset; t->next++) {
        p = producer(t, t->aborted[t->next].producer);
        if (p == NULL)
            return KTS_FAILED;
        if (p->aborted < 0) {
            p->aborted = t->next;
            p->met = 0;
        }
    }
    return KTS_OK;
}

/* A data batch: whether it belongs to an aborted transaction, 1 or 0; or KTS_FAILED without memory. */
static int data_batch(struct kts_producers *t, const struct kts_entry *e) {
    struct kts_producer *p;
    if (begin_aborted(t, kts_last_offset(e)))
        return KTS_FAILED;
    if (e->magic < 2 || !(e->attributes & KTS_TRANSACTIONAL) || e->producer_id < 0)
        return 0;
    p = producer(t, e->producer_id);
    if (p == NULL)
        return KTS_FAILED;
    if (p->aborted >= 0) {
        p->met = 1;
        return 1;
    }
    p->commits = 1;
    return 0;
}

/* The type of the first record of a control batch, whose records are p[0:n]: KTS_OK or KTS_FAILED; *empty if it has none. */
static int marker_type(const struct kts_entry *e, const uint8_t *p, int64_t n, int *type, int *empty, struct kts_error *err) {
    struct kts_record r;
    *empty = e->count <= 0;
    *type = OTHER_MARKER;
    if (*empty)
        return KTS_OK;
    if (kts_read_record(&p, p + n, p + n, KTS_KEYS | KTS_VALUES | KTS_REST, 1, NULL, &r, err))
        return KTS_FAILED;
    if (r.key_size < 4)
        return kts_fail(err, KTS_KEY, r.key_size, 4);
    if (r.key[2] == 0 && r.key[3] <= COMMIT_MARKER)
        *type = r.key[3];
    return KTS_OK;
}

/* A control batch: whether it may go, 1 or 0; or KTS_FAILED. `listed`: the marker's transaction, if it must stay. */
static int control_batch(struct kts_producers *t, const struct kts_entry *e, const uint8_t *p, int64_t n,
                         const struct kts_aborted **listed, struct kts_error *err) {
    struct kts_producer *of;
    int type, empty, met;
    *listed = NULL;
    if (begin_aborted(t, kts_last_offset(e)))
        return no_memory(err);
    if (marker_type(e, p, n, &type, &empty, err))
        return KTS_FAILED;
    of = known(t, e->producer_id);
    if (empty)
        return 1;
    if (type == ABORT_MARKER) {
        if (of == NULL || of->aborted < 0)
            return 1;
        met = of->met;
        if (met)
            *listed = t->aborted + of->aborted;
        of->aborted = -1;
        return !met;
    }
    if (type == COMMIT_MARKER) {
        met = of != NULL && of->commits;
        if (met)
            of->commits = 0;
        return !met;
    }
    return 0;
}

/* --- the map --------------------------------------------------------------------------------------------- */

struct row { /* what decides whether a record stays */
    struct kts_hash hash;
    int64_t offset;
    int has_key;
    int has_value;
};

static inline void see_key(const struct kts_cleaning *c, struct row *row, const uint8_t *key, int64_t size) {
    row->has_key = size >= 0;
    if (size >= 0) {
        kts_hash_of(c->map.secret, key, size, &row->hash);
        kts_prefetch(c->map.slots + kts_map_home(&c->map, &row->hash));
    }
}

/* Checks the count of a batch against the n bytes of its records. */
static int check_count(const struct kts_entry *e, int64_t n, struct kts_error *err) {
    err->count = e->count;
    if (e->count < 0)
        return kts_fail(err, KTS_NEGATIVE_COUNT, e->count, 0);
    if ((int64_t)e->count * KTS_SMALLEST_RECORD > n)
        return kts_fail(err, KTS_COUNT_LEFT, e->count, n);
    return e->count == 0 && n ? kts_fail(err, KTS_RECORDS_LEFT, 0, n) : KTS_OK;
}

/* Reads up to ROWS_AT_ONCE records of batch e from *at on; `hashes`: with their keys. Returns how many, or KTS_FAILED. */
static int batch_rows(const struct kts_cleaning *c, const struct kts_entry *e, const uint8_t **at, const uint8_t *end,
                      int64_t first, int hashes, struct row *rows, struct kts_error *err) {
    const int64_t left = e->count - first;
    const int count = left < ROWS_AT_ONCE ? (int)left : ROWS_AT_ONCE;
    struct kts_record r;
    int i;
    for (i = 0; i < count; i++) {
        err->record = first + i;
        if (kts_read_record(at, end, end, KTS_KEYS | KTS_VALUES | KTS_REST, 1, NULL, &r, err))
            return KTS_FAILED;
        rows[i].offset = kts_plus(e->offset, r.offset_delta);
        rows[i].has_value = r.value_size >= 0;
        rows[i].has_key = 0;
        if (hashes)
            see_key(c, rows + i, r.key, r.key_size);
    }
    err->record = -1;
    return count;
}

/* The same of inner messages; 0 at the end. Their offsets are to be added to `base`. */
static int message_rows(const struct kts_cleaning *c, const uint8_t **at, const uint8_t *end, int64_t base, int64_t first,
                        struct row *rows, int *magics, struct kts_error *err) {
    struct kts_entry inner;
    int32_t stated = 0;
    int i, status;
    for (i = 0; i < ROWS_AT_ONCE; i++) {
        inner.p = *at;
        status = kts_inner_size(inner.p, end - inner.p, &inner.size, &stated);
        if (status == KTS_END)
            break;
        err->record = first + i;
        if (status == KTS_FAILED)
            return kts_fail(err, KTS_SHORT_INNER, stated, KTS_V0_LEAST);
        if (kts_inner_message(&inner, c->verify, err))
            return KTS_FAILED;
        rows[i].offset = kts_plus(base, inner.offset);
        rows[i].has_value = inner.payload != NULL;
        *magics |= 1 << inner.magic;
        see_key(c, rows + i, inner.key, inner.key_size);
        *at += inner.size;
    }
    err->record = -1;
    return i;
}

/* What is to be added to the inner offsets of wrapper e, whose messages are p[0:n]: KTS_OK or KTS_FAILED. */
static int inner_base(const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t *base, struct kts_error *err) {
    int64_t first;
    err->count = -1;
    if (kts_first_inner_offset(p, n, e, &first, err))
        return KTS_FAILED;
    *base = kts_minus(first, kts_i64(p));
    return KTS_OK;
}

/* Maps the keys of some records: KTS_OK, KTS_FULL or KTS_FAILED. */
static int map_rows(struct kts_cleaning *c, const struct row *rows, int count, struct kts_error *err) {
    int i, status;
    for (i = 0; i < count; i++) {
        if (rows[i].has_key && rows[i].offset >= c->start) {
            status = kts_map_put(&c->map, &rows[i].hash, rows[i].offset);
            if (status != KTS_OK)
                return status == KTS_FULL ? KTS_FULL : no_memory(err);
        }
        c->done.mapped_records += 1;
    }
    return KTS_OK;
}

static int map_records(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n,
                       struct kts_error *err) {
    const uint8_t *const end = p + n;
    struct row rows[ROWS_AT_ONCE];
    int64_t done = 0, base;
    int count, status, magics = 0;
    if (e->magic == 2) {
        if (check_count(e, n, err))
            return KTS_FAILED;
        while (done < e->count) {
            if ((count = batch_rows(c, e, &p, end, done, 1, rows, err)) < 0)
                return KTS_FAILED;
            if ((status = map_rows(c, rows, count, err)) != KTS_OK)
                return status;
            done += count;
        }
        return p == end ? KTS_OK : kts_fail(err, KTS_RECORDS_LEFT, e->count, end - p);
    }
    if (inner_base(e, p, n, &base, err))
        return KTS_FAILED;
    while ((count = message_rows(c, &p, end, base, done, rows, &magics, err)) > 0) {
        if ((status = map_rows(c, rows, count, err)) != KTS_OK)
            return status;
        done += count;
    }
    return count;
}

static int map_message(struct kts_cleaning *c, const struct kts_entry *e, struct kts_error *err) {
    struct row row = {.offset = e->offset};
    see_key(c, &row, e->key, e->key_size);
    return map_rows(c, &row, 1, err);
}

static void mapped(struct kts_cleaning *c, const struct kts_entry *e, int64_t *at) {
    if (kts_last_offset(e) >= c->start)
        c->map.latest = kts_last_offset(e);
    *at += e->size;
}

/* A control batch changes the state of transactions, and has no keys. */
static int map_control(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n,
                       struct kts_error *err) {
    const struct kts_aborted *listed;
    c->done.mapped_records += 1;
    return control_batch(&c->producers, e, p, n, &listed, err) == KTS_FAILED ? KTS_FAILED : KTS_OK;
}

static inline int is_control(const struct kts_entry *e) { return e->magic == 2 && e->attributes & KTS_CONTROL; }

/* Whether an entry must be decompressed; an emptied batch keeps no codec, and has nothing to decompress. */
static inline int is_packed(const struct kts_entry *e) {
    return e->codec != 0 && !(e->magic == 2 && e->count == 0 && e->payload_size == 0);
}

static int next_checked(const struct kts_cleaning *c, const uint8_t *data, int64_t size, int64_t at,
                        struct kts_entry *e, struct kts_error *err) {
    const int status = kts_next_entry(data, size, at, e, err);
    return status == KTS_OK && kts_check_entry(e, c->verify, err) ? KTS_FAILED : status;
}

int kts_map_entries(struct kts_cleaning *c, const uint8_t *data, int64_t size, int64_t *at, struct kts_entry *e,
                    struct kts_error *err) {
    int status;
    for (;;) {
        status = next_checked(c, data, size, *at, e, err);
        if (status != KTS_OK)
            return status;
        if (is_control(e)) {
            if (is_packed(e))
                return KTS_INFLATE;
            status = map_control(c, e, e->payload, e->payload_size, err);
        } else {
            status = data_batch(&c->producers, e);
            if (status == KTS_FAILED)
                return no_memory(err);
            if (status) {
                c->done.mapped_records += e->count;
                status = KTS_OK;
            } else if (is_packed(e)) {
                return KTS_INFLATE;
            } else {
                status = e->magic == 2 ? map_records(c, e, e->payload, e->payload_size, err) : map_message(c, e, err);
            }
        }
        if (status != KTS_OK)
            return status;
        mapped(c, e, at);
    }
}

int kts_map_inflated(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t *at,
                     struct kts_error *err) {
    const int status = is_control(e) ? map_control(c, e, p, n, err) : map_records(c, e, p, n, err);
    if (status == KTS_OK)
        mapped(c, e, at);
    return status;
}

/* --- which records stay ---------------------------------------------------------------------------------- */

static inline int has_horizon(const struct kts_entry *e) { return e->magic == 2 && e->attributes & KTS_DELETE_HORIZON; }

/* Whether an entry has the last sequence of a producer that the log knows, or, if that is unknown, its epoch. */
static int ends_producer(const struct kts_producers *t, const struct kts_entry *e) {
    const struct kts_producer *const p = known(t, e->producer_id);
    if (p == NULL || !p->active)
        return 0;
    return p->last_data >= 0 ? kts_last_offset(e) == p->last_data : is_control(e) && e->producer_epoch == p->epoch;
}

/* Decides what may become of the entry: KTS_OK or KTS_FAILED. The records p[0:n] are read of a control batch alone. */
static int judge_entry(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n,
                       struct kts_error *err) {
    const struct kts_aborted *listed = NULL;
    const int may_go = is_control(e) ? control_batch(&c->producers, e, p, n, &listed, err) : data_batch(&c->producers, e);
    if (may_go == KTS_FAILED)
        return is_control(e) ? KTS_FAILED : no_memory(err);
    if (listed != NULL) {
        const int64_t size = (int64_t)sizeof(struct kts_aborted) * (c->listed_count + 1);
        if (kts_grow(&c->listed, size))
            return no_memory(err);
        ((struct kts_aborted *)(void *)c->listed.p)[c->listed_count++] = *listed;
    }
    c->removable_marker = is_control(e) && may_go;
    c->discard = may_go && (!is_control(e) || (has_horizon(e) && e->base_timestamp <= c->now));
    if (e->producer_id >= 0 && ends_producer(&c->producers, e))
        c->retention_of_entry = KTS_KEEP_EMPTY;
    else if (kts_plus(kts_last_offset(e), 1) == c->end)
        c->retention_of_entry = KTS_KEEP_EMPTY; /* so that the end of what was cleaned is not lost */
    else
        c->retention_of_entry = c->discard ? KTS_DELETE : KTS_DELETE_EMPTY;
    return KTS_OK;
}

/* Whether a record of the entry stays. */
static inline int stays(struct kts_cleaning *c, const struct kts_entry *e, const struct row *row) {
    int late;
    if (c->discard) {
        *(is_control(e) ? &c->done.markers : &c->done.aborted) += 1;
        return 0;
    }
    if (is_control(e)) {
        c->done.kept_markers += 1;
        return 1;
    }
    if (row->offset > c->map.latest) {
        c->done.unmapped += 1;
        c->done.kept_tombstones += !row->has_value;
        return 1;
    }
    if (!row->has_key) {
        c->done.without_key += 1;
        return 0;
    }
    if (row->offset < kts_map_get(&c->map, &row->hash)) {
        c->done.superseded += 1;
        return 0;
    }
    if (row->has_value)
        return 1;
    late = e->magic == 2 ? has_horizon(e) && e->base_timestamp <= c->now : !c->keep_deletes;
    *(late ? &c->done.tombstones : &c->done.kept_tombstones) += 1;
    return !late;
}

struct choice { /* of the records of an entry */
    int64_t records;
    int64_t kept;
    int tombstones; /* one that is kept has no value */
};

static int choose(struct kts_cleaning *c, const struct kts_entry *e, const struct row *rows, int count, struct choice *to,
                  struct kts_error *err) {
    int i, keep;
    if (kts_grow(&c->kept, to->records + count))
        return no_memory(err);
    for (i = 0; i < count; i++) {
        keep = stays(c, e, rows + i);
        c->kept.p[to->records + i] = (uint8_t)keep;
        to->kept += keep;
        to->tombstones |= keep && !rows[i].has_value;
    }
    to->records += count;
    return KTS_OK;
}

/* --- what is written ------------------------------------------------------------------------------------- */

static inline int later(const struct kts_cleaning *c, int64_t time, int64_t than) {
    if (KTS_LIKELY(!c->negative))
        return time > than;
    return time != c->none && (than == c->none || time > than);
}

static int copy_entry(struct kts_cleaning *c, const struct kts_entry *e, int64_t records, struct kts_error *err) {
    if (kts_grow(&c->out, c->out_end + e->size))
        return no_memory(err);
    memcpy(c->out.p + c->out_end, e->p, (size_t)e->size);
    c->out_end += e->size;
    c->done.bytes_written += e->size;
    c->done.records_written += records;
    return KTS_OK;
}

/* The header of batch e rewritten: what stays of it. */
static void head_of(struct kts_cleaning *c, const struct kts_entry *e) {
    const int own = KTS_LOG_APPEND_TIME | KTS_TRANSACTIONAL | KTS_CONTROL | (c->negative ? KTS_HAS_TIMESTAMP : 0);
    c->head = (struct kts_head){
        .attributes = (int16_t)(e->attributes & own),
        .offset = e->offset,
        .last_offset_delta = e->last_offset_delta,
        .leader_epoch = e->leader_epoch,
        .producer_id = e->producer_id,
        .producer_epoch = e->producer_epoch,
        .base_sequence = e->base_sequence,
    };
}

static int put_empty(struct kts_cleaning *c, const struct kts_entry *e, struct kts_error *err) {
    if (kts_grow(&c->out, c->out_end + KTS_BATCH_HEADER))
        return no_memory(err);
    head_of(c, e);
    c->head.base_timestamp = -1;
    c->head.max_timestamp = e->max_timestamp;
    kts_put_batch(c->out.p + c->out_end, KTS_BATCH_HEADER, &c->head, 0);
    c->out_end += KTS_BATCH_HEADER;
    c->done.bytes_written += KTS_BATCH_HEADER;
    c->done.emptied += 1;
    return KTS_OK;
}

static inline uint8_t *put_string(uint8_t *to, const uint8_t *p, int64_t n) {
    to = kts_put_varint(to, n);
    if (n > 0)
        memcpy(to, p, (size_t)n);
    return to + (n > 0 ? n : 0);
}

/* Writes a record that was read, with other deltas. Returns its end. */
static uint8_t *put_record(uint8_t *to, const struct kts_record *r, int64_t time_delta, int *prefix) {
    const uint8_t *p = r->value + (r->value_size > 0 ? r->value_size : 0); /* the headers */
    uint8_t *const start = to, *body;
    int32_t i, size;
    if (KTS_LIKELY(r->headers == 0)) {
        const struct kts_string key = {r->key, r->key_size, r->stop}, value = {r->value, r->value_size, r->stop};
        return to + kts_put_record(to, prefix, time_delta, r->offset_delta, &key, &value);
    }
    body = to = start + 5; /* room for the length */
    *to++ = 0;
    to = kts_put_varint(to, time_delta);
    to = kts_put_varint(to, r->offset_delta);
    to = put_string(to, r->key, r->key_size);
    to = put_string(to, r->value, r->value_size);
    kts_varint(&p, r->stop, &size);
    to = kts_put_varint(to, size);
    for (i = 0; i < 2 * r->headers; i++) { /* keys and values */
        kts_varint(&p, r->stop, &size);
        to = put_string(to, p, size < 0 ? -1 : size);
        p += size > 0 ? size : 0;
    }
    p = kts_put_varint(start, to - body);
    memmove(start + (p - start), body, (size_t)(to - body));
    return start + (p - start) + (to - body);
}

enum { RECORD_GROWS = 24 }; /* bytes: a time delta, and a length */

/* Writes the chosen records p[0:n] of batch e: KTS_OK, KTS_STOP if they are to be compressed, or KTS_FAILED. */
static int rewrite_batch(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n,
                         const struct choice *chosen, int new_horizon, struct kts_error *err) {
    const int append_time = (e->attributes & KTS_LOG_APPEND_TIME) != 0;
    const int64_t need = n + (int64_t)RECORD_GROWS * chosen->kept + KTS_BATCH_HEADER + 2 * KTS_SLACK;
    struct kts_buf *const buf = e->codec ? &c->body : &c->out;
    const int64_t begin = e->codec ? 0 : c->out_end;
    const uint8_t *const end = p + n;
    int64_t horizon = new_horizon ? kts_plus(c->now, c->retention) : has_horizon(e) ? e->base_timestamp : -1;
    int64_t time, i;
    struct kts_record r;
    uint8_t *to;
    int prefix = 1, first = 1;
    if (kts_grow(buf, begin + need))
        return no_memory(err);
    to = buf->p + begin + (e->codec ? 0 : KTS_BATCH_HEADER);
    head_of(c, e);
    c->head.attributes |= (int16_t)e->codec;
    c->head.max_timestamp = append_time ? e->max_timestamp : c->negative ? c->none : -1;
    if (horizon >= 0) {
        c->head.attributes |= KTS_DELETE_HORIZON;
        c->head.base_timestamp = horizon;
    }
    for (i = 0; i < chosen->records; i++) {
        if (kts_read_record(&p, end, end, KTS_KEYS | KTS_VALUES | KTS_REST, 1, NULL, &r, err))
            return KTS_FAILED;
        if (!c->kept.p[i])
            continue;
        time = append_time ? e->max_timestamp : kts_plus(e->base_timestamp, r.time_delta);
        if (first && horizon < 0)
            c->head.base_timestamp = time;
        first = 0;
        if (!append_time && later(c, time, c->head.max_timestamp))
            c->head.max_timestamp = time;
        to = put_record(to, &r, kts_minus(time, c->head.base_timestamp), &prefix);
    }
    c->magic = 2;
    c->count = (int32_t)chosen->kept;
    c->done.rewritten += 1;
    c->done.records_written += chosen->kept;
    if (e->codec) {
        c->body_end = to - buf->p;
        return KTS_STOP;
    }
    kts_put_batch(buf->p + begin, to - buf->p - begin, &c->head, c->count);
    c->done.bytes_written += to - buf->p - begin;
    c->out_end = to - buf->p;
    return KTS_OK;
}

/* The same for the inner messages p[0:n] of wrapper e, all of which get its magic and timestamp type. */
static int rewrite_wrapper(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t base,
                           const struct choice *chosen, struct kts_error *err) {
    const int append_time = e->magic && e->attributes & KTS_LOG_APPEND_TIME;
    const uint8_t *const end = p + n;
    int64_t i, time, offset, first = -1, top = c->negative ? c->none : -1;
    struct kts_entry inner;
    struct kts_string key, value;
    int32_t stated;
    uint8_t *to;
    if (kts_grow(&c->body, n + 8 * chosen->kept + 2 * KTS_SLACK)) /* a message of magic 0 may become one of magic 1 */
        return no_memory(err);
    to = c->body.p;
    c->head = (struct kts_head){.attributes = (int16_t)(e->codec | (append_time ? KTS_LOG_APPEND_TIME : 0))};
    for (i = 0, inner.p = p; i < chosen->records; i++, inner.p += inner.size) {
        if (kts_inner_size(inner.p, end - inner.p, &inner.size, &stated) || kts_inner_message(&inner, 0, err))
            return KTS_FAILED;
        if (!c->kept.p[i])
            continue;
        offset = kts_plus(base, inner.offset);
        if (first < 0)
            first = offset;
        time = append_time ? e->max_timestamp : inner.max_timestamp;
        if (e->magic && later(c, time, top))
            top = time;
        key = (struct kts_string){inner.key, inner.key_size, end};
        value = (struct kts_string){inner.payload, inner.payload == NULL ? -1 : inner.payload_size, end};
        to += kts_put_message(to, e->magic, append_time ? KTS_LOG_APPEND_TIME : 0,
                              e->magic ? kts_minus(offset, first) : offset, time, &key, &value);
        c->head.offset = offset;
    }
    c->head.max_timestamp = append_time ? e->max_timestamp : top;
    c->magic = e->magic;
    c->body_end = to - c->body.p;
    c->done.rewritten += 1;
    c->done.records_written += chosen->kept;
    return KTS_STOP;
}

int kts_put_compressed(struct kts_cleaning *c, const uint8_t *p, int64_t n) {
    const struct kts_string key = {NULL, -1, NULL}, value = {p, n, p + n};
    const int64_t size = c->magic == 2 ? KTS_BATCH_HEADER + n : kts_message_size(c->magic, -1, n);
    uint8_t *to;
    if (size - KTS_OVERHEAD > KTS_LARGEST_ENTRY)
        return KTS_HUGE;
    if (kts_grow(&c->out, c->out_end + size + KTS_SLACK))
        return KTS_FAILED;
    to = c->out.p + c->out_end;
    if (c->magic == 2) {
        memcpy(to + KTS_BATCH_HEADER, p, (size_t)n);
        kts_put_batch(to, size, &c->head, c->count);
    } else {
        kts_put_message(to, c->magic, c->head.attributes, c->head.offset, c->head.max_timestamp, &key, &value);
    }
    c->out_end += size;
    c->done.bytes_written += size;
    return KTS_OK;
}

/* --- an entry -------------------------------------------------------------------------------------------- */

/* What becomes of an entry without records to keep. */
static int leave_out(struct kts_cleaning *c, const struct kts_entry *e, int64_t records, struct kts_error *err) {
    if (c->retention_of_entry != KTS_KEEP_EMPTY)
        return KTS_OK;
    if (e->magic == 2)
        return put_empty(c, e, err);
    return c->keep_last ? copy_entry(c, e, records, err) : kts_fail(err, KTS_EMPTIED, e->magic, 0);
}

/* Filters batch or wrapper e, whose records are p[0:n]: KTS_OK, KTS_STOP or KTS_FAILED. */
static int filter_records(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n,
                          struct kts_error *err) {
    const uint8_t *const end = p + n, *at = p;
    struct row rows[ROWS_AT_ONCE];
    struct choice chosen = {0};
    int64_t base = 0;
    int count = 0, magics = 0, new_horizon;
    if (e->magic == 2) {
        if (check_count(e, n, err))
            return KTS_FAILED;
        while (chosen.records < e->count) {
            count = batch_rows(c, e, &at, end, chosen.records, !c->discard && !is_control(e), rows, err);
            if (count < 0 || choose(c, e, rows, count, &chosen, err))
                return KTS_FAILED;
        }
        if (at != end)
            return kts_fail(err, KTS_RECORDS_LEFT, e->count, end - at);
    } else {
        if (inner_base(e, p, n, &base, err))
            return KTS_FAILED;
        while ((count = message_rows(c, &at, end, base, chosen.records, rows, &magics, err)) > 0)
            if (choose(c, e, rows, count, &chosen, err))
                return KTS_FAILED;
        if (count < 0)
            return KTS_FAILED;
    }
    c->done.records_read += chosen.records;
    if (chosen.kept == 0)
        return leave_out(c, e, chosen.records, err);
    new_horizon = e->magic == 2 && !has_horizon(e) && (chosen.tombstones || c->removable_marker);
    if (e->magic == 2 && (chosen.kept < chosen.records || new_horizon))
        return rewrite_batch(c, e, p, n, &chosen, new_horizon, err);
    if (e->magic < 2 && (chosen.kept < chosen.records || magics != 1 << e->magic))
        return rewrite_wrapper(c, e, p, n, base, &chosen, err);
    return copy_entry(c, e, chosen.kept, err);
}

/* Filters an uncompressed message of magic 0 or 1. */
static int filter_message(struct kts_cleaning *c, const struct kts_entry *e, struct kts_error *err) {
    struct row row = {.offset = e->offset, .has_value = e->payload != NULL};
    see_key(c, &row, e->key, e->key_size);
    c->done.records_read += 1;
    return stays(c, e, &row) ? copy_entry(c, e, 1, err) : leave_out(c, e, 1, err);
}

static void filtered(struct kts_cleaning *c, const struct kts_entry *e, int64_t *at) {
    c->done.bytes_read += e->size;
    *at += e->size;
}

/* Whether a judged entry goes unread. */
static int goes(struct kts_cleaning *c, const struct kts_entry *e) {
    if (c->retention_of_entry != KTS_DELETE)
        return 0;
    *(is_control(e) ? &c->done.markers : &c->done.aborted) += e->count > 0 ? e->count : 0;
    return 1;
}

int kts_filter_entries(struct kts_cleaning *c, const uint8_t *data, int64_t size, int64_t *at, struct kts_entry *e,
                       struct kts_error *err) {
    int status;
    for (;;) {
        status = next_checked(c, data, size, *at, e, err);
        if (status != KTS_OK)
            return status;
        if (is_control(e) && is_packed(e))
            return KTS_INFLATE;
        if (judge_entry(c, e, e->payload, e->payload_size, err))
            return KTS_FAILED;
        if (!goes(c, e)) {
            if (is_packed(e))
                return KTS_INFLATE;
            if (e->magic == 2)
                status = filter_records(c, e, e->payload, e->payload_size, err);
            else
                status = filter_message(c, e, err);
            if (status != KTS_OK)
                return status;
        }
        filtered(c, e, at);
    }
}

int kts_filter_inflated(struct kts_cleaning *c, const struct kts_entry *e, const uint8_t *p, int64_t n, int64_t *at,
                        struct kts_error *err) {
    int status = KTS_OK;
    if (is_control(e) && judge_entry(c, e, p, n, err))
        return KTS_FAILED;
    if (!goes(c, e))
        status = filter_records(c, e, p, n, err);
    if (status != KTS_FAILED)
        filtered(c, e, at);
    return status;
}

void kts_cleaning_free(struct kts_cleaning *c) {
    kts_map_free(&c->map);
    kts_forget_producers(&c->producers);
    free(c->kept.p);
    free(c->out.p);
    free(c->body.p);
    free(c->listed.p);
}
