"""Kafka's messages (magic 0, 1) and record batches (magic 2): bytes to Arrow columns and back.

Layout of an entry; every integer is big-endian, varints are zig-zag:

    offset i64 | size i32 | then, by the magic byte at position 16,
    magic 0, 1   crc u32 | magic i8 | attributes i8 | (1: timestamp i64) | key i32+bytes | value i32+bytes
    magic 2      leader epoch i32 | magic i8 | crc u32 | attributes i16 | last offset delta i32 | base timestamp i64
                 | max timestamp i64 | producer id i64 | producer epoch i16 | base sequence i32 | count i32 | records
    record       length varint | attributes i8 | timestamp delta varlong | offset delta varint | key varint+bytes
                 | value varint+bytes | count varint of (key varint+bytes, value varint+bytes)

A compressed message (wrapper) of magic 0 or 1 holds entries in its value; a compressed batch holds its records.
Reading follows Kafka 3.9.2 (ByteBufferLogInputStream, DefaultRecordBatch, DefaultRecord, AbstractLegacyRecordBatch).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from . import compression, errors
from .errors import CorruptRecordError, DecompressionLimitError

cdef extern from "Python.h":
    PyObject* PyBytes_AllocateUninitialised "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n) except NULL
    int _PyBytes_Resize(PyObject** made, Py_ssize_t n) except -1
    void Py_SET_SIZE(PyObject* made, Py_ssize_t n)

cdef extern from "_crc.h" nogil:
    void kts_crc_init()
    uint32_t kts_crc32c(const uint8_t* p, size_t n)
    uint32_t kts_crc32(const uint8_t* p, size_t n)

cdef extern from "_slab.h" nogil:
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data
    int KTS_SLACK, KTS_LEAST_BYTES, KTS_SPARES
    int kts_add(int* p, int v)
    void* kts_swap(void** p, void* v)
    bint kts_offer(void** p, void* v)
    bint KTS_LIKELY(bint x)
    void kts_copy(uint8_t* to, const uint8_t* src, int64_t n, const uint8_t* src_end)
    uint16_t kts_be16(const uint8_t* p)
    uint32_t kts_be32(const uint8_t* p)
    uint64_t kts_be64(const uint8_t* p)
    uint32_t kts_le32(const uint8_t* p)
    void kts_put16(uint8_t* p, uint16_t v)
    void kts_put32(uint8_t* p, uint32_t v)
    void kts_put64(uint8_t* p, uint64_t v)

cdef extern from "_records.h" nogil:
    struct Buf "kts_buf":
        uint8_t* p
        int64_t cap
    struct Text "kts_text":
        Buf offsets
        Buf data
        Buf valid
        int64_t rows
        int64_t size
        int64_t nulls
    struct Run "kts_run":
        const uint8_t* p
        const uint8_t* last
        const uint8_t* until
        uint64_t base_offset
        uint64_t base_timestamp
        int64_t row
        int64_t most
        int64_t* offsets
        int64_t* timestamps
        int32_t* types
        Text* key
        Text* value
        const uint8_t* base
        int32_t buffer
        int64_t ahead
        int magic
        const uint8_t* latest
    int KTS_OFFSETS, KTS_TIMESTAMPS, KTS_TYPES, KTS_KEYS, KTS_VALUES, KTS_REST, KTS_VIEWS, KTS_CRC
    void text_put "kts_text_put"(Text* t, int64_t row, const uint8_t* p, int64_t n, const uint8_t* end)
    void view_put "kts_view_put"(Text* t, int64_t row, const uint8_t* p, int64_t n, const uint8_t* base, int32_t buffer)
    void read_records "kts_read_records"(Run* r, int want)
    void read_messages "kts_read_messages"(Run* r, int want)

cdef extern from "_append_set.h" nogil:
    int KTS_FINE, KTS_PAYLOAD, KTS_SKIPPED, KTS_NO_MEMORY, KTS_WRITER_TRANSACTION, KTS_PRODUCER_STATE, KTS_ZSTD_FORMAT
    int KTS_NOTHING, KTS_BAD_FIELDS
    int KTS_IN_PLACE, KTS_READ, KTS_CONVERT, KTS_DEEP, KTS_INFLATE
    struct Rules "kts_rules":
        int old, shipped, magic, append_time, compacted, client, replica, exempt, negative
        int64_t before, after, largest
    struct Bad "kts_bad":
        int64_t record, offset, time, wrong
    struct Append "kts_append":
        Rules r
        int64_t now
        int32_t epoch
        int source, target
        int64_t first, last, first_or_last, top, top_offset, valid, entries
        int monotonic, same, plain
        int64_t start, next, max, max_offset, number, unwritable, unwritable_time, batches
        int path, unwritable_why, in_place, skipped, first_magic
        int64_t at, size
        int fault
        int64_t offset, record, a, b
        Bad* bad
        int64_t bads
        int bad_times
    struct Writer "kts_writer":
        uint8_t* out
        int64_t size, offset, base
        int magic, keep, stamp, append_time, own_type
        int64_t now, top, top_offset, first_time
    int analyse "kts_analyse"(Append* s, const uint8_t* p, int64_t n, int leader)
    int same_magic "kts_same_magic"(Append* s, const uint8_t* p, int64_t n)
    int refuse "kts_refuse"(Append* s, int fault, int64_t a, int64_t b)
    void begin "kts_begin"(Append* s, int path)
    int begin_in_place "kts_begin_in_place"(Append* s, const uint8_t* p, int64_t n)
    void end_in_place "kts_end_in_place"(Append* s)
    int begin_deep "kts_begin_deep"(Append* s, const uint8_t* p, int64_t n)
    int end_deep_in_place "kts_end_deep_in_place"(Append* s, uint8_t* p, int64_t n)
    int first_batch "kts_first_batch"(Append* s, const uint8_t* p, int64_t n, int source)
    bint as_written "kts_as_written"(const uint8_t* p, int64_t n, int64_t count)
    int append_plain "kts_append_plain"(Append* s, uint8_t* p, const uint8_t* source, int64_t n, int target)
    int append_entries "kts_entries"(Append* s, uint8_t* p, int64_t n, const uint8_t* reach)
    int append_inflated "kts_inflated"(Append* s, uint8_t* p, const uint8_t* out, int64_t n)
    int entry_size "kts_entry_size"(Append* s, const uint8_t* p, int64_t left, int64_t* size)
    int codec_of "kts_codec"(const Append* s, const uint8_t* e)
    void write_entry "kts_write_entry"(Append* s, Writer* w, const uint8_t* e, int64_t size)
    void write_inflated "kts_write_inflated"(Append* s, Writer* w, const uint8_t* e, const uint8_t* p, int64_t n)

kts_crc_init()

# --- what was found wrong --------------------------------------------------------------------------

cdef extern from "_refusals.h":
    enum:
        FAULT_SIZE_SMALL "KTS_BAD_SIZE"
        FAULT_SIZE_LARGE "KTS_SIZE_OVERFLOW"
        FAULT_MAGIC "KTS_BAD_MAGIC"
        FAULT_BATCH_SMALL "KTS_SHORT_BATCH"
        FAULT_MESSAGE_SMALL "KTS_SHORT_MESSAGE"
        FAULT_CRC "KTS_BAD_CRC"
        FAULT_CODEC "KTS_BAD_CODEC"
        FAULT_ZSTD_LEGACY "KTS_WRAPPER_ZSTD"
        FAULT_COUNT "KTS_NEGATIVE_COUNT"
        FAULT_COUNT_LEFT "KTS_COUNT_LEFT"
        FAULT_REST "KTS_RECORDS_LEFT"
        FAULT_RECORD_LENGTH "KTS_RECORD_LENGTH"
        FAULT_RECORD_END "KTS_RECORD_END"
        FAULT_RECORD_REST "KTS_RECORD_REST"
        FAULT_VARINT "KTS_VARINT"
        FAULT_KEY "KTS_KEY"
        FAULT_VALUE "KTS_VALUE"
        FAULT_HEADER_COUNT "KTS_HEADER_COUNT"
        FAULT_HEADER_KEY "KTS_HEADER_KEY"
        FAULT_HEADER_VALUE "KTS_HEADER_VALUE"
        FAULT_MESSAGE_KEY "KTS_MESSAGE_KEY"
        FAULT_MESSAGE_VALUE "KTS_MESSAGE_VALUE"
        FAULT_MESSAGE_REST "KTS_MESSAGE_REST"
        FAULT_WRAPPER_NULL "KTS_WRAPPER_NULL"
        FAULT_WRAPPER_EMPTY "KTS_WRAPPER_EMPTY"
        FAULT_WRAPPER_OFFSET "KTS_WRAPPER_OFFSET"
        FAULT_INNER_SIZE "KTS_SHORT_INNER"
        FAULT_INNER_MAGIC "KTS_UNKNOWN_INNER_MAGIC"
        FAULT_INNER_CODEC "KTS_NESTED"
        FAULT_INNER_CRC "KTS_INNER_CRC"
        FAULT_COLUMN_FULL "KTS_COLUMN_FULL"
        FAULT_MEMORY "KTS_NO_MEMORY"
    const char** REASON_NAMES "kts_reasons"

# Why bytes are damaged or a set is refused, by name; the numbers are the places in it. kts.errors.REASONS has the words.
REASONS = tuple(REASON_NAMES[number].decode() for number in range(1, FAULT_MEMORY))

cdef struct Err:
    int fault
    int64_t position
    int64_t offset
    int64_t record       # -1 where no record is meant
    int64_t count        # records declared, -1 unknown
    int64_t a
    int64_t b


cdef inline int fail(Err* err, int fault, int64_t a, int64_t b) noexcept nogil:
    err.fault = fault
    err.a = a
    err.b = b
    return -1


cdef object error_of(Err* err):
    if err.fault == FAULT_MEMORY:
        return MemoryError()
    if err.fault == FAULT_COLUMN_FULL:
        return ValueError("buf: a column of this buffer would pass Arrow's 2 GiB; read it in pieces with kts.iter_decode")
    reason = REASON_NAMES[err.fault].decode()
    text = errors.REASONS[reason].words.format(a=err.a, b=err.b)
    record = None
    if err.record >= 0:
        record = err.record
        text = f"record {record} of {err.count}: {text}" if err.count >= 0 else f"inner message {record}: {text}"
    return CorruptRecordError(text, position=err.position, offset=err.offset, record_index=record, reason=reason)


# --- entries ---------------------------------------------------------------------------------------

cdef enum:
    LOG_OVERHEAD = 12
    MAGIC_POSITION = 16
    V0_OVERHEAD = 14
    V1_OVERHEAD = 22
    BATCH_OVERHEAD = 61
    SMALLEST_RECORD = 7
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

cdef struct CEntry:
    const uint8_t* p         # first byte
    int64_t position         # of p in the source
    int64_t size             # with the 12 bytes of overhead
    int magic
    int codec
    int16_t attributes
    int64_t offset           # base offset of a batch, offset of a message
    int32_t last_offset_delta
    int64_t base_timestamp   # of a batch
    int64_t max_timestamp    # of a batch; the timestamp of a message, -1 in magic 0
    int32_t leader_epoch
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count            # -1 for messages
    const uint8_t* payload   # records of a batch, value of a message (NULL: null)
    int64_t payload_size
    const uint8_t* key       # of a message
    int64_t key_size         # -1: null
    int8_t crc_ok            # 0 or 1; -1: not verified


cdef int next_size(const uint8_t* p, int64_t left, int64_t* size, Err* err) noexcept nogil:
    """Size of the entry at p: 1 known, 0 the tail is cut, -1 not an entry (ByteBufferLogInputStream)."""
    cdef int32_t stated
    cdef int8_t magic
    if left < LOG_OVERHEAD:
        return 0
    stated = <int32_t> kts_be32(p + 8)
    if stated < V0_OVERHEAD:
        return fail(err, FAULT_SIZE_SMALL, stated, 0)
    if left <= MAGIC_POSITION:
        return 0
    magic = <int8_t> p[MAGIC_POSITION]
    if magic < 0 or magic > 2:
        return fail(err, FAULT_MAGIC, magic, 2)
    if stated > INT32_MAX - LOG_OVERHEAD:
        return fail(err, FAULT_SIZE_LARGE, stated, 0)
    size[0] = <int64_t> stated + LOG_OVERHEAD
    return 1 if left >= size[0] else 0


cdef void batch_header(CEntry* e) noexcept nogil:
    cdef const uint8_t* p = e.p
    e.leader_epoch = <int32_t> kts_be32(p + 12)
    e.attributes = <int16_t> kts_be16(p + 21)
    e.codec = e.attributes & CODEC_MASK
    e.last_offset_delta = <int32_t> kts_be32(p + 23)
    e.base_timestamp = <int64_t> kts_be64(p + 27)
    e.max_timestamp = <int64_t> kts_be64(p + 35)
    e.producer_id = <int64_t> kts_be64(p + 43)
    e.producer_epoch = <int16_t> kts_be16(p + 51)
    e.base_sequence = <int32_t> kts_be32(p + 53)
    e.count = <int32_t> kts_be32(p + 57)
    e.payload = p + BATCH_OVERHEAD
    e.payload_size = e.size - BATCH_OVERHEAD
    e.key = NULL
    e.key_size = -1


cdef void message_header(CEntry* e) noexcept nogil:
    e.attributes = <int8_t> e.p[17]
    e.codec = e.attributes & CODEC_MASK
    e.max_timestamp = <int64_t> kts_be64(e.p + 18) if e.magic else -1
    e.base_timestamp = e.max_timestamp
    e.leader_epoch = -1
    e.last_offset_delta = 0
    e.producer_id = -1
    e.producer_epoch = -1
    e.base_sequence = -1
    e.count = -1


cdef int message_body(CEntry* e, Err* err) noexcept nogil:
    """Cut key and value out of a message; both must fill it exactly."""
    cdef const uint8_t* p = e.p + (V1_OVERHEAD - 8 + LOG_OVERHEAD if e.magic else V0_OVERHEAD - 8 + LOG_OVERHEAD)
    cdef int64_t left = e.p + e.size - p
    cdef int32_t n = <int32_t> kts_be32(p)
    p += 4
    left -= 8                                  # both length fields are there: the size was checked
    if n > left:
        return fail(err, FAULT_MESSAGE_KEY, n, left)
    e.key = p
    e.key_size = n if n >= 0 else -1
    if n > 0:
        p += n
        left -= n
    n = <int32_t> kts_be32(p)
    p += 4
    if n > left:
        return fail(err, FAULT_MESSAGE_VALUE, n, left)
    e.payload = p if n >= 0 else NULL
    e.payload_size = n if n >= 0 else 0
    if left != e.payload_size:
        return fail(err, FAULT_MESSAGE_REST, n, left - e.payload_size)
    return 1


cdef inline bint crc_ok(CEntry* e, Err* err) noexcept nogil:
    """Whether the stored CRC is the computed one; err.a, err.b tell both."""
    cdef uint32_t stored, computed
    if e.magic == 2:
        stored = kts_be32(e.p + 17)
        computed = kts_crc32c(e.p + 21, <size_t> (e.size - 21))
    else:
        stored = kts_be32(e.p + 12)
        computed = kts_crc32(e.p + 16, <size_t> (e.size - 16))
    err.a = stored
    err.b = computed
    return stored == computed


cdef int header_at(const uint8_t* data, int64_t size, int64_t position, CEntry* e, Err* err) noexcept nogil:
    """Read the header of the entry at ``position``: 1 there, whether or not the entry is whole, 0 cut, -1 damaged."""
    cdef const uint8_t* p = data + position
    cdef int64_t left = size - position
    cdef int64_t least
    err.position = position
    err.record = -1
    err.count = -1
    err.offset = <int64_t> kts_be64(p) if left >= 8 else -1
    e.size = 0
    if next_size(p, left, &e.size, err) < 0:
        return -1
    if e.size == 0:
        return 0
    e.p = p
    e.position = position
    e.offset = err.offset
    e.magic = p[MAGIC_POSITION]
    if e.magic == 2:
        if e.size < BATCH_OVERHEAD and e.size <= left:
            return fail(err, FAULT_BATCH_SMALL, e.size - LOG_OVERHEAD, 0)
        if left < BATCH_OVERHEAD:
            return 0
        batch_header(e)
    else:
        least = V1_OVERHEAD if e.magic else V0_OVERHEAD
        if e.size - LOG_OVERHEAD < least and e.size <= left:
            return fail(err, FAULT_MESSAGE_SMALL, e.size - LOG_OVERHEAD, least)
        if left < LOG_OVERHEAD + V0_OVERHEAD:
            return 0
        message_header(e)
    return 1


cdef int entry_header(const uint8_t* data, int64_t size, int64_t position, CEntry* e, Err* err) noexcept nogil:
    """Read the header of the whole entry at ``position``: 1 there, 0 end or cut tail, -1 damaged. No CRC, no body."""
    cdef int status = header_at(data, size, position, e, err)
    return 0 if status == 1 and e.size > size - position else status


# --- columns being filled ----------------------------------------------------------------------------

cdef enum:
    # columns, as positions in kts.codec.columns.ALL_COLUMNS, then four of our own
    C_OFFSET, C_TIMESTAMP, C_TYPE, C_KEY, C_VALUE, C_HEADERS, C_MAGIC, C_CODEC, C_PID, C_EPOCH, C_SEQUENCE, C_LEADER
    C_TXN, C_CONTROL, C_POSITION, C_CREATE, C_BASE, C_DELTA, C_ATTRIBUTES, C_BASE_TS, C_MAX_TS
    C_IS_BATCH, C_SHALLOW, C_SIZE, C_CRC_OK
    COLUMNS
    NODES = 32

# what fill_entry writes for messages
cdef uint32_t SHARED = (1 << C_CODEC | 1 << C_PID | 1 << C_EPOCH | 1 << C_LEADER | 1 << C_TXN | 1 << C_CONTROL
                        | 1 << C_POSITION | 1 << C_BASE | 1 << C_DELTA | 1 << C_ATTRIBUTES | 1 << C_BASE_TS
                        | 1 << C_MAX_TS | 1 << C_IS_BATCH | 1 << C_SHALLOW)

cdef int* WIDTH = [8, 8, 4, 0, 0, 0, 1, 1, 8, 2, 4, 4, 1, 1, 8, 8, 8, 4, 2, 8, 8, 1, 8, 4, 1]

cdef struct Mark:             # where an entry began, to take its rows back
    int64_t rows
    int64_t key_size, key_nulls, value_size, value_nulls
    int64_t headers, header_nulls, hkey_size, hvalue_size, hvalue_nulls

cdef struct Slab:             # the memory of one piece, exported to Arrow as it is
    int refs
    int64_t rows
    Buf fixed[COLUMNS]
    Buf bits[COLUMNS]
    Text key
    Text value
    Text header_key
    Text header_value
    Buf header_offsets
    Buf header_valid
    int64_t header_nulls
    int64_t row_room          # rows, and sizes of key and value, up to which there is room
    int64_t key_room
    int64_t value_room
    Mark mark
    Buf kept                  # PyObject*: what the views point into
    Buf bases                 # its addresses and sizes, as Arrow's variadic buffers
    Buf sizes
    int n_kept
    ArrowArray nodes[NODES]
    ArrowArray* kids[NODES]
    Buf pointers              # const void*: every array's buffers


cdef int grow(Buf* b, int64_t need) noexcept nogil:
    cdef int64_t cap
    cdef void* p
    if need <= b.cap:
        return 0
    cap = b.cap + (b.cap >> 1) if KTS_SPARES else need
    if cap < need:
        cap = need
    if cap < KTS_LEAST_BYTES:
        cap = KTS_LEAST_BYTES
    p = realloc(b.p, <size_t> cap)
    if p == NULL:
        return -1
    b.p = <uint8_t*> p
    b.cap = cap
    return 0


cdef void release_buf(Buf* b, int64_t* held) noexcept nogil:
    """Count what a buffer holds, or (``held`` NULL) free it."""
    if held == NULL:
        free(b.p)
    else:
        held[0] += b.cap


cdef void release_text(Text* t, int64_t* held) noexcept nogil:
    release_buf(&t.offsets, held)
    release_buf(&t.data, held)
    release_buf(&t.valid, held)


cdef void release_bufs(Slab* s, int64_t* held) noexcept nogil:
    cdef int i
    for i in range(COLUMNS):
        release_buf(&s.fixed[i], held)
        release_buf(&s.bits[i], held)
    release_text(&s.key, held)
    release_text(&s.value, held)
    release_text(&s.header_key, held)
    release_text(&s.header_value, held)
    release_buf(&s.header_offsets, held)
    release_buf(&s.header_valid, held)
    release_buf(&s.kept, held)
    release_buf(&s.bases, held)
    release_buf(&s.sizes, held)
    release_buf(&s.pointers, held)


cdef enum:
    SPARES = 4                # KTS_SPARES of them are used
    SPARE_BYTES = 25165824    # larger slabs are given back at once

# Dropped slabs, to be used again: freshly faulted pages cost as much as decoding into them.
cdef void* SPARE[SPARES]
memset(SPARE, 0, sizeof(SPARE))


cdef Slab* slab_take() noexcept nogil:
    cdef int i
    cdef void* found = NULL
    cdef Slab* s
    for i in range(SPARES):
        found = kts_swap(&SPARE[i], NULL)
        if found != NULL:
            break
    s = <Slab*> found if found != NULL else <Slab*> calloc(1, sizeof(Slab))
    if s == NULL:
        return NULL
    s.refs = 1
    s.rows = 0
    s.key.rows = s.key.size = s.key.nulls = 0
    s.value.rows = s.value.size = s.value.nulls = 0
    s.header_key.rows = s.header_key.size = s.header_key.nulls = 0
    s.header_value.rows = s.header_value.size = s.header_value.nulls = 0
    s.header_nulls = 0
    s.row_room = s.key_room = s.value_room = 0
    s.n_kept = 0
    return s


cdef void drop_kept(Slab* s) noexcept with gil:
    cdef PyObject** kept = <PyObject**> s.kept.p
    cdef int i
    for i in range(s.n_kept):
        Py_DECREF(<object> kept[i])
    s.n_kept = 0


cdef void slab_unref(Slab* s) noexcept nogil:
    cdef int64_t held = 0
    cdef int i
    if kts_add(&s.refs, -1) != 0:
        return
    if s.n_kept:
        drop_kept(s)
    release_bufs(s, &held)
    if held <= SPARE_BYTES:
        for i in range(KTS_SPARES):
            if kts_offer(&SPARE[i], s):
                return
    release_bufs(s, NULL)
    free(s)


cdef void set_mark(Slab* s) noexcept nogil:
    s.mark.rows = s.rows
    s.mark.key_size = s.key.size
    s.mark.key_nulls = s.key.nulls
    s.mark.value_size = s.value.size
    s.mark.value_nulls = s.value.nulls
    s.mark.headers = s.header_key.rows
    s.mark.header_nulls = s.header_nulls
    s.mark.hkey_size = s.header_key.size
    s.mark.hvalue_size = s.header_value.size
    s.mark.hvalue_nulls = s.header_value.nulls


cdef void take_back(Slab* s) noexcept nogil:
    """Forget the rows of the entry that turned out damaged."""
    s.rows = s.key.rows = s.value.rows = s.mark.rows
    s.key.size = s.mark.key_size
    s.key.nulls = s.mark.key_nulls
    s.value.size = s.mark.value_size
    s.value.nulls = s.mark.value_nulls
    s.header_key.rows = s.header_value.rows = s.mark.headers
    s.header_nulls = s.mark.header_nulls
    s.header_key.size = s.mark.hkey_size
    s.header_value.size = s.mark.hvalue_size
    s.header_value.nulls = s.mark.hvalue_nulls


cdef int text_room(Text* t, int64_t rows, int64_t size, bint views) noexcept nogil:
    """Room for so many more strings of so many bytes in all; 0, or the fault."""
    cdef int64_t old
    if views:
        if grow(&t.offsets, (t.rows + rows) * 16):
            return FAULT_MEMORY
    else:
        if t.size + size > INT32_MAX:
            return FAULT_COLUMN_FULL
        if grow(&t.offsets, (t.rows + rows + 1) * 4) or grow(&t.data, t.size + size + KTS_SLACK):
            return FAULT_MEMORY
        if t.rows == 0:
            (<int32_t*> t.offsets.p)[0] = 0
    old = t.valid.cap
    if grow(&t.valid, (t.rows + rows + 8) >> 3):
        return FAULT_MEMORY
    if t.nulls:
        memset(t.valid.p + old, 0xFF, <size_t> (t.valid.cap - old))
    return 0


# --- what a decode pass carries ------------------------------------------------------------------------

cdef struct Pass:
    const uint8_t* data
    int64_t size
    int64_t position
    uint32_t want             # bit per column
    int run                   # the same, for the hot loops
    bint views
    bint verify
    const uint8_t* base       # start of the variadic buffer that views point into now
    int32_t buffer            # its number


cdef inline bint wants(Pass* d, int column) noexcept nogil:
    return (d.want >> column) & 1


cdef int run_of(uint32_t want, bint views, bint verify) noexcept nogil:
    """What the hot loops are to do."""
    return ((KTS_OFFSETS if want & 1 << C_OFFSET else 0) | (KTS_TIMESTAMPS if want & 1 << C_TIMESTAMP else 0)
            | (KTS_TYPES if want & 1 << C_TYPE else 0) | (KTS_KEYS if want & 1 << C_KEY else 0)
            | (KTS_VALUES if want & 1 << C_VALUE else 0) | (KTS_REST if want & 1 << C_HEADERS else 0)
            | (KTS_VIEWS if views else 0) | (KTS_CRC if verify else 0))


cdef int room(Pass* d, Slab* s, int64_t rows, int64_t size) noexcept nogil:
    """Room for so many more rows with ``size`` bytes of keys and values; 0, or the fault."""
    cdef int i, fault
    cdef int64_t old
    for i in range(COLUMNS):
        if WIDTH[i] and (d.want >> i) & 1 and grow(&s.fixed[i], (s.rows + rows) * WIDTH[i]):
            return FAULT_MEMORY
    if wants(d, C_KEY):
        fault = text_room(&s.key, rows, size, d.views)
        if fault:
            return fault
    if wants(d, C_VALUE):
        fault = text_room(&s.value, rows, size, d.views)
        if fault:
            return fault
    if wants(d, C_HEADERS):
        old = s.header_valid.cap
        if grow(&s.header_offsets, (s.rows + rows + 1) * 4) or grow(&s.header_valid, (s.rows + rows + 8) >> 3):
            return FAULT_MEMORY
        if s.rows == 0:
            (<int32_t*> s.header_offsets.p)[0] = 0
            memset(s.header_valid.p, 0, <size_t> s.header_valid.cap)
        else:
            memset(s.header_valid.p + old, 0, <size_t> (s.header_valid.cap - old))
    s.row_room = s.rows + rows
    s.key_room = s.key.size + size
    s.value_room = s.value.size + size
    return 0


cdef void fill8(uint8_t* p, int64_t first, int64_t last, uint8_t v) noexcept nogil:
    memset(p + first, v, <size_t> (last - first))


cdef void fill16(uint8_t* p, int64_t first, int64_t last, int16_t v) noexcept nogil:
    cdef int64_t i
    for i in range(first, last):
        (<int16_t*> p)[i] = v


cdef void fill32(uint8_t* p, int64_t first, int64_t last, int32_t v) noexcept nogil:
    cdef int64_t i
    for i in range(first, last):
        (<int32_t*> p)[i] = v


cdef void fill64(uint8_t* p, int64_t first, int64_t last, int64_t v) noexcept nogil:
    cdef int64_t i
    for i in range(first, last):
        (<int64_t*> p)[i] = v


cdef void fill_entry(Pass* d, Slab* s, CEntry* e, int64_t first, int64_t last) noexcept nogil:
    """The columns that all rows of an entry share."""
    cdef bint batch = e.magic == 2
    if first == last or (not batch and not d.want & SHARED):
        return
    if wants(d, C_CODEC):
        fill8(s.fixed[C_CODEC].p, first, last, <uint8_t> e.codec)
    if wants(d, C_PID):
        fill64(s.fixed[C_PID].p, first, last, e.producer_id)
    if wants(d, C_EPOCH):
        fill16(s.fixed[C_EPOCH].p, first, last, e.producer_epoch)
    if wants(d, C_LEADER):
        fill32(s.fixed[C_LEADER].p, first, last, e.leader_epoch)
    if wants(d, C_TXN):
        fill8(s.fixed[C_TXN].p, first, last, batch and (e.attributes & TRANSACTIONAL) != 0)
    if wants(d, C_CONTROL):
        fill8(s.fixed[C_CONTROL].p, first, last, batch and (e.attributes & CONTROL) != 0)
    if wants(d, C_POSITION):
        fill64(s.fixed[C_POSITION].p, first, last, e.position)
    if wants(d, C_BASE):
        fill64(s.fixed[C_BASE].p, first, last, e.offset if batch else 0)
    if wants(d, C_DELTA):
        fill32(s.fixed[C_DELTA].p, first, last, e.last_offset_delta)
    if wants(d, C_ATTRIBUTES):
        fill16(s.fixed[C_ATTRIBUTES].p, first, last, e.attributes)
    if wants(d, C_BASE_TS):
        fill64(s.fixed[C_BASE_TS].p, first, last, e.base_timestamp if batch else 0)
    if wants(d, C_MAX_TS):
        fill64(s.fixed[C_MAX_TS].p, first, last, e.max_timestamp if batch else 0)
    if wants(d, C_IS_BATCH):
        fill8(s.fixed[C_IS_BATCH].p, first, last, batch)
    if wants(d, C_SHALLOW):
        fill64(s.fixed[C_SHALLOW].p, first, last, <int64_t> (<uint64_t> e.offset + <uint64_t> e.last_offset_delta))
    if batch:
        if wants(d, C_TYPE):
            fill32(s.fixed[C_TYPE].p, first, last, (e.attributes & LOG_APPEND_TIME) != 0)
        if wants(d, C_MAGIC):
            fill8(s.fixed[C_MAGIC].p, first, last, 2)
        if wants(d, C_TIMESTAMP) and e.attributes & LOG_APPEND_TIME:
            fill64(s.fixed[C_TIMESTAMP].p, first, last, e.max_timestamp)


# --- varints -------------------------------------------------------------------------------------------

cdef enum:
    VARINT_OK = 0
    VARINT_CUT = 1            # the bytes end before it does
    VARINT_LONG = 2           # no end within 5 (10) bytes


cdef int varint_slow(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    """As Kafka's ByteUtils: at most five bytes; what the fifth has beyond 32 bits is dropped."""
    cdef const uint8_t* p = at[0]
    cdef uint32_t raw = 0
    cdef int i
    for i in range(5):
        if p >= end:
            return VARINT_CUT
        raw |= (<uint32_t> (p[0] & 0x7F)) << (7 * i)
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))
            return VARINT_OK
        p += 1
    return VARINT_LONG


