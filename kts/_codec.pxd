"""What the compiled core in kts/native declares, as far as its surface uses it."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "platform.h" nogil:
    int KTS_SLACK
    int kts_add(int* p, int v)
    int64_t kts_get(int64_t* p)
    void kts_set(int64_t* p, int64_t v)
    void* kts_swap(void** p, void* v)
    bint kts_offer(void** p, void* v)

cdef extern from "status.h" nogil:
    int KTS_FAILED, KTS_OK, KTS_END, KTS_STOP, KTS_INFLATE, KTS_BASE, KTS_FULL, KTS_CRAMPED, KTS_HUGE

cdef extern from "refusals.h" nogil:
    int KTS_FINE, KTS_PAYLOAD, KTS_SKIPPED, KTS_WRITER_TRANSACTION, KTS_PRODUCER_STATE, KTS_CODEC_FORMAT, KTS_NOTHING
    int KTS_WRAPPER_CODEC, KTS_BAD_FIELDS, KTS_EMPTIED, KTS_NO_MEMORY, KTS_COLUMN_FULL
    const char** kts_reasons

cdef extern from "codecs.h" nogil:
    int KTS_CODECS_END
    const char** kts_codec_names
    bint kts_carries(int magic, int codec)

cdef extern from "format.h" nogil:
    int KTS_OVERHEAD, KTS_SIZE_AT, KTS_MAGIC_AT, KTS_V0_LEAST, KTS_V1_LEAST, KTS_MESSAGE_ATTRIBUTES_AT
    int KTS_BATCH_FLAGS_AT, KTS_BATCH_BASE_TIME_AT, KTS_BATCH_PRODUCER_AT, KTS_BATCH_PRODUCER_EPOCH_AT
    int KTS_BATCH_SEQUENCE_AT, KTS_BATCH_HEADER, KTS_BATCH_EPOCH_AT, KTS_OFFSET_AT
    int KTS_CODEC_MASK, KTS_LOG_APPEND_TIME, KTS_TRANSACTIONAL, KTS_CONTROL, KTS_DELETE_HORIZON, KTS_HAS_TIMESTAMP
    int KTS_LARGEST_ENTRY
    uint16_t kts_be16(const uint8_t* p)
    uint32_t kts_be32(const uint8_t* p)
    uint32_t kts_le32(const uint8_t* p)
    int32_t kts_i32(const uint8_t* p)
    int64_t kts_i64(const uint8_t* p)
    void kts_put32(uint8_t* p, uint32_t v)
    void kts_put64(uint8_t* p, uint64_t v)

cdef extern from "crc.h" nogil:
    void kts_crc_init()
    uint32_t kts_crc32c(const uint8_t* p, size_t n)
    uint32_t kts_crc32(const uint8_t* p, size_t n)

cdef extern from "columns.h" nogil:
    struct ArrowArray:
        int64_t n_children
        ArrowArray** children
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    struct Buf "kts_buf":
        uint8_t* p
        int64_t cap
    struct Text "kts_text":
        int64_t rows
    struct Slab "kts_slab":
        int64_t rows
        Buf* fixed
        Text key
        Text value
        Buf kept
        Buf bases
        Buf sizes
        int n_kept
    const char** kts_column_names
    int KTS_STORED_COLUMNS
    int KTS_C_OFFSET, KTS_C_TIMESTAMP, KTS_C_SEQUENCE, KTS_C_MAGIC, KTS_C_CODEC, KTS_C_PRODUCER, KTS_C_PRODUCER_EPOCH
    int KTS_C_LEADER_EPOCH, KTS_C_TRANSACTIONAL, KTS_C_CONTROL, KTS_C_POSITION, KTS_C_CREATE_TIME, KTS_C_BASE_OFFSET
    int KTS_C_LAST_DELTA, KTS_C_BASE_TIME, KTS_C_MAX_TIME, KTS_C_TYPE, KTS_C_IS_BATCH, KTS_C_SHALLOW, KTS_C_SIZE
    int KTS_C_CRC_OK, KTS_C_OWN_TIME
    int kts_grow(Buf* b, int64_t need)
    Slab* kts_slab_take(int64_t input_bytes)
    void kts_slab_unref(Slab* s, void (*drop_kept)(Slab*) noexcept nogil)
    void kts_set_mark(Slab* s)
    void kts_take_back(Slab* s)
    int64_t* kts_longs(Slab* s, int column)
    ArrowArray* kts_export(Slab* s, const uint8_t* ids, int n, int views, uint32_t nullable,
                           void (*release)(ArrowArray*) noexcept nogil)

cdef extern from "entries.h" nogil:
    struct Err "kts_error":
        int reason
        int64_t position, offset, record, count, a, b
    struct CEntry "kts_entry":
        const uint8_t* p
        int64_t position, size
        int magic, codec
        int16_t attributes
        int64_t offset
        int64_t base_timestamp, max_timestamp
        int32_t leader_epoch
        int64_t producer_id
        int16_t producer_epoch
        int32_t base_sequence
        int32_t count
        const uint8_t* payload
        int64_t payload_size
        const uint8_t* key
        int crc_ok
    struct Row "kts_row":
        int64_t position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id
        int32_t size, count, leader_epoch, base_sequence
        int16_t attributes, producer_epoch
        int8_t magic, codec, timestamp_type, crc_ok
        uint8_t transactional, control
    void kts_row_of(const CEntry* e, int crc_ok, Row* row)
    int KTS_GENERATION_3_9
    int kts_fail(Err* err, int reason, int64_t a, int64_t b)
    int kts_entry_size(const uint8_t* p, int64_t left, int generation, int64_t* size, Err* err)
    int kts_read_header(const uint8_t* data, int64_t size, int64_t position, CEntry* e, Err* err)
    int kts_next_entry(const uint8_t* data, int64_t size, int64_t position, CEntry* e, Err* err)
    int kts_wrapper_value(CEntry* e, Err* err)
    int kts_first_inner_offset(const uint8_t* p, int64_t n, const CEntry* outer, int64_t* offset, Err* err)
    bint kts_crc_ok(const CEntry* e, Err* err)
    int64_t kts_last_offset(const CEntry* e)
    int32_t kts_type_of(const CEntry* e)

cdef extern from "decode.h" nogil:
    int KTS_REST
    struct Pass "kts_pass":
        const uint8_t* data
        int64_t size, position
        uint32_t want
        int records, views, verify
        const uint8_t* base
        int32_t buffer
    int kts_wanted_of_records(uint32_t want, int views, int verify)
    int kts_decode(Pass* d, Slab* s, int64_t stop, CEntry* e, Err* err)
    int kts_decode_inflated(Pass* d, Slab* s, const CEntry* e, const uint8_t* p, int64_t n, Err* err)
    int kts_scan(const uint8_t* data, int64_t size, uint32_t want, Slab* s, Err* err)
    int kts_columns_of_rows(const Row* rows, int64_t count, uint32_t want, Slab* s)

cdef extern from "write.h" nogil:
    struct Strings "kts_strings":
        const int32_t* offsets
        const uint8_t* data
        const uint8_t* end
        const uint8_t* valid
        int64_t shift
    struct Rows "kts_rows":
        int64_t count
        const int64_t* offsets
        const int64_t* times
        Strings key
        Strings value
        const int32_t* headers
        int64_t header_shift
        Strings header_key
        Strings header_value
    struct String "kts_string":
        const uint8_t* p
        int64_t n
        const uint8_t* end
    struct Sink "kts_sink":
        uint8_t* p
        int64_t cap, end, need
    int KTS_FOLLOWS_OFFSET, KTS_FOLLOWS_DELTA, KTS_FOLLOWS_BASE, KTS_FOLLOWS_MAX
    struct Head "kts_head":
        int16_t attributes
        int64_t offset
        int32_t last_offset_delta
        int64_t base_timestamp, max_timestamp
        int32_t leader_epoch
        int64_t producer_id
        int16_t producer_epoch
        int32_t base_sequence
        int follows
    void kts_put_batch(uint8_t* p, int64_t size, const Head* h, int32_t count)
    int kts_write_records(Sink* sink, const Rows* r, const Head* h, int64_t body, int64_t most_bytes, int64_t first,
                          int64_t last, int64_t* row, int64_t* top, int* prefix)
    int kts_write_messages(Sink* out, const Rows* r, int magic, int attributes, int own, int64_t time, int64_t base,
                           int64_t most, int64_t last, int64_t* row, int64_t* top)
    int kts_write_message(Sink* out, int magic, int attributes, int64_t offset, int64_t timestamp, const String* key,
                          const String* value)

cdef extern from "append.h" nogil:
    int KTS_IN_PLACE, KTS_READ, KTS_CONVERT, KTS_DEEP
    struct AppendRules "kts_append_rules":
        int old, shipped, magic, append_time, compacted, client, replica, exempt, negative, missing
        int64_t none, before, after, largest
    struct Asked "kts_asked":
        AppendRules r
        int64_t now, start
        int32_t epoch
    struct Found "kts_found":
        int64_t entries, valid, first, last, first_or_last, top, top_offset
        int source, monotonic, same
        int64_t number, batches, next, max, max_offset
        int in_place, skipped
    struct Bad "kts_bad":
        int64_t record, offset, time, wrong
    struct Refused "kts_refused":
        int reason
        int64_t position, offset, record, a, b
        Bad* bad
        int64_t bads
    struct Append "kts_append":
        Asked asked
        Found found
        Refused refused
        int path, target
        int64_t at, size, record
        int64_t unwritable, unwritable_time
        int unwritable_why
    struct Seen "kts_seen_message":
        CEntry e
    struct Writer "kts_writer":
        uint8_t* out
        int64_t size, offset, base
        int magic, keep, stamp, append_time, own_type, prefix
        int64_t now, top, top_offset, first_time
    int kts_refuse(Append* s, int reason, int64_t a, int64_t b)
    bint kts_is_batch(const Append* s, const uint8_t* e)
    int kts_codec_of(const Append* s, const uint8_t* e)
    int kts_append_size(Append* s, const uint8_t* p, int64_t left, int64_t* size)
    int kts_analyse(Append* s, const uint8_t* p, int64_t n, int leader)
    int kts_same_magic(Append* s, const uint8_t* p, int64_t n)
    bint kts_append_plain(Append* s, uint8_t* p, const uint8_t* source, int64_t n, int target)
    void kts_begin(Append* s, int path)
    int kts_begin_in_place(Append* s, const uint8_t* p, int64_t n)
    int kts_begin_deep(Append* s, const uint8_t* p, int64_t n)
    int kts_first_batch(Append* s, const uint8_t* p, int64_t n, int source)
    int kts_append_entries(Append* s, uint8_t* p, int64_t n, const uint8_t* reach)
    int kts_append_inflated(Append* s, uint8_t* p, const uint8_t* out, int64_t n)
    void kts_end_in_place(Append* s)
    int kts_end_deep_in_place(Append* s, uint8_t* p, int64_t n)
    void kts_see_outer(const Append* s, CEntry* outer, const uint8_t* e, int64_t size)
    void kts_see_message(const Append* s, Seen* m, const uint8_t* e, int64_t size, const CEntry* outer)
    int kts_message_fields(Seen* m)
    void kts_rewrite_entry(const Append* s, Writer* w, const uint8_t* e, int64_t size)
    void kts_rewrite_inflated(const Append* s, Writer* w, const uint8_t* e, int64_t size, const uint8_t* p, int64_t n)
    bint kts_as_written(const uint8_t* p, int64_t n, int64_t count)

cdef extern from "clean.h" nogil:
    int KTS_SLOT_BYTES
    struct KeyHash "kts_hash":
        uint64_t words[2]
    struct Slot "kts_slot":
        KeyHash hash
        int64_t next
    struct OffsetMap "kts_offset_map":
        Slot* slots
        int64_t count, keys, latest
        uint64_t secret[2]
    struct Aborted "kts_aborted":
        int64_t producer, first, last, stable
    struct CleanedProducers "kts_producers":
        pass
    struct CleanedCounts "kts_cleaned":
        int64_t mapped_records, records_read, records_written, bytes_read, bytes_written
        int64_t without_key, superseded, tombstones, aborted, markers
        int64_t kept_tombstones, kept_markers, unmapped, rewritten, emptied
    struct Cleaning "kts_cleaning":
        OffsetMap map
        CleanedProducers producers
        CleanedCounts done
        int64_t start, now, retention, end, none
        int negative, verify, keep_last, keep_deletes
        Buf out, body, listed
        int64_t out_end, body_end, listed_count
        int magic
    int kts_map_begin(OffsetMap* m, int64_t most_slots, int64_t most_keys, const uint8_t* secret)
    void kts_map_free(OffsetMap* m)
    void kts_hash_of(const uint64_t* secret, const uint8_t* p, int64_t n, KeyHash* hash)
    int kts_map_put(OffsetMap* m, const KeyHash* hash, int64_t offset)
    int kts_add_aborted(CleanedProducers* t, const Aborted* found, int64_t count)
    void kts_forget_producers(CleanedProducers* t)
    void kts_no_active_producers(CleanedProducers* t)
    int kts_add_active_producer(CleanedProducers* t, int64_t id, int epoch, int64_t last_data)
    int kts_map_entries(Cleaning* c, const uint8_t* data, int64_t size, int64_t* at, CEntry* e, Err* err)
    int kts_map_inflated(Cleaning* c, const CEntry* e, const uint8_t* p, int64_t n, int64_t* at, Err* err)
    int kts_filter_entries(Cleaning* c, const uint8_t* data, int64_t size, int64_t* at, CEntry* e, Err* err)
    int kts_filter_inflated(Cleaning* c, const CEntry* e, const uint8_t* p, int64_t n, int64_t* at, Err* err)
    int kts_put_compressed(Cleaning* c, const uint8_t* p, int64_t n)
    void kts_cleaning_free(Cleaning* c)