cdef inline int varint(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint32_t raw
    if KTS_LIKELY(end - p >= 2):
        raw = p[0]
        if KTS_LIKELY(raw < 0x80):
            at[0] = p + 1
            value[0] = <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))
            return VARINT_OK
        if KTS_LIKELY(p[1] < 0x80):
            raw = (raw & 0x7F) | <uint32_t> p[1] << 7
            at[0] = p + 2
            value[0] = <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))
            return VARINT_OK
    return varint_slow(at, end, value)


cdef inline int varlong(const uint8_t** at, const uint8_t* end, int64_t* value) noexcept nogil:
    """As Kafka's ByteUtils: at most ten bytes; what the tenth has beyond 64 bits is dropped."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t raw = 0
    cdef int shift = 0
    while p < end:
        raw |= (<uint64_t> (p[0] & 0x7F)) << shift
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))
            return VARINT_OK
        p += 1
        shift += 7
        if shift > 63:
            return VARINT_LONG
    return VARINT_CUT


cdef int bad_varint(Err* err, int status, int64_t most, int64_t left) noexcept nogil:
    if status == VARINT_LONG:
        return fail(err, FAULT_VARINT, most, 0)
    return fail(err, FAULT_RECORD_END, 0, left)


# --- headers -------------------------------------------------------------------------------------------

cdef int64_t utf8_valid(const uint8_t* p, int64_t n) noexcept nogil:
    """Length of the longest prefix that is UTF-8."""
    cdef int64_t i = 0
    cdef int step
    while i < n:
        if p[i] < 0x80:
            i += 1
            continue
        step = utf8_step(p + i, n - i)
        if step < 2:
            return i
        i += step
    return n


cdef int utf8_step(const uint8_t* p, int64_t n) noexcept nogil:
    """Bytes of the well-formed sequence at p (2 to 4; a lead byte above 7f), else minus those of the ill-formed part
    that one U+FFFD stands for (Unicode's maximal subpart, but for surrogates; as Java)."""
    cdef uint8_t b = p[0], lo = 0x80, hi = 0xBF
    cdef int need, i
    if 0xC2 <= b <= 0xDF:
        need = 2
    elif 0xE0 <= b <= 0xEF:
        need = 3
        if b == 0xE0:
            lo = 0xA0
        elif b == 0xED:
            hi = 0x9F
    elif 0xF0 <= b <= 0xF4:
        need = 4
        if b == 0xF0:
            lo = 0x90
        elif b == 0xF4:
            hi = 0x8F
    else:
        return -1
    if b == 0xED and n > 1 and 0xA0 <= p[1] <= 0xBF:
        return -3 if n > 2 and p[2] >> 6 == 2 else -2        # a surrogate: one for all of it, as Java
    for i in range(1, need):
        if i >= n or p[i] < lo or p[i] > hi:
            return -i
        lo = 0x80
        hi = 0xBF
    return need


cdef void put_header_key(Text* t, const uint8_t* p, int64_t n, const uint8_t* end) noexcept nogil:
    """A header key as UTF-8; three bytes of room for each of its bytes are there."""
    cdef int64_t good = utf8_valid(p, n)
    cdef uint8_t* to
    cdef int step
    if good == n:
        text_put(t, t.rows, p, n, end)
    else:
        to = t.data.p + t.size
        while n > 0:
            good = utf8_valid(p, n)
            memcpy(to, p, <size_t> good)
            to += good
            p += good
            n -= good
            if n > 0:
                step = utf8_step(p, n)
                to[0] = 0xEF
                to[1] = 0xBF
                to[2] = 0xBD
                to += 3
                p -= step
                n += step
        t.size = to - t.data.p
        (<int32_t*> t.offsets.p)[t.rows + 1] = <int32_t> t.size
    t.rows += 1


cdef int read_headers(Slab* s, bint keep, int32_t count, const uint8_t** at, const uint8_t* end, const uint8_t* source_end,
                      Err* err) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef const uint8_t* key
    cdef int32_t i, key_size, n
    cdef int status, fault
    cdef int64_t left = end - p
    if count < 0 or count > left:
        return fail(err, FAULT_HEADER_COUNT, count, left)
    if keep:
        if s.header_key.rows + count > INT32_MAX:
            return fail(err, FAULT_COLUMN_FULL, 0, 0)
        # an ill-formed byte of a key becomes three
        fault = text_room(&s.header_key, count, 3 * left, False)
        if not fault:
            fault = text_room(&s.header_value, count, left, False)
        if fault:
            return fail(err, fault, 0, 0)
    for i in range(count):
        status = varint(&p, end, &key_size)
        if status:
            return bad_varint(err, status, 5, end - p)
        if key_size < 0 or key_size > end - p:
            return fail(err, FAULT_HEADER_KEY, key_size, end - p)
        key = p
        p += key_size
        status = varint(&p, end, &n)
        if status:
            return bad_varint(err, status, 5, end - p)
        if n > end - p:
            return fail(err, FAULT_HEADER_VALUE, n, end - p)
        if keep:
            put_header_key(&s.header_key, key, key_size, source_end)
            text_put(&s.header_value, s.header_value.rows, p, n, source_end)
            s.header_value.rows += 1
        if n > 0:
            p += n
    at[0] = p
    return 1


# --- records of a batch --------------------------------------------------------------------------------

cdef inline int32_t sequence_at(int32_t base, int32_t delta) noexcept nogil:
    """DefaultRecordBatch.incrementSequence: 2^31-1 is followed by 0."""
    if base > <int32_t> (<uint32_t> INT32_MAX - <uint32_t> delta):
        return <int32_t> (<uint32_t> delta - (<uint32_t> INT32_MAX - <uint32_t> base) - 1)
    return <int32_t> (<uint32_t> base + <uint32_t> delta)


cdef int read_record(Pass* d, Slab* s, CEntry* e, int64_t row, const uint8_t** at, const uint8_t* end,
                     const uint8_t* reach, Err* err) noexcept nogil:
    """Append the record at ``at[0]``, every step checked: 1, or -1 with ``err`` set.

    What lies behind the last field that is wanted is not looked at, here and in the hot loop.
    """
    cdef const uint8_t* p = at[0]
    cdef const uint8_t* stop
    cdef const uint8_t* key
    cdef int64_t delta, headers
    cdef int32_t length, offset_delta, size, key_size
    cdef int status
    cdef bint keep_headers = wants(d, C_HEADERS)
    status = varint(&p, end, &length)
    if status:
        return bad_varint(err, status, 5, end - p)
    if length < 0 or length > end - p:
        return fail(err, FAULT_RECORD_LENGTH, length, end - p)
    stop = p + length
    p += 1                                     # attributes of a record are unused; a length of 0 fails just below
    status = varlong(&p, stop, &delta)
    if status:
        return bad_varint(err, status, 10, stop - p if stop > p else 0)
    status = varint(&p, stop, &offset_delta)
    if status:
        return bad_varint(err, status, 5, stop - p)
    if wants(d, C_OFFSET):
        (<int64_t*> s.fixed[C_OFFSET].p)[row] = <int64_t> (<uint64_t> e.offset + <uint64_t> <int64_t> offset_delta)
    if wants(d, C_TIMESTAMP):
        (<int64_t*> s.fixed[C_TIMESTAMP].p)[row] = <int64_t> (<uint64_t> e.base_timestamp + <uint64_t> delta)
    at[0] = stop
    if not d.run & (KTS_KEYS | KTS_VALUES | KTS_REST):
        return 1
    status = varint(&p, stop, &key_size)
    if status:
        return bad_varint(err, status, 5, stop - p)
    if key_size > stop - p:
        return fail(err, FAULT_KEY, key_size, stop - p)
    key = p
    if key_size > 0:
        p += key_size
    if d.run & KTS_KEYS:
        if d.views:
            view_put(&s.key, row, key, key_size, d.base, d.buffer)
        else:
            text_put(&s.key, row, key, key_size, reach)
    if not d.run & (KTS_VALUES | KTS_REST):
        return 1
    status = varint(&p, stop, &size)
    if status:
        return bad_varint(err, status, 5, stop - p)
    if size > stop - p:
        return fail(err, FAULT_VALUE, size, stop - p)
    if d.run & KTS_VALUES:
        if d.views:
            view_put(&s.value, row, p, size, d.base, d.buffer)
        else:
            text_put(&s.value, row, p, size, reach)
    if not d.run & KTS_REST:
        return 1
    if size > 0:
        p += size
    status = varint(&p, stop, &size)
    if status:
        return bad_varint(err, status, 5, stop - p)
    headers = s.header_key.rows
    if size != 0 and read_headers(s, keep_headers, size, &p, stop, reach, err) < 0:
        return -1
    if p != stop:
        return fail(err, FAULT_RECORD_REST, length, stop - p)
    if keep_headers:
        (<int32_t*> s.header_offsets.p)[row + 1] = <int32_t> s.header_key.rows
        if s.header_key.rows > headers:
            s.header_valid.p[row >> 3] |= <uint8_t> (1 << (row & 7))
        else:
            s.header_nulls += 1
    return 1


cdef void begin_run(Pass* d, Slab* s, Run* r, const uint8_t* p, const uint8_t* last, const uint8_t* reach) noexcept nogil:
    """A run of the hot loops over p to ``last``; up to ``reach`` memory may be read."""
    r.p = p
    r.last = last if reach - last >= KTS_SLACK else reach - KTS_SLACK
    r.row = s.rows
    r.offsets = <int64_t*> s.fixed[C_OFFSET].p
    r.timestamps = <int64_t*> s.fixed[C_TIMESTAMP].p
    r.types = <int32_t*> s.fixed[C_TYPE].p
    r.key = &s.key
    r.value = &s.value
    r.base = d.base
    r.buffer = d.buffer
    r.ahead = 0


cdef int read_batch(Pass* d, Slab* s, CEntry* e, const uint8_t* p, int64_t n, const uint8_t* reach, Err* err) noexcept nogil:
    """Append the records at p[0:n] of batch e: 1, or -1 with ``err`` set."""
    cdef const uint8_t* end = p + n
    cdef int64_t first = s.rows, row, before, careful = 0
    cdef int fault
    cdef Run r
    err.count = e.count
    if e.count < 0:
        return fail(err, FAULT_COUNT, e.count, 0)
    if <int64_t> e.count * SMALLEST_RECORD > n:
        return fail(err, FAULT_COUNT_LEFT, e.count, n)
    if e.count == 0:
        err.record = -1
        return fail(err, FAULT_REST, 0, n) if n else 1
    fault = room(d, s, e.count, n)
    if fault:
        return fail(err, fault, 0, 0)
    begin_run(d, s, &r, p, end, reach)
    if p == e.payload:
        r.ahead = e.size
    r.most = first + e.count
    r.base_offset = <uint64_t> e.offset
    r.base_timestamp = <uint64_t> e.base_timestamp
    while True:
        before = r.row
        if careful == 0:
            read_records(&r, d.run)
            if wants(d, C_HEADERS):
                fill32(s.header_offsets.p, before + 1, r.row + 1, <int32_t> s.header_key.rows)
                s.header_nulls += r.row - before
            if r.row == before:
                careful = 16                   # records with headers, most likely: the next ones have some, too
        else:
            careful -= 1
        if r.row == r.most:
            break
        err.record = r.row - first
        if read_record(d, s, e, r.row, &r.p, end, reach, err) < 0:
            return -1
        r.row += 1
    err.record = -1
    if r.p != end:
        return fail(err, FAULT_REST, e.count, end - r.p)
    s.rows = s.key.rows = s.value.rows = r.row
    if wants(d, C_CREATE):
        memcpy(s.fixed[C_CREATE].p + 8 * first, s.fixed[C_TIMESTAMP].p + 8 * first, <size_t> (8 * (r.row - first)))
    if wants(d, C_SEQUENCE):
        for row in range(first, r.row):
            (<int32_t*> s.fixed[C_SEQUENCE].p)[row] = -1 if e.base_sequence < 0 else sequence_at(
                e.base_sequence, <int32_t> (<uint64_t> r.offsets[row] - <uint64_t> e.offset))
    fill_entry(d, s, e, first, r.row)
    return 1


# --- messages ------------------------------------------------------------------------------------------

cdef int put_message(Pass* d, Slab* s, CEntry* e, CEntry* outer, const uint8_t* end, Err* err) noexcept nogil:
    """Append message e; ``outer`` is its wrapper, or e itself. 1, or -1 with ``err`` set."""
    cdef int64_t row = s.rows, timestamp = e.max_timestamp, size
    cdef int32_t kind = -1
    cdef int fault
    if row == s.row_room or s.key.size + e.key_size > s.key_room or s.value.size + e.payload_size > s.value_room:
        size = (e.key_size if e.key_size > 0 else 0) + e.payload_size
        fault = room(d, s, 512, size if size > 65536 else 65536)
        if fault == FAULT_COLUMN_FULL:
            fault = room(d, s, 1, size)
        if fault:
            return fail(err, fault, 0, 0)
    if e.magic:
        # the type is the outermost message's, which magic 0 does not have (LegacyRecord.timestampType)
        if outer.magic:
            kind = (outer.attributes & LOG_APPEND_TIME) != 0
        if kind == 1:
            timestamp = outer.max_timestamp
    if wants(d, C_OFFSET):
        (<int64_t*> s.fixed[C_OFFSET].p)[row] = e.offset
    if wants(d, C_TIMESTAMP):
        (<int64_t*> s.fixed[C_TIMESTAMP].p)[row] = timestamp
    if wants(d, C_CREATE):
        (<int64_t*> s.fixed[C_CREATE].p)[row] = e.max_timestamp
    if wants(d, C_TYPE):
        (<int32_t*> s.fixed[C_TYPE].p)[row] = kind
    if wants(d, C_MAGIC):
        s.fixed[C_MAGIC].p[row] = <uint8_t> e.magic
    if wants(d, C_SEQUENCE):
        (<int32_t*> s.fixed[C_SEQUENCE].p)[row] = -1
    if d.views:
        if wants(d, C_KEY):
            view_put(&s.key, row, e.key, e.key_size, d.base, d.buffer)
        if wants(d, C_VALUE):
            view_put(&s.value, row, e.payload, e.payload_size if e.payload != NULL else -1, d.base, d.buffer)
    else:
        if wants(d, C_KEY):
            text_put(&s.key, row, e.key, e.key_size, end)
        if wants(d, C_VALUE):
            text_put(&s.value, row, e.payload, e.payload_size if e.payload != NULL else -1, end)
    if wants(d, C_HEADERS):
        (<int32_t*> s.header_offsets.p)[row + 1] = <int32_t> s.header_key.rows
        s.header_nulls += 1
    s.rows = s.key.rows = s.value.rows = row + 1
    return 1


cdef enum:
    RUN_BYTES = 65536         # of messages, for which room is made at once
    RUN_ROWS = 2560           # and as many as they can be


cdef const uint8_t* run_messages(Pass* d, Slab* s, CEntry* outer, const uint8_t** at, const uint8_t* end,
                                 const uint8_t* until, const uint8_t* reach) noexcept nogil:
    """Append uncompressed messages of one magic, as many as the hot loop takes; the last of them, or NULL.

    ``outer`` is their wrapper, or NULL.
    """
    cdef const uint8_t* last = end if end - at[0] < RUN_BYTES else at[0] + RUN_BYTES
    cdef int64_t first = s.rows
    cdef int32_t kind = -1
    cdef Run r
    if d.views and (d.base == NULL or last - d.base > INT32_MAX) or room(d, s, RUN_ROWS, RUN_BYTES):
        return NULL                            # one by one then; whoever reads them tells what is wrong
    begin_run(d, s, &r, at[0], last, reach)
    r.latest = NULL
    r.most = first + RUN_ROWS
    r.until = until
    r.magic = at[0][MAGIC_POSITION]
    read_messages(&r, d.run)
    at[0] = r.p
    s.rows = s.key.rows = s.value.rows = r.row
    if wants(d, C_CREATE):                     # there is room, so neither is NULL
        memcpy(s.fixed[C_CREATE].p + 8 * first, s.fixed[C_TIMESTAMP].p + 8 * first, <size_t> (8 * (r.row - first)))
    if outer != NULL and r.magic:
        if outer.magic:
            kind = (outer.attributes & LOG_APPEND_TIME) != 0
        if wants(d, C_TYPE):
            fill32(s.fixed[C_TYPE].p, first, r.row, kind)
        if wants(d, C_TIMESTAMP) and kind == 1:
            fill64(s.fixed[C_TIMESTAMP].p, first, r.row, outer.max_timestamp)
    if wants(d, C_MAGIC):
        fill8(s.fixed[C_MAGIC].p, first, r.row, <uint8_t> r.magic)
    if wants(d, C_SEQUENCE):
        fill32(s.fixed[C_SEQUENCE].p, first, r.row, -1)
    if wants(d, C_HEADERS):
        fill32(s.header_offsets.p, first + 1, r.row + 1, <int32_t> s.header_key.rows)
        s.header_nulls += r.row - first
    return r.latest


cdef int read_wrapper(Pass* d, Slab* s, CEntry* e, const uint8_t* p, int64_t n, Err* err) noexcept nogil:
    """Append the inner messages at p[0:n] of wrapper e (AbstractLegacyRecordBatch.DeepRecordsIterator)."""
    cdef CEntry inner
    cdef int64_t first = s.rows, at = 0, row, last = 0, base
    cdef int64_t* offsets
    cdef int32_t stated
    cdef uint8_t magic
    cdef const uint8_t* end = p + n
    cdef const uint8_t* latest
    err.count = -1
    err.record = 0
    while n - at >= LOG_OVERHEAD:
        inner.p = p + at
        if n - at > MAGIC_POSITION and p[at + MAGIC_POSITION] < 2:
            latest = run_messages(d, s, e, &inner.p, end, end, end)
            at = inner.p - p
            if latest != NULL:
                last = <int64_t> kts_be64(latest)
                continue
        err.record = s.rows - first
        stated = <int32_t> kts_be32(p + at + 8)
        if stated < V0_OVERHEAD:
            return fail(err, FAULT_INNER_SIZE, stated, V0_OVERHEAD)
        if stated > n - at - LOG_OVERHEAD:
            break                              # an inner message that is cut short is left out, as Kafka does
        inner.p = p + at
        inner.size = <int64_t> stated + LOG_OVERHEAD
        magic = inner.p[MAGIC_POSITION]
        if magic > 1:
            return fail(err, FAULT_INNER_MAGIC, <int8_t> magic, 0)
        if magic == 1 and stated < V1_OVERHEAD:
            return fail(err, FAULT_INNER_SIZE, stated, V1_OVERHEAD)
        inner.magic = magic
        message_header(&inner)
        if inner.codec:
            return fail(err, FAULT_INNER_CODEC, inner.codec, 0)
        if d.verify and not crc_ok(&inner, err):
            return fail(err, FAULT_INNER_CRC, err.a, err.b)
        if message_body(&inner, err) < 0:
            return -1
        inner.offset = last = <int64_t> kts_be64(inner.p)
        if put_message(d, s, &inner, e, end, err) < 0:
            return -1
        at += inner.size
    err.record = -1
    if s.rows == first:
        return fail(err, FAULT_WRAPPER_EMPTY, 0, 0)
    if e.magic == 1 and e.offset != 0:
        if e.offset < last:
            return fail(err, FAULT_WRAPPER_OFFSET, e.offset, last)
        base = <int64_t> (<uint64_t> e.offset - <uint64_t> last)
        if wants(d, C_OFFSET):
            offsets = <int64_t*> s.fixed[C_OFFSET].p
            for row in range(first, s.rows):
                offsets[row] = <int64_t> (<uint64_t> offsets[row] + <uint64_t> base)
    fill_entry(d, s, e, first, s.rows)
    return 1


# --- the walk ------------------------------------------------------------------------------------------

cdef enum Walk:
    WALK_FAILED = -1
    WALK_END = 0              # end of the buffer, or its cut tail
    WALK_STOP = 1             # the piece is full
    WALK_INFLATE = 2          # entry e waits for its payload to be decompressed
    WALK_BASE = 3             # views: the source's next variadic buffer is due


cdef int walk(Pass* d, Slab* s, int64_t stop, CEntry* e, Err* err) noexcept nogil:
    """Append whole uncompressed entries until ``stop`` is passed or a compressed one comes."""
    cdef int status
    cdef const uint8_t* p
    cdef const uint8_t* latest
    while True:
        if d.position >= stop:
            return WALK_STOP
        if d.size - d.position > MAGIC_POSITION and d.data[d.position + MAGIC_POSITION] < 2 and not d.want & SHARED:
            p = d.data + d.position
            latest = run_messages(d, s, NULL, &p, d.data + d.size, d.data + (stop if stop < d.size else d.size),
                                  d.data + d.size)
            d.position = p - d.data
            if latest != NULL:
                continue
        set_mark(s)
        status = entry_header(d.data, d.size, d.position, e, err)
        if status < 1:
            return status
        if e.codec > 4 or (e.codec == 4 and e.magic < 2):
            fail(err, FAULT_CODEC if e.codec > 4 else FAULT_ZSTD_LEGACY, e.codec if e.codec > 4 else e.magic, 4)
            return WALK_FAILED
        if d.verify and not crc_ok(e, err):
            fail(err, FAULT_CRC, err.a, err.b)
            return WALK_FAILED
        if e.magic < 2 and message_body(e, err) < 0:
            return WALK_FAILED
        if e.codec:
            if e.magic < 2 and e.payload == NULL:
                fail(err, FAULT_WRAPPER_NULL, 0, 0)
                return WALK_FAILED
            return WALK_INFLATE
        if d.views and (d.base == NULL or e.p + e.size - d.base > INT32_MAX):
            d.base = e.p
            return WALK_BASE
        if e.magic == 2:
            status = read_batch(d, s, e, e.payload, e.payload_size, d.data + d.size, err)
        else:
            status = put_message(d, s, e, e, e.p + e.size, err)
            if status > 0:
                fill_entry(d, s, e, s.rows - 1, s.rows)
        if status < 0:
            return WALK_FAILED
        d.position += e.size


cdef int read_inflated(Pass* d, Slab* s, CEntry* e, const uint8_t* p, int64_t n, Err* err) noexcept nogil:
    """Append what entry e holds, decompressed at p[0:n], and pass over it: 1, or -1 with ``err`` set."""
    cdef int status
    if e.magic == 2:
        status = read_batch(d, s, e, p, n, p + n, err)
    else:
        status = read_wrapper(d, s, e, p, n, err)
    if status > 0:
        d.base = NULL                          # views of what follows point into another buffer
        d.position += e.size
    return status


# --- decompression -------------------------------------------------------------------------------------

cdef uint32_t rotl(uint32_t v, int n) noexcept nogil:
    return v << n | v >> (32 - n)


cdef uint32_t xxh32_short(const uint8_t* p, int n) noexcept nogil:
    """xxHash32 with seed 0 of fewer than 16 bytes: the lz4 frame's header checksum is its second byte."""
    cdef uint32_t h = <uint32_t> 374761393 + <uint32_t> n
    while n >= 4:
        h = rotl(h + kts_le32(p) * <uint32_t> 3266489917, 17) * <uint32_t> 668265263
        p += 4
        n -= 4
    while n > 0:
        h = rotl(h + p[0] * <uint32_t> 374761393, 11) * <uint32_t> 2654435761
        p += 1
        n -= 1
    h = (h ^ h >> 15) * <uint32_t> 2246822519
    h = (h ^ h >> 13) * <uint32_t> 3266489917
    return h ^ h >> 16


cdef object damaged(str text, str reason="PAYLOAD"):
    return CorruptRecordError(text, reason=reason)


cdef object beyond(int64_t limit):
    return DecompressionLimitError(
        f"decompressing would pass the bound of {limit} bytes; raise max_decompressed_bytes if the data is trusted")


cdef class Inflater:
    """Decompresses one payload at a time, never more than a bound, whatever sizes the payload claims.

    After ``run`` the bytes are at ``out``, valid until the next call; ``owner`` is the bytes object that holds them,
    or None where they lie in the inflater's own scratch memory.
    """

    cdef Buf scratch
    cdef const uint8_t* out
    cdef int64_t out_size
    cdef object owner
    cdef object snappy
    cdef object lz4
    cdef object zstd

    def __dealloc__(self):
        free(self.scratch.p)

    cdef int run(self, CEntry* e, int64_t limit) except -1:
        cdef const uint8_t* p = e.payload
        cdef int64_t n = e.payload_size
        self.owner = None
        self.out = NULL
        self.out_size = 0
        if e.magic == 2 and e.count == 0 and n == 0:
            return 0
        try:
            if e.codec == 1:
                self.gzip(p, n, limit)
            elif e.codec == 2:
                self.snappy_stream(p, n, limit)
            elif e.codec == 3:
                self.lz4_frame(p, n, limit, e.magic)
            else:
                self.zstd_frames(p, n, limit)
        except BaseException as error:
            self.lz4 = self.zstd = None
            if compression.out_of_memory(error):
                raise MemoryError() from None
            if isinstance(error, (CorruptRecordError, ImportError)) or not isinstance(error, Exception):
                raise
            name = compression.CODEC_NAMES[e.codec]
            raise damaged(f"{name} data is damaged: {error}") from error
        return 0

    cdef int keep(self, bytes data) except -1:
        self.owner = data
        self.out = <const uint8_t*> PyBytes_AS_STRING(data)
        self.out_size = PyBytes_GET_SIZE(data)
        return 0

    cdef int own(self, int64_t size) except -1:
        if grow(&self.scratch, size):
            raise MemoryError()
        self.out = self.scratch.p
        return 0

    cdef int gzip(self, const uint8_t* p, int64_t n, int64_t limit) except -1:
        """Every member (RFC 1952), as Java's GZIPInputStream: what follows one and has no whole member header is left."""
        cdef int64_t total = 0, at = gzip_header(p, n), step = n, used, size
        cdef list parts = [], made
        cdef object stream
        cdef bytes data
        cdef uint32_t crc
        if at == 0:
            raise damaged("gzip data has no member header")
        while at:
            stream = compression.deflate_decompressor()
            made = []
            size = 0
            while not stream.eof:
                if at == n:
                    raise damaged("gzip data ends before its end mark")
                used = n - at if n - at < step else step
                data = stream.decompress(PyMemoryView_FromMemory(<char*> p + at, used, PyBUF_READ),
                                         limit - total - size + 1)
                size += PyBytes_GET_SIZE(data)
                if total + size > limit:
                    raise beyond(limit)
                made.append(data)
                at += used - PyBytes_GET_SIZE(<bytes> stream.unconsumed_tail)
                step *= 2
            at -= PyBytes_GET_SIZE(<bytes> stream.unused_data)
            if n - at < 8:
                raise damaged("gzip data ends inside a trailer")
            data = made[0] if len(made) == 1 else b"".join(made)
            crc = kts_crc32(<const uint8_t*> PyBytes_AS_STRING(data), <size_t> size)
            if crc != kts_le32(p + at):
                raise damaged(f"gzip CRC is {crc:08x}, expected the stored {kts_le32(p + at):08x}")
            if <uint32_t> size != kts_le32(p + at + 4):
                raise damaged(f"gzip size is {size}, expected the stored {kts_le32(p + at + 4)}")
            at += 8
            total += size
            parts.append(data)
            # Java looks for a further member only where more than 18 bytes are left
            used = gzip_header(p + at, n - at) if n - at > 18 else 0
            at = at + used if used else 0
            # small steps, doubling: what is read too far is read again, and must not add up to n a member
            step = 256
        return self.keep(parts[0] if len(parts) == 1 else b"".join(parts))

    cdef int snappy_block(self, const uint8_t* p, int64_t n, int64_t limit) except -1:
        """Append one raw block to the scratch memory."""
        cdef uint64_t size = 0
        cdef int shift = 0, i = 0
        while True:
            if i >= n or i > 4:
                raise damaged("snappy block has no length")
            size |= <uint64_t> (p[i] & 0x7F) << shift
            shift += 7
            i += 1
            if p[i - 1] < 0x80:
                break
        if <int64_t> size > limit - self.out_size:
            raise beyond(limit)
        # the densest element makes 64 bytes of 3: a larger claim is a lie, and costs no memory
        if <int64_t> size > 22 * n:
            raise damaged(f"snappy block of {n} bytes claims {size}")
        self.own(self.out_size + <int64_t> size + 1)
        if size == 0:
            if n != i:
                raise damaged("snappy block claims no bytes but has some")
            return 0
        if self.snappy is None:
            self.snappy = compression.snappy_block_decompressor()
        made = self.snappy(PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ),
                           PyMemoryView_FromMemory(<char*> self.scratch.p + self.out_size, <Py_ssize_t> size, PyBUF_WRITE))
        if made != size:
            raise damaged(f"snappy block claims {size} bytes and holds {made}")
        self.out_size += <int64_t> size
        return 0

    cdef int snappy_stream(self, const uint8_t* p, int64_t n, int64_t limit) except -1:
        """snappy-java's chunks behind its header, else one raw block (SnappyInputStream)."""
        cdef int64_t at = 16
        cdef int32_t size
        if n == 0:
            raise damaged("snappy data is empty")
        if n < 16 or memcmp(p, b"\x82SNAPPY\x00", 8) != 0:
            return self.snappy_block(p, n, limit)
        self.own(1)
        while n - at >= 4:
            size = <int32_t> kts_be32(p + at)
            at += 4
            if <uint32_t> size == 0x82534E41u:
                if n - at < 12 or memcmp(p + at, b"PPY\x00", 4) != 0 or <int32_t> kts_be32(p + at + 4) < 1:
                    raise damaged("snappy stream goes on with a damaged header")
                at += 12
                continue
            if size < 0 or size > n - at:
                raise damaged(f"snappy chunk length {size} does not fit the {n - at} bytes left")
            self.snappy_block(p + at, size, limit)
            at += size
        return 0

    cdef int lz4_frame(self, const uint8_t* p, int64_t n, int64_t limit, int magic) except -1:
        """One frame, as Kafka's Lz4BlockInputStream reads it: what follows the end mark is not looked at."""
        cdef int64_t at = 6, most, bound = 0, blocks, size, end
        cdef uint8_t flags, checksum
        cdef uint8_t[8] head
        cdef uint32_t word = 0
        cdef bint rewrite = magic == 0
        cdef object source
        cdef bytes data
        if n < 7 or kts_le32(p) != 0x184D2204:
            raise damaged("lz4 frame has no magic number")
        flags = p[4]
        if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20 or p[5] & 0x8F or p[5] >> 4 < 4:
            raise damaged(f"lz4 frame descriptor {flags:02x} {p[5]:02x} is not one that Kafka reads")
        most = <int64_t> 1 << (8 + 2 * (p[5] >> 4))
        if flags & 0x08:
            at += 8                            # a content size: not believed
        if n <= at:
            raise damaged("lz4 frame ends inside its descriptor")
        checksum = <uint8_t> (xxh32_short(p + 4, <int> (at - 4)) >> 8)
        if magic and checksum != p[at]:
            raise damaged(f"lz4 frame descriptor checksum is {checksum:02x}, expected the stored {p[at]:02x}")
        at += 1
        blocks = at
        while True:
            if n - at < 4:
                raise damaged("lz4 frame ends before its end mark")
            word = kts_le32(p + at)
            size = word & 0x7FFFFFFF
            at += 4
            if size == 0:
                break
            if size > most:
                raise damaged(f"lz4 block of {size} bytes exceeds the frame's {most}")
            if size + (4 if flags & 0x10 else 0) > n - at:
                raise damaged(f"lz4 block of {size} bytes exceeds the {n - at} left")
            if size == 1 and not word >> 31 and p[at] < 16:
                raise damaged("lz4 block holds no bytes")
            bound += size if word >> 31 else (most if most < 255 * size else 255 * size)
            at += size + (4 if flags & 0x10 else 0)
        end = at - 4
        if flags & 0x04:
            rewrite = True                     # a content checksum: there, and not verified
            at += 4
            if n < at:
                raise damaged("lz4 frame ends before its checksum")
        if n - at >= 4 and kts_le32(p + at) == 0x184D2204:
            raise damaged("a second lz4 frame follows the first, and Kafka would not read it", "SECOND_FRAME")
        if rewrite or flags & 0x08 or word:
            # a plain descriptor before the same blocks: the library insists on what Kafka does not read
            memcpy(head, p, 6)
            head[4] = 0x60 | (flags & 0x10)
            head[6] = <uint8_t> (xxh32_short(head + 4, 2) >> 8)
            source = head[:7] + PyBytes_FromStringAndSize(<char*> p + blocks, end - blocks) + bytes(4)
        else:
            source = PyMemoryView_FromMemory(<char*> p, end + 4, PyBUF_READ)
        if self.lz4 is None:
            self.lz4 = compression.lz4_frame_decompressor()
        data, _, ended = self.lz4(source, max_length=(bound if bound < limit else limit) + 16)
        if PyBytes_GET_SIZE(data) > limit:
            raise beyond(limit)
        if not ended:
            raise damaged("lz4 data ends before its end mark")
        return self.keep(data)

    cdef int zstd_frames(self, const uint8_t* p, int64_t n, int64_t limit) except -1:
        """Every frame, as zstd-jni's stream; the blocks are walked first, so nothing is cut and little is claimed."""
        cdef int64_t bound = zstd_bound(p, n), total = 0, cap
        cdef Py_ssize_t got
        if bound < 0:
            raise damaged("zstd data is not a sequence of whole frames")
        cap = (bound if bound < limit else limit) + 1         # one to spare: the library checks a frame's end beyond it
        self.own(cap)
        if self.zstd is None:
            self.zstd = compression.zstd_reader()
        stream = self.zstd(PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ))
        while total < cap:
            got = stream.readinto(PyMemoryView_FromMemory(<char*> self.scratch.p + total, cap - total, PyBUF_WRITE))
            if got <= 0:
                break
            total += got
        if total > limit:
            raise beyond(limit)
        self.out_size = total
        return 0


cdef int64_t gzip_header(const uint8_t* p, int64_t n) noexcept nogil:
    """Length of the whole, well-formed member header at p, else 0."""
    cdef int64_t at = 10
    cdef int flag
    if n < 10 or p[0] != 0x1F or p[1] != 0x8B or p[2] != 8:
        return 0
    if p[3] & 4:                               # extra field
        if n - at < 2:
            return 0
        at += 2 + (p[at] | p[at + 1] << 8)
    for flag in range(8, 24, 8):               # 8 name, 16 comment: up to a zero byte
        if p[3] & flag:
            while at < n and p[at]:
                at += 1
            at += 1
    if p[3] & 2:                               # header CRC
        if n - at < 2 or (p[at] | p[at + 1] << 8) != <int> (kts_crc32(p, <size_t> at) & 0xFFFF):
            return 0
        at += 2
    return at if at <= n else 0


cdef int64_t zstd_bound(const uint8_t* p, int64_t n) noexcept nogil:
    """Most bytes that whole zstd frames can decompress to, by walking their blocks; -1 where they are not whole, or
    state a content size that their blocks cannot reach (the library's streams overlook that)."""
    cdef int64_t at = 0, bound = 0, size, before
    cdef uint64_t stated
    cdef int width, i
    cdef uint32_t word
    cdef uint8_t flags
    if n == 0:
        return -1
    while at < n:
        if n - at < 5:
            return -1
        word = kts_le32(p + at)
        if word & 0xFFFFFFF0u == 0x184D2A50u:  # a skippable frame
            if n - at < 8 or kts_le32(p + at + 4) > n - at - 8:
                return -1
            at += 8 + <int64_t> kts_le32(p + at + 4)
            continue
        if word != 0xFD2FB528u:
            return -1
        flags = p[at + 4]
        at += 5
        at += 0 if flags & 0x20 else 1                       # window descriptor
        at += (1 << (flags & 3)) >> 1                        # dictionary id: 0, 1, 2, 4 bytes
        width = 1 << (flags >> 6) if flags >> 6 else (1 if flags & 0x20 else 0)
        if n - at < width:
            return -1
        stated = 256 if width == 2 else 0                    # content size: none or 1, 2, 4, 8 bytes
        for i in range(width):
            stated += <uint64_t> p[at + i] << (8 * i)
        at += width
        before = bound
        while True:
            if n - at < 3:
                return -1
            word = p[at] | <uint32_t> p[at + 1] << 8 | <uint32_t> p[at + 2] << 16
            size = word >> 3
            at += 3
            if (word >> 1) & 3 == 3:
                return -1
            if (word >> 1) & 3 == 2:
                bound += 131072
            else:
                bound += size
                if (word >> 1) & 3 == 1:
                    size = 1
            if size > n - at:
                return -1
            at += size
            if word & 1:
                break
        if flags & 4:
            at += 4
        if at > n or stated > <uint64_t> (bound - before):
            return -1
    return bound


# --- to Arrow ------------------------------------------------------------------------------------------

cdef uint8_t[64] NOTHING                       # where an array without rows points: Arrow wants an address
memset(NOTHING, 0, 64)


cdef inline const void* address(Buf* b) noexcept nogil:
    return b.p if b.p != NULL else NOTHING


cdef void release(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    array.release = NULL
    slab_unref(<Slab*> array.private_data)


cdef int64_t pack(Slab* s, int column) noexcept nogil:
    """Bitmap of a column of bytes 0 and 1 into ``bits``; how many are 0, or -1 without memory."""
    cdef int64_t i, zeros = 0
    cdef const uint8_t* p = s.fixed[column].p
    cdef Buf* bits = &s.bits[column]
    if grow(bits, (s.rows + 8) >> 3):
        return -1
    memset(bits.p, 0, <size_t> ((s.rows + 8) >> 3))
    for i in range(s.rows):
        bits.p[i >> 3] |= <uint8_t> (p[i] << (i & 7))
        zeros += 1 - p[i]
    return zeros


cdef ArrowArray* node(Slab* s, int* used, int64_t rows, int64_t nulls) noexcept nogil:
    cdef ArrowArray* a = &s.nodes[used[0]]
    s.kids[used[0]] = a
    used[0] += 1
    a.length = rows
    a.null_count = nulls
    a.offset = 0
    a.n_buffers = 0
    a.n_children = 0
    a.buffers = NULL
    a.children = NULL
    a.dictionary = NULL
    a.release = release
    a.private_data = s
    return a


cdef const void** text_node(Slab* s, int* used, Text* t, bint views, const void** at) noexcept nogil:
    cdef ArrowArray* a = node(s, used, t.rows, t.nulls)
    cdef int i
    a.buffers = at
    at[0] = t.valid.p if t.nulls else NULL
    at[1] = address(&t.offsets) if t.rows else NOTHING
    if not views:
        at[2] = address(&t.data)
        a.n_buffers = 3
    else:
        for i in range(s.n_kept):
            at[2 + i] = (<void**> s.bases.p)[i]
        at[2 + s.n_kept] = address(&s.sizes)
        a.n_buffers = 3 + s.n_kept
    return at + a.n_buffers


cdef ArrowArray* export(Slab* s, const uint8_t* ids, int n, bint views, uint32_t nullable) noexcept nogil:
    """Describe the slab's rows to Arrow, as a struct of the columns ``ids``; NULL without memory. Takes the reference."""
    cdef int i, column, used = 0, direct
    cdef int64_t nulls = 0
    cdef const void** at
    cdef ArrowArray* a
    if grow(&s.pointers, <int64_t> sizeof(void*) * (4 * COLUMNS + 3 + 2 * s.n_kept)):
        return NULL
    at = <const void**> s.pointers.p
    if nullable:
        nulls = pack(s, C_IS_BATCH)
        if nulls < 0:
            return NULL
    a = node(s, &used, s.rows, 0)
    at[0] = NULL
    a.buffers = at
    a.n_buffers = 1
    at += 1
    # children of the row first: their addresses must follow one another
    direct = used
    a.n_children = n
    a.children = &s.kids[direct]
    for i in range(n):
        column = ids[i]
        if column == C_KEY:
            at = text_node(s, &used, &s.key, views, at)
        elif column == C_VALUE:
            at = text_node(s, &used, &s.value, views, at)
        else:
            a = node(s, &used, s.rows, 0)
            a.buffers = at
            a.n_buffers = 2
            at[0] = NULL
            if column == C_HEADERS:
                a.null_count = s.header_nulls
                at[0] = address(&s.header_valid)
                at[1] = address(&s.header_offsets) if s.rows else NOTHING
            elif column == C_TXN or column == C_CONTROL or column == C_CRC_OK:
                if pack(s, column) < 0:
                    return NULL
                at[1] = address(&s.bits[column])
            else:
                at[1] = address(&s.fixed[column])
                if (nullable >> column) & 1:
                    a.null_count = nulls
                    at[0] = address(&s.bits[C_IS_BATCH])
            at += 2
    for i in range(n):
        if ids[i] == C_HEADERS:
            s.nodes[direct + i].n_children = 1
            s.nodes[direct + i].children = &s.kids[used]
            a = node(s, &used, s.header_key.rows, 0)
            at[0] = NULL
            a.buffers = at
            a.n_buffers = 1
            at += 1
            a.n_children = 2
            a.children = &s.kids[used]
            at = text_node(s, &used, &s.header_key, False, at)
            at = text_node(s, &used, &s.header_value, False, at)
    s.refs = used
    return &s.nodes[0]


# --- the Python surface --------------------------------------------------------------------------------

cdef class Source:
    """Keeps a caller's buffer, for as long as a pass or a view needs it."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buf):
        try:
            PyObject_GetBuffer(buf, &self.view, PyBUF_SIMPLE)
        except TypeError as error:
            raise TypeError(f"buf: expected bytes or another buffer, found {type(buf).__name__}") from error
        except (BufferError, ValueError) as error:
            raise TypeError(f"buf: expected a contiguous buffer: {error}") from error
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Decoder:
    """One pass over a buffer, in pieces of whole entries.

    Parameters
    ----------
    buf : buffer
        Entries of any magic.
    ids : bytes
        Positions of the wanted columns in ``ALL_COLUMNS``.
    views : bool
        Keys and values as views into ``buf`` (or into decompressed bytes), instead of copies.
    verify_crc : bool
    max_decompressed_bytes : int
        Bound on each batch or wrapper.
    """

    cdef Source source
    cdef Inflater inflater
    cdef bytes ids
    cdef Pass d
    cdef int64_t limit
    cdef uint32_t nullable
    cdef object failure
    cdef void* busy           # this decoder, while a thread is in ``next``
    cdef bint ended

    def __cinit__(self, buf, bytes ids not None, bint views, bint verify_crc, int64_t max_decompressed_bytes):
        cdef uint8_t column
        self.source = Source(buf)
        self.inflater = Inflater()
        self.ids = ids
        self.limit = max_decompressed_bytes
        self.d.data = <const uint8_t*> self.source.view.buf
        self.d.size = self.source.view.len
        self.d.views = views
        self.d.verify = verify_crc
        for column in ids:
            self.d.want |= <uint32_t> 1 << column
        self.d.want |= (1 << C_TIMESTAMP if wants(&self.d, C_CREATE) else 0) | (
            1 << C_OFFSET if wants(&self.d, C_SEQUENCE) else 0)          # the one is read off the other
        self.d.run = run_of(self.d.want, views, verify_crc)
        self.nullable = self.d.want & (1 << C_BASE | 1 << C_DELTA | 1 << C_BASE_TS | 1 << C_MAX_TS)
        if self.nullable:
            self.d.want |= 1 << C_IS_BATCH
    @property
    def position(self):
        """Where the next piece begins: bytes of whole entries read so far."""
        return self.d.position

    def next(self, int64_t slice_bytes):
        """Address of an ArrowArray (struct of the columns) with about ``slice_bytes`` of input, 0 at the end.

        ``slice_bytes`` 0 is all in one piece. Whoever gets the address owns the array.

        Raises
        ------
        CorruptRecordError
            Damage; after the whole entries before it were given, unless all was asked for in one piece.
        """
        if kts_swap(&self.busy, <void*> self) != NULL:
            raise ValueError("this decoder is running in another thread")
        try:
            return self.piece(slice_bytes)
        finally:
            kts_swap(&self.busy, NULL)

    cdef object piece(self, int64_t slice_bytes):
        cdef object address
        cdef Slab* s
        cdef ArrowArray* array
        cdef int status
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.ended:
            return 0
        s = slab_take()
        try:
            if s == NULL:
                raise MemoryError()
            try:
                status = self.fill(s, slice_bytes)
                self.ended = status == WALK_END
            except BaseException as error:
                self.ended = True
                take_back(s)
                if slice_bytes == 0 or s.rows == 0 or not isinstance(error, CorruptRecordError):
                    raise
                self.failure = error
            if s.rows == 0 and slice_bytes:
                return 0
            array = export(s, <const uint8_t*> PyBytes_AS_STRING(self.ids), <int> PyBytes_GET_SIZE(self.ids),
                           self.d.views, self.nullable)
            if array == NULL:
                self.ended = True              # its rows are lost: no others may follow
                raise MemoryError()
            address = <intptr_t> array
            s = NULL                           # the array holds it now
            return address
        finally:
            if s != NULL:
                slab_unref(s)

    cdef int keep(self, Slab* s, object owner, const uint8_t* base, int64_t size) except -1:
        """Make ``base`` the variadic buffer that the next views point into."""
        cdef int n = s.n_kept
        if grow(&s.kept, (n + 1) * sizeof(void*)) or grow(&s.bases, (n + 1) * sizeof(void*)) \
                or grow(&s.sizes, (n + 1) * 8):
            raise MemoryError()
        Py_INCREF(owner)
        (<PyObject**> s.kept.p)[n] = <PyObject*> owner
        (<const void**> s.bases.p)[n] = base
        (<int64_t*> s.sizes.p)[n] = size
        s.n_kept = n + 1
        self.d.base = base
        self.d.buffer = n
        return 0

    cdef int fill(self, Slab* s, int64_t slice_bytes) except -2:
        """Append entries until the piece is full: WALK_END or WALK_STOP."""
        cdef CEntry e
        cdef Err err
        cdef int status
        cdef Pass* d = &self.d
        cdef int64_t whole = d.size + 1, stop, made = 0, left
        stop = d.position + slice_bytes if 0 < slice_bytes < whole - d.position else whole
        d.base = NULL
        set_mark(s)
        while True:
            with nogil:
                status = walk(d, s, stop, &e, &err)
            while status == WALK_INFLATE:
                self.inflate(s, &e)
                made += self.inflater.out_size
                if slice_bytes and made >= 8 * slice_bytes:
                    stop = d.position          # well-compressed entries: a piece is not to become huge
                with nogil:
                    status = read_inflated(d, s, &e, self.inflater.out, self.inflater.out_size, &err)
                    if status > 0:
                        status = walk(d, s, stop, &e, &err)
            if status == WALK_FAILED:
                raise error_of(&err)
            elif status == WALK_END:
                return status
            elif status == WALK_BASE:
                left = d.data + d.size - d.base
                self.keep(s, self.source, d.base, left if left < INT32_MAX else INT32_MAX)
            elif s.rows:
                return status
            else:
                stop = d.position + slice_bytes if slice_bytes < whole - d.position else whole

    cdef int inflate(self, Slab* s, CEntry* e) except -1:
        cdef bytes owner
        try:
            self.inflater.run(e, self.limit)
        except CorruptRecordError as error:
            error.position = e.position
            error.offset = e.offset
            raise
        if self.d.views:
            if self.inflater.out_size > INT32_MAX:
                raise ValueError(f"buf: the batch at position {e.position} decompresses to {self.inflater.out_size} bytes, "
                                 "and a view reaches 2 GiB at most; read it with views=False")
            owner = self.inflater.owner
            if owner is None:
                owner = PyBytes_FromStringAndSize(<char*> self.inflater.out, self.inflater.out_size)
                self.inflater.out = <const uint8_t*> PyBytes_AS_STRING(owner)
            self.keep(s, owner, self.inflater.out, self.inflater.out_size)
        return 0


def max_timestamp(buf, bint verify_crc, int64_t max_decompressed_bytes):
    """(timestamp, offset, shallow offset) of the first record with the greatest timestamp; (-1, -1, -1) without one."""
    cdef Decoder decoder = Decoder(buf, bytes((C_OFFSET, C_TIMESTAMP, C_SHALLOW)), False, verify_crc,
                                   max_decompressed_bytes)
    cdef Slab* s = slab_take()
    cdef int64_t i, best = -1, offset = -1, shallow = -1
    cdef int64_t* timestamps
    cdef int status = WALK_STOP
    if s == NULL:
        raise MemoryError()
    decoder.d.run |= KTS_REST                  # as Kafka, which looks at every field on its way
    try:
        while status != WALK_END:
            s.rows = s.key.rows = s.value.rows = 0
            status = decoder.fill(s, 1048576)
            with nogil:
                timestamps = <int64_t*> s.fixed[C_TIMESTAMP].p
                for i in range(s.rows):
                    if timestamps[i] > best:
                        best = timestamps[i]
                        offset = (<int64_t*> s.fixed[C_OFFSET].p)[i]
                        shallow = (<int64_t*> s.fixed[C_SHALLOW].p)[i]
    finally:
        slab_unref(s)
    return best, offset, shallow


def valid_bytes(buf):
    """Length of the whole entries at the front; CorruptRecordError for an impossible size or magic."""
    cdef Source source = Source(buf)
    cdef const uint8_t* p = <const uint8_t*> source.view.buf
    cdef int64_t total = source.view.len, at = 0, size = 0
    cdef int status
    cdef Err err
    with nogil:
        while True:
            status = next_size(p + at, total - at, &size, &err)
            if status < 1:
                break
            at += size
    if status < 0:
        err.position = at
        err.record = err.count = -1
        err.offset = <int64_t> kts_be64(p + at)
        raise error_of(&err)
    return at


cdef bytes SCAN_IDS = bytes((C_POSITION, C_SIZE, C_MAGIC, C_BASE, C_OFFSET, C_DELTA, C_BASE_TS, C_MAX_TS, C_TYPE, C_CODEC,
                  C_LEADER, C_PID, C_EPOCH, C_SEQUENCE, C_TXN, C_CONTROL, C_CRC_OK))


cdef int scan_entries(Pass* d, Slab* s, Err* err) noexcept nogil:
    cdef CEntry e
    cdef int64_t row
    cdef bint batch, plain
    cdef int status
    while True:
        status = entry_header(d.data, d.size, d.position, &e, err)
        if status < 1:
            return status
        if s.rows == s.row_room and room(d, s, 64 + s.rows, 0):
            return fail(err, FAULT_MEMORY, 0, 0)
        row = s.rows
        batch = e.magic == 2
        plain = batch or e.codec == 0
        (<int64_t*> s.fixed[C_POSITION].p)[row] = e.position
        (<int32_t*> s.fixed[C_SIZE].p)[row] = <int32_t> e.size
        s.fixed[C_MAGIC].p[row] = <uint8_t> e.magic
        s.fixed[C_IS_BATCH].p[row] = plain
        (<int64_t*> s.fixed[C_BASE].p)[row] = e.offset if plain else 0
        (<int64_t*> s.fixed[C_OFFSET].p)[row] = <int64_t> (<uint64_t> e.offset + <uint64_t> <int64_t> e.last_offset_delta)
        (<int32_t*> s.fixed[C_DELTA].p)[row] = e.count if batch else plain
        (<int64_t*> s.fixed[C_BASE_TS].p)[row] = e.base_timestamp
        (<int64_t*> s.fixed[C_MAX_TS].p)[row] = e.max_timestamp
        (<int32_t*> s.fixed[C_TYPE].p)[row] = (e.attributes & LOG_APPEND_TIME) != 0 if e.magic else -1
        s.fixed[C_CODEC].p[row] = <uint8_t> e.codec
        (<int32_t*> s.fixed[C_LEADER].p)[row] = e.leader_epoch
        (<int64_t*> s.fixed[C_PID].p)[row] = e.producer_id
        (<int16_t*> s.fixed[C_EPOCH].p)[row] = e.producer_epoch
        (<int32_t*> s.fixed[C_SEQUENCE].p)[row] = e.base_sequence
        s.fixed[C_TXN].p[row] = batch and (e.attributes & TRANSACTIONAL) != 0
        s.fixed[C_CONTROL].p[row] = batch and (e.attributes & CONTROL) != 0
        s.fixed[C_CRC_OK].p[row] = crc_ok(&e, err)
        s.rows = row + 1
        d.position += e.size


def scan(buf):
    """Address of an ArrowArray with one row an entry, in the columns ``SCAN_IDS``; from headers and CRCs alone."""
    cdef Source source = Source(buf)
    cdef Pass d
    cdef Err err
    cdef Slab* s
    cdef ArrowArray* array = NULL
    cdef int status
    cdef const uint8_t* ids = <const uint8_t*> PyBytes_AS_STRING(SCAN_IDS)
    cdef uint8_t column
    memset(&d, 0, sizeof(Pass))
    d.data = <const uint8_t*> source.view.buf
    d.size = source.view.len
    for column in SCAN_IDS:
        d.want |= <uint32_t> 1 << column
    d.want |= 1 << C_IS_BATCH
    s = slab_take()
    if s == NULL:
        raise MemoryError()
    with nogil:
        status = scan_entries(&d, s, &err)
        if status >= 0:
            array = export(s, ids, 17, False, 1 << C_BASE | 1 << C_DELTA)
        if array == NULL:
            slab_unref(s)
    if status < 0:
        raise error_of(&err)
    if array == NULL:
        raise MemoryError()
    return <intptr_t> array


# --- the table of entries ------------------------------------------------------------------------------

ENTRY_FIELDS = (
    "position", "size", "magic", "base_offset", "last_offset", "count", "base_timestamp", "max_timestamp",
    "timestamp_type", "codec", "attributes", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
    "transactional", "control", "crc_ok",
)

cdef enum:                    # positions in ENTRY_FIELDS
    E_POSITION, E_SIZE, E_MAGIC, E_BASE_OFFSET, E_LAST_OFFSET, E_COUNT, E_BASE_TIMESTAMP, E_MAX_TIMESTAMP
    E_TIMESTAMP_TYPE, E_CODEC, E_ATTRIBUTES, E_LEADER_EPOCH, E_PRODUCER_ID, E_PRODUCER_EPOCH, E_BASE_SEQUENCE
    E_TRANSACTIONAL, E_CONTROL, E_CRC_OK


cdef int64_t entry_field(const CEntry* e, int field) noexcept nogil:
    """A field of an entry as Python sees it; -1 where its magic does not have it."""
    cdef bint batch = e.magic == 2
    if field == E_POSITION:
        return e.position
    if field == E_SIZE:
        return e.size
    if field == E_MAGIC:
        return e.magic
    if field == E_BASE_OFFSET:                 # a wrapper states its last offset only
        return e.offset if batch or e.codec == 0 else -1
    if field == E_LAST_OFFSET:
        return <int64_t> (<uint64_t> e.offset + <uint64_t> <int64_t> e.last_offset_delta)
    if field == E_COUNT:
        return e.count if batch else 1 if e.codec == 0 else -1
    if field == E_BASE_TIMESTAMP:
        return e.base_timestamp
    if field == E_MAX_TIMESTAMP:
        return e.max_timestamp
    if field == E_TIMESTAMP_TYPE:
        return (e.attributes & LOG_APPEND_TIME) != 0 if e.magic else -1
    if field == E_CODEC:
        return e.codec
    if field == E_ATTRIBUTES:
        return e.attributes
    if field == E_LEADER_EPOCH:
        return e.leader_epoch
    if field == E_PRODUCER_ID:
        return e.producer_id
    if field == E_PRODUCER_EPOCH:
        return e.producer_epoch
    if field == E_BASE_SEQUENCE:
        return e.base_sequence
    if field == E_TRANSACTIONAL:
        return batch and (e.attributes & TRANSACTIONAL) != 0
    if field == E_CONTROL:
        return batch and (e.attributes & CONTROL) != 0
    return e.crc_ok


cdef class Entry:
    """The header of one entry: a record batch, a message or a wrapper message.

    Attributes
    ----------
    position, size, end : int
        Where the entry begins, its bytes with the 12 of overhead, and where it ends.
    magic, codec, attributes : int
    base_offset, last_offset : int
        ``base_offset`` is -1 for a wrapper, whose header states its last offset only.
    count : int
        Records; -1 for a wrapper.
    base_timestamp, max_timestamp : int
        In ms; both are the timestamp of a message, -1 in magic 0.
    timestamp_type : int
        0 CreateTime, 1 LogAppendTime, -1 in magic 0.
    leader_epoch, producer_id, producer_epoch, base_sequence : int
        -1 below magic 2.
    transactional, control : bool
        False below magic 2.
    crc_ok : bool or None
        None where CRCs were not verified.
    """

    cdef CEntry e

    def __init__(self):
        raise TypeError("an Entry is read from bytes: use Entries or read_header")

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in ENTRY_FIELDS)
        return f"Entry({fields})"

    @property
    def position(self):
        return self.e.position

    @property
    def size(self):
        return self.e.size

    @property
    def end(self):
        return self.e.position + self.e.size

    @property
    def magic(self):
        return self.e.magic

    @property
    def base_offset(self):
        return entry_field(&self.e, E_BASE_OFFSET)

    @property
    def last_offset(self):
        return entry_field(&self.e, E_LAST_OFFSET)

    @property
    def count(self):
        return entry_field(&self.e, E_COUNT)

    @property
    def base_timestamp(self):
        return self.e.base_timestamp

    @property
    def max_timestamp(self):
        return self.e.max_timestamp

    @property
    def timestamp_type(self):
        return entry_field(&self.e, E_TIMESTAMP_TYPE)

    @property
    def codec(self):
        return self.e.codec

    @property
    def attributes(self):
        return self.e.attributes

    @property
    def leader_epoch(self):
        return self.e.leader_epoch

    @property
    def producer_id(self):
        return self.e.producer_id

    @property
    def producer_epoch(self):
        return self.e.producer_epoch

    @property
    def base_sequence(self):
        return self.e.base_sequence

    @property
    def transactional(self):
        return entry_field(&self.e, E_TRANSACTIONAL) != 0

    @property
    def control(self):
        return entry_field(&self.e, E_CONTROL) != 0

    @property
    def crc_ok(self):
        return None if self.e.crc_ok < 0 else self.e.crc_ok != 0


cdef Entry entry_of(const CEntry* e):
    cdef Entry made = Entry.__new__(Entry)
    made.e = e[0]
    made.e.p = made.e.payload = made.e.key = NULL            # the buffer is not kept
    return made


cdef class Entries:
    """The headers of the whole entries of a buffer, read in one walk. The buffer is not kept.

    Parameters
    ----------
    buf : buffer
        Entries of any magic. An entry that is cut at the end is left out.
    start : int
        Position of the buffer's first byte in its file; it is added to the positions.
    verify_crc : bool
        Also compute each entry's CRC, see ``all_sound`` and ``crc_ok``.
    until_damage : bool
        Stop in front of an entry with an impossible size or magic, and keep what is wrong with it as ``error``.

    Raises
    ------
    CorruptRecordError
        An impossible size or magic, unless ``until_damage`` is set.

    Attributes
    ----------
    end : int
        Position behind the last whole entry.
    error : CorruptRecordError or None
        What stopped the walk.
    all_sound : bool
        True if every CRC that was verified is right.

    Notes
    -----
    ``len(entries)``, ``entries[i]`` and iteration give ``Entry`` objects: for few entries, since each costs about 0.1
    us. ``column(name)`` gives an array: for many.
    """

    cdef CEntry* rows
    cdef CEntry one           # the first row, so that a single entry needs no memory of its own
    cdef int64_t count
    cdef readonly int64_t end
    cdef readonly object error
    cdef readonly bint all_sound

    def __cinit__(self, buf, *, int64_t start=0, bint verify_crc=False, bint until_damage=False):
        cdef Source source = Source(buf)
        cdef Err err
        cdef int status
        with nogil:
            status = self.walk(<const uint8_t*> source.view.buf, source.view.len, start, verify_crc, &err)
        if status < 0:
            if err.fault != FAULT_MEMORY:
                err.position += start
            error = error_of(&err)
            if not until_damage or err.fault == FAULT_MEMORY:
                raise error
            self.error = error

    def __dealloc__(self):
        if self.rows != &self.one:
            free(self.rows)

    cdef int walk(self, const uint8_t* p, int64_t n, int64_t start, bint verify, Err* err) noexcept nogil:
        cdef CEntry e
        cdef CEntry* more
        cdef int64_t position = 0, room = 1
        cdef int status
        self.rows = &self.one
        self.all_sound = True
        while True:
            self.end = start + position
            status = entry_header(p, n, position, &e, err)
            if status < 1:
                return status
            position += e.size
            e.position += start
            e.crc_ok = crc_ok(&e, err) if verify else -1
            if e.crc_ok == 0:
                self.all_sound = False
            if self.count == room:
                room = 64 if room == 1 else 2 * room
                more = <CEntry*> realloc(NULL if self.rows == &self.one else self.rows, <size_t> room * sizeof(CEntry))
                if more == NULL:
                    return fail(err, FAULT_MEMORY, 0, 0)
                if self.rows == &self.one:
                    more[0] = self.one
                self.rows = more
            self.rows[self.count] = e
            self.count += 1

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        if i < 0:
            i += self.count
        if not 0 <= i < self.count:
            raise IndexError(f"expected one of {self.count} entries, found {i}")
        return entry_of(self.rows + i)

    def __iter__(self):
        cdef int64_t i
        for i in range(self.count):
            yield entry_of(self.rows + i)

    def column(self, str name not None):
        """One field of all entries, in a new array: int64, or bool for ``transactional``, ``control`` and ``crc_ok``."""
        import numpy as np

        cdef int field = ENTRY_FIELDS.index(name)
        cdef int64_t i
        cdef int64_t[::1] numbers
        cdef uint8_t[::1] bits
        if field < E_TRANSACTIONAL:
            made = np.empty(self.count, np.int64)
            numbers = made
            for i in range(self.count):
                numbers[i] = entry_field(self.rows + i, field)
            return made
        if field == E_CRC_OK and self.count and self.rows.crc_ok < 0:
            raise ValueError("crc_ok: the CRCs of these entries were not verified")
        made = np.empty(self.count, np.uint8)
        bits = made
        for i in range(self.count):
            bits[i] = entry_field(self.rows + i, field) != 0
        return made.view(np.bool_)


def read_header(buf, int64_t at=0, *, int64_t start=0):
    """The header of the entry that begins at byte ``at``; its end need not be in the buffer.

    Parameters
    ----------
    buf : buffer
        61 bytes from ``at`` on are enough for any entry.
    start : int
        Position of the buffer's first byte in its file.

    Returns
    -------
    Entry or None
        None where the header itself is cut. ``crc_ok`` is None.

    Raises
    ------
    CorruptRecordError
        An impossible size or magic.
    """
    cdef Source source = Source(buf)
    cdef CEntry e
    cdef Err err
    cdef int status
    if not 0 <= at <= source.view.len:
        raise ValueError(f"at: expected 0 to {source.view.len}, found {at}")
    status = header_at(<const uint8_t*> source.view.buf, source.view.len, at, &e, &err)
    if status < 0:
        err.position += start
        raise error_of(&err)
    if status == 0:
        return None
    e.position += start
    e.crc_ok = -1
    return entry_of(&e)


# --- writing -------------------------------------------------------------------------------------------

cdef struct Strings:          # an Arrow binary column
    const int32_t* offsets
    const uint8_t* data
    const uint8_t* end        # of the memory that may be read
    const uint8_t* valid      # NULL: no nulls
    int64_t shift             # the array's offset

cdef struct Rows:
    int64_t count
    const int64_t* offsets
    const int64_t* times      # what the records carry themselves
    Strings key
    Strings value
    const int32_t* headers    # NULL: none
    int64_t header_shift
    Strings header_key
    Strings header_value

cdef struct Head:             # what a batch says of its rows
    int16_t attributes
    int64_t offset            # base offset
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t leader_epoch
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int follows               # FOLLOWS_*: what is not stated

cdef enum:
    FOLLOWS_OFFSET = 1        # from the rows
    FOLLOWS_DELTA = 2
    FOLLOWS_BASE = 4
    FOLLOWS_MAX = 8

cdef enum:
    LARGEST_ENTRY = 2147483635


cdef struct Sink:             # where bytes are written
    uint8_t* p
    int64_t cap
    int64_t end
    int64_t need              # room behind the end that was wanted last, and was not there

cdef enum:
    FULL = -1                 # the row does not fit the batch any more
    CRAMPED = -2              # the sink is to be made larger
    HUGE = -3                 # the row is too large for any


cdef inline int64_t string_at(const Strings* t, int64_t row, const uint8_t** p) noexcept nogil:
    """Length of a string, -1 where null."""
    cdef int64_t i = row + t.shift
    if t.offsets == NULL or (t.valid != NULL and not (t.valid[i >> 3] >> (i & 7)) & 1):
        return -1
    p[0] = t.data + t.offsets[i]
    return t.offsets[i + 1] - t.offsets[i]


cdef int64_t data_bytes(const Strings* t, int64_t first, int64_t last) noexcept nogil:
    return 0 if t.offsets == NULL else t.offsets[last + t.shift] - t.offsets[first + t.shift]


cdef inline uint8_t* put_varint(uint8_t* p, int64_t v) noexcept nogil:
    cdef uint64_t raw = (<uint64_t> v << 1) ^ <uint64_t> (v >> 63)
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t> raw
    return p + 1


cdef inline uint8_t* put_string(uint8_t* p, const uint8_t* string, int64_t n, const uint8_t* end) noexcept nogil:
    """Length and bytes; n < 0 is null. KTS_SLACK bytes more are written to, but not counted."""
    p = put_varint(p, n)
    if n > 0:
        kts_copy(p, string, n, end)
        p += n
    return p


cdef int64_t put_record(Sink* out, const Rows* r, int64_t row, int64_t time_delta, int64_t offset_delta, int64_t most,
                        int* prefix) noexcept nogil:
    """Write a record behind ``out.end``: its bytes, FULL where they are more than ``most``, CRAMPED.

    ``prefix`` is the width of the last record's length field, and most likely of this one's: the field is known last.
    """
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef const uint8_t* string = NULL
    cdef int64_t key_size = string_at(&r.key, row, &key), size = string_at(&r.value, row, &value), h, n, first = 0, last
    cdef int64_t count = 0, need = 48 + KTS_SLACK + key_size + size
    cdef uint8_t* start
    cdef uint8_t* body
    cdef uint8_t* p
    if r.headers != NULL:
        first = r.headers[row + r.header_shift]
        last = r.headers[row + r.header_shift + 1]
        count = last - first
        for h in range(first, last):
            need += 10 + string_at(&r.header_key, h, &string) + string_at(&r.header_value, h, &string)
    if key_size + size > most:
        return FULL
    if out.end + need > out.cap:
        out.need = need
        return CRAMPED
    start = out.p + out.end
    body = start + prefix[0]
    body[0] = 0
    p = put_varint(body + 1, time_delta)
    p = put_varint(p, offset_delta)
    p = put_string(p, key, key_size, r.key.end)
    p = put_string(p, value, size, r.value.end)
    p = put_varint(p, count)
    for h in range(first, first + count):
        n = string_at(&r.header_key, h, &string)
        p = put_string(p, string, n, r.header_key.end)
        n = string_at(&r.header_value, h, &string)
        p = put_string(p, string, n, r.header_value.end)
    size = p - body
    n = put_varint(start, size) - start
    if n != prefix[0]:
        # the length was written over the body's first bytes, or a gap is left: once more with the right width
        prefix[0] = <int> n
        return put_record(out, r, row, time_delta, offset_delta, most, prefix)
    return n + size if n + size <= most else FULL


cdef void put_head(Sink* out, int64_t at, const Head* h, int32_t count) noexcept nogil:
    """The header of the batch that begins at ``at`` and ends where the sink does."""
    cdef uint8_t* p = out.p + at
    cdef int64_t size = out.end - at
    kts_put64(p, <uint64_t> h.offset)
    kts_put32(p + 8, <uint32_t> (size - LOG_OVERHEAD))
    kts_put32(p + 12, <uint32_t> h.leader_epoch)
    p[16] = 2
    kts_put16(p + 21, <uint16_t> h.attributes)
    kts_put32(p + 23, <uint32_t> h.last_offset_delta)
    kts_put64(p + 27, <uint64_t> h.base_timestamp)
    kts_put64(p + 35, <uint64_t> h.max_timestamp)
    kts_put64(p + 43, <uint64_t> h.producer_id)
    kts_put16(p + 51, <uint16_t> h.producer_epoch)
    kts_put32(p + 53, <uint32_t> h.base_sequence)
    kts_put32(p + 57, <uint32_t> count)
    kts_put32(p + 17, kts_crc32c(p + 21, <size_t> (size - 21)))


cdef int put_entry(Sink* out, int magic, int attributes, int64_t offset, int64_t timestamp, const uint8_t* key,
                   int64_t key_size, const uint8_t* key_end, const uint8_t* value, int64_t value_size,
                   const uint8_t* value_end) noexcept nogil:
    """Append a message of magic 0 or 1 with its offset and size; sizes below 0 are null. 0, CRAMPED or HUGE."""
    cdef int64_t size = (V1_OVERHEAD if magic else V0_OVERHEAD)
    cdef uint8_t* p
    cdef uint8_t* start = out.p + out.end
    size += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
    if size > LARGEST_ENTRY:
        return HUGE
    if out.end + LOG_OVERHEAD + size + KTS_SLACK > out.cap:
        out.need = LOG_OVERHEAD + size + KTS_SLACK
        return CRAMPED
    kts_put64(start, <uint64_t> offset)
    kts_put32(start + 8, <uint32_t> size)
    start[16] = <uint8_t> magic
    start[17] = <uint8_t> attributes
    p = start + 18
    if magic:
        kts_put64(p, <uint64_t> timestamp)
        p += 8
    kts_put32(p, <uint32_t> key_size)
    p += 4
    if key_size > 0:
        kts_copy(p, key, key_size, key_end)
        p += key_size
    kts_put32(p, <uint32_t> value_size)
    p += 4
    if value_size > 0:
        kts_copy(p, value, value_size, value_end)
    kts_put32(start + 12, kts_crc32(start + 16, <size_t> (size - 4)))
    out.end += LOG_OVERHEAD + size
    return 0


cdef int64_t put_rows(Sink* out, const Rows* r, int64_t row, int64_t last, int magic, int attributes, bint own,
                      int64_t time, int64_t base, int64_t most, int64_t* top, int* status) noexcept nogil:
    """Append messages of rows up to ``last``, one at least, while they end within ``most`` bytes; the next row.

    Offsets are written relative to ``base``. ``status`` is 0, CRAMPED or HUGE; ``top`` the greatest of the rows' times.
    """
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int64_t key_size, value_size, before, overhead = LOG_OVERHEAD + (V1_OVERHEAD if magic else V0_OVERHEAD)
    status[0] = 0
    while row < last:
        key_size = string_at(&r.key, row, &key)
        value_size = string_at(&r.value, row, &value)
        before = out.end + overhead + (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
        if before > most and out.end:
            break
        status[0] = put_entry(out, magic, attributes, <int64_t> (<uint64_t> r.offsets[row] - <uint64_t> base), r.times[row] if own else time,
                              key, key_size, r.key.end, value, value_size, r.value.end)
        if status[0]:
            break
        if r.times[row] > top[0]:
            top[0] = r.times[row]
        row += 1
    return row


cdef Head head_of(tuple items):
    cdef Head h
    memset(&h, 0, sizeof(Head))
    h.attributes = items[0]
    if items[1] is None:
        h.follows |= FOLLOWS_OFFSET
    else:
        h.offset = items[1]
    if items[2] is None:
        h.follows |= FOLLOWS_DELTA
    else:
        h.last_offset_delta = items[2]
    if items[3] is None:
        h.follows |= FOLLOWS_BASE
    else:
        h.base_timestamp = items[3]
    if items[4] is None:
        h.follows |= FOLLOWS_MAX
    else:
        h.max_timestamp = items[4]
    h.leader_epoch, h.producer_id, h.producer_epoch, h.base_sequence = items[5:]
    return h


cdef class Encoder:
    """Writes rows of Arrow columns as record batches or messages.

    The addresses handed to ``rows`` must stay valid as long as the encoder is used.
    """

    cdef Rows r
    cdef Sink out             # the bytes object that will be the result
    cdef PyObject* made
    cdef Sink body            # what is to be compressed

    def __dealloc__(self):
        Py_XDECREF(self.made)
        free(self.body.p)

    def rows(self, int64_t count, intptr_t offsets, intptr_t times, key, value, headers):
        """Where the rows lie: addresses of int64 columns; (offsets, data, bytes of data, valid, shift) of binary ones,
        or None."""
        self.r.count = count
        self.r.offsets = <const int64_t*> offsets
        self.r.times = <const int64_t*> times
        self.strings(&self.r.key, key)
        self.strings(&self.r.value, value)
        if headers is not None:
            self.r.headers = <const int32_t*> <intptr_t> headers[0]
            self.r.header_shift = headers[1]
            self.strings(&self.r.header_key, headers[2])
            self.strings(&self.r.header_value, headers[3])

    cdef int strings(self, Strings* t, column) except -1:
        if column is None:
            t.offsets = NULL
            return 0
        t.offsets = <const int32_t*> <intptr_t> column[0]
        t.data = <const uint8_t*> <intptr_t> column[1]
        t.end = t.data + <intptr_t> column[2]
        t.valid = <const uint8_t*> <intptr_t> column[3]
        t.shift = column[4]
        return 0

    cdef int64_t most_bytes(self) noexcept:
        """More than all rows take, were nothing compressed."""
        cdef Rows* r = &self.r
        cdef int64_t first = 0, last = 0
        if r.headers != NULL:
            first = r.headers[r.header_shift]
            last = r.headers[r.header_shift + r.count]
        return (80 * r.count + 20 * (last - first) + data_bytes(&r.key, 0, r.count) + data_bytes(&r.value, 0, r.count)
                + data_bytes(&r.header_key, first, last) + data_bytes(&r.header_value, first, last))

    cdef int more(self, Sink* sink, int64_t done) except -1:
        """Make a sink as large as it needs to be, or more; ``done`` rows lie in the result by now."""
        cdef Buf buf
        cdef int64_t cap = sink.cap + (sink.cap >> 3)
        cdef double guess
        if cap < sink.end + sink.need + 65536:
            cap = sink.end + sink.need + 65536
        if sink == &self.body:
            buf.p = sink.p
            buf.cap = sink.cap
            if grow(&buf, cap):
                raise MemoryError()
            sink.p = buf.p
            sink.cap = buf.cap
            return 0
        if done:                               # the others will take about as much as they
            guess = min(1.02 * sink.end / done * self.r.count, <double> (sink.end + self.most_bytes()))
            cap = max(cap, <int64_t> guess)
        sink.cap = 0
        if self.made == NULL:
            self.made = PyBytes_AllocateUninitialised(NULL, cap)
        else:
            _PyBytes_Resize(&self.made, cap)
        sink.p = <uint8_t*> PyBytes_AS_STRING(<object> self.made)
        sink.cap = cap
        return 0

    cdef int room_for(self, int64_t need, int64_t done) except -1:
        """Room in the result for so many bytes more."""
        if self.out.cap - self.out.end < need:
            self.out.need = need
            self.more(&self.out, done)
        return 0

    def batch(self, int64_t first, int64_t last, int64_t most_bytes, head, compress):
        """Append one record batch of rows from ``first`` on: up to ``last``, at least one, about ``most_bytes``.

        ``head`` is (attributes, base offset, last offset delta, base timestamp, max timestamp, leader epoch, producer id,
        producer epoch, base sequence); None for an item that follows from the rows. Returns the first row not written.
        """
        cdef Head h = head_of(head)
        return self.append(first, last, most_bytes, &h, compress)

    def batches(self, int64_t most_bytes, head, compress):
        """Append all rows as record batches of about ``most_bytes``; sequences go on from one to the next."""
        cdef Head h = head_of(head)
        cdef int64_t first = 0, last
        while first < self.r.count:
            last = self.append(first, self.r.count, most_bytes, &h, compress)
            if h.base_sequence >= 0:
                h.base_sequence = <int32_t> ((<uint64_t> h.base_sequence + <uint64_t> self.r.offsets[last - 1]
                                              - <uint64_t> self.r.offsets[first] + 1) & INT32_MAX)
            first = last

    cdef int64_t append(self, int64_t first, int64_t last, int64_t most_bytes, const Head* stated, compress) except -1:
        cdef Head h = stated[0]
        cdef int64_t row = first, begin = self.out.end, body = 0, size = 0, time_delta, offset_delta, time, top = -1, most
        cdef int prefix = 1
        cdef bytes packed
        cdef Sink* sink = &self.out if compress is None else &self.body
        if h.follows & FOLLOWS_OFFSET:
            h.offset = self.r.offsets[first]
        if h.follows & FOLLOWS_BASE:
            h.base_timestamp = self.r.times[first]
        self.room_for(BATCH_OVERHEAD, first)
        if compress is None:
            self.out.end = body = begin + BATCH_OVERHEAD
        self.body.end = 0
        while True:
            with nogil:
                while row < last:
                    time = self.r.times[row]
                    time_delta = <int64_t> (<uint64_t> time - <uint64_t> h.base_timestamp)
                    offset_delta = <int64_t> (<uint64_t> self.r.offsets[row] - <uint64_t> h.offset)
                    if offset_delta > INT32_MAX or offset_delta < -<int64_t> INT32_MAX - 1:
                        break
                    most = LARGEST_ENTRY if row == first or most_bytes > LARGEST_ENTRY else most_bytes
                    size = put_record(sink, &self.r, row, time_delta, offset_delta,
                                      most - BATCH_OVERHEAD - (sink.end - body), &prefix)
                    if size < 0:
                        break
                    sink.end += size
                    if time > top:
                        top = time
                    row += 1
            if row == last or size != CRAMPED:
                break
            self.more(sink, row)
            size = 0
        if row == first:
            self.out.end = begin
            raise ValueError(f"batch: the record at row {first} does not fit a batch")
        if h.follows & FOLLOWS_DELTA:
            h.last_offset_delta = <int32_t> (<uint64_t> self.r.offsets[row - 1] - <uint64_t> h.offset)
        if h.follows & FOLLOWS_MAX:
            h.max_timestamp = top
        if compress is not None:
            packed = compress(PyMemoryView_FromMemory(<char*> self.body.p, self.body.end, PyBUF_READ))
            size = PyBytes_GET_SIZE(packed)
            if size + BATCH_OVERHEAD > LARGEST_ENTRY:
                raise ValueError(f"batch: the compressed records of row {first} do not fit a batch")
            self.room_for(BATCH_OVERHEAD + size, row)
            memcpy(self.out.p + begin + BATCH_OVERHEAD, PyBytes_AS_STRING(packed), <size_t> size)
            self.out.end = begin + BATCH_OVERHEAD + size
        with nogil:
            put_head(&self.out, begin, &h, <int32_t> (row - first))
        return row

    def messages(self, int64_t first, int64_t last, int magic, int attributes, append_time):
        """Append uncompressed messages of rows first to last; ``append_time`` is the time of all, None: their own."""
        cdef int64_t time = 0 if append_time is None else append_time, row = first, top = -1
        cdef bint own = append_time is None
        cdef int status = 0
        while row < last:
            with nogil:
                row = put_rows(&self.out, &self.r, row, last, magic, attributes, own, time, 0, INT64_MAX, &top, &status)
            if status == HUGE:
                raise ValueError(f"batch: the record at row {row} does not fit a message")
            if status == CRAMPED:
                self.more(&self.out, row)

    def wrapper(self, int64_t first, int64_t last, int64_t most_bytes, int magic, int attributes, append_time, compress):
        """Append one compressed message around rows from ``first`` on, as ``batch``; inner offsets are absolute in
        magic 0 and relative to the first in magic 1. Returns the first row not written."""
        cdef int64_t row = first, top = -1, time, most = most_bytes - LOG_OVERHEAD - (V1_OVERHEAD if magic else V0_OVERHEAD)
        cdef int64_t base = self.r.offsets[first] if magic else 0
        cdef const uint8_t* p
        cdef int status = CRAMPED
        cdef bytes packed
        self.body.end = 0
        while status == CRAMPED:
            with nogil:
                row = put_rows(&self.body, &self.r, row, last, magic, 0, True, 0, base,
                               most if most < LARGEST_ENTRY else LARGEST_ENTRY, &top, &status)
            if status == CRAMPED:
                self.more(&self.body, 0)
        if row == first:
            raise ValueError(f"batch: the record at row {first} does not fit a message")
        packed = compress(PyMemoryView_FromMemory(<char*> self.body.p, self.body.end, PyBUF_READ))
        time = top if append_time is None else append_time
        p = <const uint8_t*> PyBytes_AS_STRING(packed)
        self.room_for(LOG_OVERHEAD + V1_OVERHEAD + KTS_SLACK + PyBytes_GET_SIZE(packed), row)
        if put_entry(&self.out, magic, attributes, self.r.offsets[row - 1], time, NULL, -1, NULL,
                     p, PyBytes_GET_SIZE(packed), p + PyBytes_GET_SIZE(packed)):
            raise ValueError(f"batch: the compressed messages of row {first} do not fit a message")
        return row

    def result(self):
        """All that was appended; the encoder is empty then."""
        cdef object data
        if self.made == NULL:
            return b""
        if self.out.cap - self.out.end > self.out.end >> 5:
            _PyBytes_Resize(&self.made, self.out.end)
        else:
            # The few bytes too many stay: glibc hands out fresh pages, which cost more than encoding into them, for
            # whatever is larger than the largest block it got back.
            Py_SET_SIZE(self.made, self.out.end)
            self.out.p[self.out.end] = 0
        self.out.cap = self.out.end = 0
        data = <object> self.made
        Py_DECREF(data)
        self.made = NULL
        return data


def crc32c(buf):
    """CRC-32C of a buffer, as the codec computes it."""
    cdef Source source = Source(buf)
    return kts_crc32c(<const uint8_t*> source.view.buf, source.view.len)


def crc32(buf):
    """CRC-32 of a buffer, as the codec computes it."""
    cdef Source source = Source(buf)
    return kts_crc32(<const uint8_t*> source.view.buf, source.view.len)


# --- appending -----------------------------------------------------------------------------------------

cdef class Appender:
    """The rules that a topic appends by.

    Parameters
    ----------
    old : bool
        As 0.10.2.2 does, else as 3.9.2.
    shipped, append_time, compacted, client, replica, exempt, negative : bool
        See ``kts_rules`` in ``_append.h``.
    magic : int
        Of the topic.
    target : int
        Codec of the topic; -1 is the producer's.
    before, after : int
        Limits of a record's time, in ms.
    largest : int
        Most bytes of an entry.
    max_decompressed_bytes : int
    """

    cdef Rules rules
    cdef int target
    cdef int64_t limit
    cdef void* spare          # an inflater that no set uses now

    def __dealloc__(self):
        Py_XDECREF(<PyObject*> self.spare)

    cdef Inflater inflater(self):
        cdef PyObject* kept = <PyObject*> kts_swap(&self.spare, NULL)
        cdef Inflater inflater
        if kept == NULL:
            return Inflater()
        inflater = <Inflater> <object> kept
        Py_DECREF(inflater)
        return inflater

    cdef int give_back(self, Inflater inflater) except -1:
        if inflater is not None:
            inflater.owner = None
            Py_INCREF(inflater)
            if not kts_offer(&self.spare, <void*> inflater):
                Py_DECREF(inflater)
        return 0

    def __cinit__(self, *, bint old, bint shipped, int magic, bint append_time, bint compacted, bint client,
                  bint replica, bint exempt, bint negative, int target, int64_t before, int64_t after, int64_t largest,
                  int64_t max_decompressed_bytes):
        self.rules.old = old
        self.rules.shipped = shipped
        self.rules.magic = magic
        self.rules.append_time = append_time
        self.rules.compacted = compacted
        self.rules.client = client
        self.rules.replica = replica
        self.rules.exempt = exempt
        self.rules.negative = negative
        self.rules.before = before
        self.rules.after = after
        self.rules.largest = largest
        self.target = target
        self.limit = max_decompressed_bytes

    def set(self, buf, int64_t offset, int64_t now, int32_t epoch):
        """A set of records to be appended by these rules; nothing is done with it yet."""
        cdef AppendSet made = AppendSet.__new__(AppendSet)
        cdef Source source = made.take(self, buf, offset, now, epoch)
        with nogil:
            memcpy(made.p, source.view.buf, <size_t> made.n)
        return made

    def append(self, buf, int64_t offset, int64_t now, int32_t epoch):
        """Analyse a set, look at its records, and keep it in place if that can be.

        Returns the fields of ``kts.codec.validate.Validated``; or the set where it was refused, is empty or is to be written
        anew.
        """
        cdef AppendSet made = AppendSet.__new__(AppendSet)
        cdef Append* s = &made.s
        cdef Source source = made.take(self, buf, offset, now, epoch)
        cdef bint done
        with nogil:
            done = append_plain(s, made.p, <const uint8_t*> source.view.buf, made.n, self.target)
        if s.fault or s.entries == 0:
            return made
        made.n = s.valid
        if not done:
            if made.deep() is not True:
                return made
            self.give_back(made.inflater)
            made.inflater = None
        return (made.records(), s.start, s.next - 1, s.max, s.max_offset, s.now if s.r.append_time else -1, s.entries,
                s.valid, False, s.source, s.target, s.next)


cdef class AppendSet:
    """A private copy of one set of records, and what is known of it."""

    cdef Append s
    cdef Appender rules
    cdef Inflater inflater
    cdef PyObject* made
    cdef uint8_t* p
    cdef int64_t n
    cdef list payloads        # decompressed, in the order of the compressed entries; None: still in the inflater
    cdef int64_t inflated     # bytes of them in all
    cdef bint looked          # at every record
    cdef object verdict       # what ``deep`` found then
    cdef object failure       # what decompression said

    def __dealloc__(self):
        Py_XDECREF(self.made)
        free(self.s.bad)

    cdef Source take(self, Appender rules, buf, int64_t offset, int64_t now, int32_t epoch):
        """Room for a copy of the buffer; the buffer itself is given back."""
        cdef Source source = Source(buf)
        self.rules = rules
        self.n = source.view.len
        self.s.r = rules.rules
        self.s.start = self.s.next = offset
        self.s.now = now
        self.s.epoch = epoch
        self.s.record = -1
        self.made = PyBytes_AllocateUninitialised(NULL, self.n + KTS_SLACK)
        self.p = <uint8_t*> PyBytes_AS_STRING(<object> self.made)
        return source

    cdef object records(self):
        """The copy, given away."""
        cdef object data
        if self.made == NULL:
            raise ValueError("the bytes were given away before")
        if self.n > 4096:
            Py_SET_SIZE(self.made, self.n)     # a few bytes more than are used: cheaper than another allocation
            self.p[self.n] = 0
        else:
            _PyBytes_Resize(&self.made, self.n)
        data = <object> self.made
        Py_DECREF(data)
        self.made = NULL
        return data

    def analyse(self, bint leader):
        """The shallow walk: whether it went through. The set ends behind its last whole entry then."""
        cdef int status
        with nogil:
            status = analyse(&self.s, self.p, self.n, leader)
        if status == 0:
            self.n = self.s.valid
        return status == 0

    def choose(self, int source, int target):
        """Take these codecs instead of those that the analysis would find, and append uncompressed sets in place.

        Returns whether the set is done with, or refused.
        """
        cdef int status
        self.s.source = source
        self.s.target = target
        if source or target:
            return False
        status = same_magic(&self.s, self.p, self.n)
        if status < 0:
            return True
        self.s.same = status
        if status:
            self.in_place()
        return status != 0

    cdef int in_place(self) except -1:
        if begin_in_place(&self.s, self.p, self.n) == 0 and self.walk():
            end_in_place(&self.s)
        return 0

    cdef bint walk(self) except -1:
        """All entries on the path that was begun; whether none was refused."""
        cdef Append* s = &self.s
        cdef int status
        self.payloads = []
        self.inflated = 0
        while True:
            with nogil:
                status = append_entries(s, self.p, self.n, self.p + self.n + KTS_SLACK)
            if status != KTS_INFLATE:
                return status == 0
            if not self.inflate():
                return False
            with nogil:
                status = append_inflated(s, self.p, self.inflater.out, self.inflater.out_size)
            if status:
                return False

    cdef bint inflate(self) except -1:
        cdef CEntry e
        cdef Err err
        memset(&e, 0, sizeof(CEntry))
        if self.inflater is None:
            self.inflater = self.rules.inflater()
        elif self.payloads and self.payloads[len(self.payloads) - 1] is None:
            self.payloads[len(self.payloads) - 1] = self.payload()
        e.p = self.p + self.s.at
        e.size = self.s.size
        e.magic = e.p[MAGIC_POSITION]
        if e.magic == 2 and not self.s.r.old:
            batch_header(&e)
        else:
            message_header(&e)
            e.magic = 0 if e.magic == 0 else 1
            self.value_of(&e)
        try:
            self.inflater.run(&e, self.rules.limit - self.inflated)
            self.inflated += self.inflater.out_size
        except DecompressionLimitError:
            raise
        except CorruptRecordError as error:
            self.failure = error
            refuse(&self.s, KTS_PAYLOAD, e.codec, 0)
            return False
        self.payloads.append(None)
        return True

    cdef int value_of(self, CEntry* e) noexcept:
        """The value of a wrapper whose lengths were found to fit; bytes behind it do not matter here."""
        cdef const uint8_t* p = e.p + (18 if e.p[MAGIC_POSITION] == 0 else 26)
        cdef int32_t n = <int32_t> kts_be32(p)
        p += 4 + (n if n > 0 else 0)
        e.payload_size = <int32_t> kts_be32(p)
        e.payload = p + 4
        return 0

    cdef bytes payload(self):
        """What was decompressed last."""
        if self.inflater.owner is not None:
            return self.inflater.owner
        return PyBytes_FromStringAndSize(<char*> self.inflater.out, self.inflater.out_size)

    def deep(self):
        """Look at every record of a set that is compressed, will be or is to be converted.

        Returns True where the set was kept in place, False where it is to be rebuilt; None is a refusal.
        """
        if not self.looked:
            self.looked = True
            self.verdict = self.look()
        return self.verdict

    cdef object look(self):
        cdef Append* s = &self.s
        if s.source == 0 and s.target == 0:
            return False if self.convertible() else None
        if begin_deep(s, self.p, self.n) or not self.walk():
            return None
        if s.r.old and not s.r.shipped and s.batches > 1:
            s.in_place = 0                     # 0.10.2 would give offsets to the first wrapper only
        if s.in_place:
            return True if end_deep_in_place(s, self.p, self.n) == 0 else None
        s.at = 0
        s.record = -1
        if s.number == 0 and (s.r.old or (s.r.append_time and (s.target or s.r.magic == 2))):
            refuse(s, KTS_NOTHING, 0, 0)
            return None
        if s.skipped:
            refuse(s, KTS_SKIPPED, 0, 0)
            return None
        return False

    cdef bint convertible(self) except -1:
        cdef Append* s = &self.s
        begin(s, KTS_READ)
        if not self.walk():
            return False
        if s.r.old:
            if s.number < 0:
                s.at = 0
                refuse(s, KTS_NOTHING, s.number, 0)
                return False
        elif first_batch(s, self.p, self.n, 0):
            return False
        elif self.p[MAGIC_POSITION] == 2 and self.p[22] & TRANSACTIONAL and s.r.magic < 2:
            refuse(s, KTS_WRITER_TRANSACTION, s.r.magic, 0)
            return False
        begin(s, KTS_CONVERT)
        return self.walk()

    def writable(self):
        """Whether what was looked at can be written anew; the offset counter moves as Kafka's does."""
        cdef Append* s = &self.s
        cdef int64_t producer
        s.at = 0
        s.record = -1
        if s.target == 4 and s.r.magic < 2 and s.unwritable_why != KTS_BAD_FIELDS:
            return refuse(s, KTS_ZSTD_FORMAT, s.r.magic, 0) == 0
        if s.unwritable >= 0:
            s.record = s.unwritable
            if s.unwritable_why != KTS_BAD_FIELDS:
                s.next = s.start + s.unwritable + 1
            return refuse(s, s.unwritable_why, s.unwritable_time, s.r.magic) == 0
        s.next = s.start + s.number
        if s.r.old or self.p[MAGIC_POSITION] != 2:
            return True
        producer = <int64_t> kts_be64(self.p + 43)
        if producer == -1 and self.p[22] & TRANSACTIONAL:
            return refuse(s, KTS_PRODUCER_STATE, producer, 0) == 0
        if producer != -1 and (s.r.magic < 2 or <int16_t> kts_be16(self.p + 51) == -1 or
                               <int32_t> kts_be32(self.p + 53) < 0):
            return refuse(s, KTS_PRODUCER_STATE, producer, <int32_t> kts_be32(self.p + 53)) == 0
        return True

    def messages(self, int magic, int64_t base, bint keep, bint stamp, bint append_time, bint own_type):
        """All records as uncompressed messages of one magic: (bytes, greatest time, offset of it).

        Offsets are written relative to ``base``; the others are fields of ``kts_writer`` in ``_append_writer.h``.
        """
        cdef Writer w
        cdef bytes made = self.write(magic, base, keep, stamp, append_time, own_type, &w)
        self.release()
        return made[:w.size], w.top, w.top_offset

    cdef bytes write(self, int magic, int64_t base, bint keep, bint stamp, bint append_time, bint own_type, Writer* w):
        """Memory with ``w.size`` bytes of messages, or of the records of a batch."""
        cdef Append* s = &self.s
        cdef int64_t room = self.n, at = 0, size = 0, n
        cdef Py_ssize_t i
        cdef const uint8_t* e
        cdef const uint8_t* p
        cdef bytes made, payload
        for i in range(len(self.payloads)):
            room += self.inflater.out_size if self.payloads[i] is None else PyBytes_GET_SIZE(<bytes> self.payloads[i])
        # a message has 8 bytes more at most than one of another magic, and 27 more than a record of 7 bytes
        room += 4 * room if self.p[MAGIC_POSITION] == 2 and not s.r.old else 8 * (room // 26 + 1)
        made = PyBytes_FromStringAndSize(NULL, room)
        memset(w, 0, sizeof(Writer))
        w.out = <uint8_t*> PyBytes_AS_STRING(made)
        w.offset = s.start
        w.base = base
        w.magic = magic
        w.keep = keep
        w.stamp = stamp
        w.append_time = append_time
        w.own_type = own_type
        w.now = s.now
        w.top = w.top_offset = -1
        i = 0
        while True:
            with nogil:
                while entry_size(s, self.p + at, self.n - at, &size) > 0:
                    e = self.p + at
                    if codec_of(s, e) and not (s.r.old and s.path == KTS_CONVERT):
                        break
                    write_entry(s, w, e, size)
                    at += size
                else:
                    e = NULL
            if e == NULL:
                return made
            payload = self.payloads[i]
            i += 1
            if payload is None:
                p = self.inflater.out
                n = self.inflater.out_size
            else:
                p = <const uint8_t*> PyBytes_AS_STRING(payload)
                n = PyBytes_GET_SIZE(payload)
            with nogil:
                write_inflated(s, w, e, p, n)
            at += size

    def recompressed(self, int attributes, int64_t max_timestamp, compress):
        """The one record batch of the set with the same records, compressed by ``compress`` or, with None, not at all;
        None where they are not what a writer would make of them."""
        cdef const uint8_t* p = self.p + BATCH_OVERHEAD
        cdef int64_t n = self.n - BATCH_OVERHEAD
        if self.payloads:
            p = self.inflater.out
            n = self.inflater.out_size
        if not as_written(p, n, self.s.number):
            return None
        return self.batched(p, n, <int64_t> kts_be64(self.p + 27), attributes, max_timestamp, compress)

    def converted(self, int attributes, append_time, compress):
        """All messages as one record batch: (bytes, its greatest time). ``append_time`` is that of the batch; None: its
        records'."""
        cdef Writer w
        cdef bytes made = self.write(2, 0, False, False, False, False, &w)
        cdef int64_t time = w.top if append_time is None else append_time
        data = self.batched(<const uint8_t*> PyBytes_AS_STRING(made), w.size, w.first_time, attributes, time, compress)
        return data, time

    cdef bytes batched(self, const uint8_t* p, int64_t n, int64_t base_timestamp, int attributes, int64_t max_timestamp,
                       compress):
        """One record batch around p[0:n], with the first entry's producer where that is a batch."""
        cdef bytes packed, made
        cdef Head h
        cdef Sink sink
        if compress is not None:
            packed = compress(PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ))
            p = <const uint8_t*> PyBytes_AS_STRING(packed)
            n = PyBytes_GET_SIZE(packed)
        sink.cap = sink.end = BATCH_OVERHEAD + n
        if sink.end > LARGEST_ENTRY:
            raise ValueError(f"the {n} bytes of the records do not fit a batch")
        made = PyBytes_FromStringAndSize(NULL, sink.end)
        sink.p = <uint8_t*> PyBytes_AS_STRING(made)
        memcpy(sink.p + BATCH_OVERHEAD, p, <size_t> n)
        h.attributes = <int16_t> attributes
        h.offset = self.s.start
        h.last_offset_delta = <int32_t> (self.s.number - 1)
        h.base_timestamp = base_timestamp
        h.max_timestamp = max_timestamp
        h.leader_epoch = self.s.epoch
        _, _, h.producer_id, h.producer_epoch, h.base_sequence = self.producer()
        put_head(&sink, 0, &h, <int32_t> self.s.number)
        self.release()
        return made

    cdef int release(self) except -1:
        """What was decompressed is not needed any more."""
        self.rules.give_back(self.inflater)
        self.inflater = None
        self.payloads = []
        return 0

    def batch(self):
        """The one record batch of the set, uncompressed; its CRC is not renewed."""
        cdef bytes made
        cdef uint8_t* p
        if not self.payloads:
            return PyBytes_FromStringAndSize(<char*> self.p, self.n)
        made = PyBytes_FromStringAndSize(<char*> self.p, BATCH_OVERHEAD) + (self.payloads[0] or self.payload())
        p = <uint8_t*> PyBytes_AS_STRING(made)
        kts_put32(p + 8, <uint32_t> (PyBytes_GET_SIZE(made) - LOG_OVERHEAD))
        p[22] &= 0xF8
        self.release()
        return made

    def kept(self):
        """The bytes where they were kept in place; the set is empty afterwards."""
        return self.records()

    def facts(self):
        """(entries, source codec, target codec, first offset, first or last offset of the first entry, last offset,
        max timestamp, offset of it, valid bytes, offsets rise), as the shallow walk found them."""
        cdef Append* s = &self.s
        cdef int target = s.source if self.rules.target < 0 else self.rules.target
        return (s.entries, s.source, target, s.first, s.first_or_last, s.last, s.top, s.top_offset, s.valid,
                s.monotonic != 0)

    def result(self):
        """(start, next offset, max timestamp, offset of it, log append time or -1), as the deep walk found them."""
        cdef Append* s = &self.s
        return s.start, s.next, s.max, s.max_offset, s.now if s.r.append_time else -1

    def producer(self):
        """(magic, attributes, producer id, producer epoch, base sequence) of the first entry; -1 below magic 2."""
        cdef const uint8_t* p = self.p
        if p[MAGIC_POSITION] != 2 or self.s.r.old:
            return p[MAGIC_POSITION], p[17], -1, -1, -1
        return 2, p[22], <int64_t> kts_be64(p + 43), <int16_t> kts_be16(p + 51), <int32_t> kts_be32(p + 53)

    def refusal(self):
        """None, or (reason, position, offset, record, two numbers, records refused by policy, what decompression said)."""
        cdef Append* s = &self.s
        cdef int64_t i
        if s.fault == 0:
            return None
        if s.fault == KTS_NO_MEMORY:
            raise MemoryError()
        self.release()
        bad = [(s.bad[i].record, s.bad[i].time, REASON_NAMES[s.bad[i].wrong].decode()) for i in range(s.bads)]
        return REASON_NAMES[s.fault].decode(), s.at, s.offset, s.record, s.a, s.b, bad, self.failure


def message(int magic, int attributes, int64_t offset, int64_t timestamp, bytes value not None):
    """One message of magic 0 or 1 without a key."""
    cdef Sink sink
    cdef const uint8_t* p = <const uint8_t*> PyBytes_AS_STRING(value)
    cdef int64_t n = PyBytes_GET_SIZE(value)
    cdef bytes made
    if n + V1_OVERHEAD > LARGEST_ENTRY:
        raise ValueError(f"value: {n} bytes do not fit a message")
    sink.cap = LOG_OVERHEAD + V1_OVERHEAD + n + KTS_SLACK
    made = PyBytes_FromStringAndSize(NULL, sink.cap)
    sink.p = <uint8_t*> PyBytes_AS_STRING(made)
    sink.end = 0
    put_entry(&sink, magic, attributes, offset, timestamp, NULL, -1, NULL, p, n, p + n)
    return made[:sink.end]


cdef int64_t walk_sizes(buf, int64_t* entries, int64_t* largest, int64_t* where) except -1:
    cdef Source source = Source(buf)
    cdef const uint8_t* p = <const uint8_t*> source.view.buf
    cdef int64_t n = source.view.len, at = 0, size
    while n - at >= LOG_OVERHEAD:
        size = <int64_t> kts_be32(p + at + 8) + LOG_OVERHEAD
        if size > largest[0]:
            largest[0] = size
            where[0] = at
        entries[0] += 1
        at += size
    return at


def count_entries(buf):
    """How many entries a set of whole ones has."""
    cdef int64_t entries = 0, largest = 0, where = 0
    walk_sizes(buf, &entries, &largest, &where)
    return entries


def largest_entry(buf):
    """(size, position) of the largest entry in a set of whole ones."""
    cdef int64_t entries = 0, largest = 0, where = 0
    walk_sizes(buf, &entries, &largest, &where)
    return largest, where
