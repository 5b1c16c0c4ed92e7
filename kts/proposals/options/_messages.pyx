"""Messages of KIP-32's options 1, 2 and 3: bytes to columns and back, without the interpreter's lock.

Layouts (all integers big-endian), by the magic byte at position 16::

    every message   offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | times | key i32+bytes | value i32+bytes
    magic 33        times: CreateTime i64 | LogAppendTime i64     (option 1)
    magic 34        times: LogAppendTime i64                      (option 2)
    magic 35        times: CreateTime i64                         (option 3)

As in magic 1, the CRC covers the bytes from the magic on, the low three bits of the attributes are the codec, a
compressed message (wrapper) holds messages in its value, with relative offsets, and its own offset is that of the last.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

from kts import _codec, errors
from kts.errors import CorruptRecordError

cdef extern from "status.h" nogil:
    int KTS_FAILED, KTS_OK, KTS_END, KTS_INFLATE

cdef extern from "refusals.h" nogil:
    int KTS_BAD_SIZE, KTS_SIZE_OVERFLOW, KTS_SHORT_MESSAGE, KTS_BAD_CRC, KTS_BAD_CODEC, KTS_MESSAGE_KEY
    int KTS_MESSAGE_VALUE, KTS_MESSAGE_REST, KTS_WRAPPER_NULL, KTS_WRAPPER_EMPTY, KTS_WRAPPER_OFFSET, KTS_SHORT_INNER
    int KTS_INNER_MAGIC, KTS_NESTED, KTS_INNER_CRC, KTS_RECORD_LENGTH
    int KTS_NO_MEMORY, KTS_COLUMN_FULL

cdef extern from "codecs.h" nogil:
    int KTS_LAST_OF_MESSAGES

cdef extern from "format.h" nogil:
    int KTS_SIZE_AT, KTS_OVERHEAD, KTS_MAGIC_AT, KTS_MESSAGE_CRC_AT, KTS_MESSAGE_CRC_FROM, KTS_MESSAGE_ATTRIBUTES_AT
    int KTS_MESSAGE_TIME_AT, KTS_CODEC_MASK, KTS_V0_LEAST, KTS_OPTION_1
    int64_t KTS_LARGEST_ENTRY
    uint32_t kts_be32(const uint8_t* p)
    int32_t kts_i32(const uint8_t* p)
    int64_t kts_i64(const uint8_t* p)
    void kts_put32(uint8_t* p, uint32_t v)
    void kts_put64(uint8_t* p, uint64_t v)

cdef extern from "crc.h" nogil:
    void kts_crc_init()
    uint32_t kts_crc32(const uint8_t* p, size_t n)

cdef enum:                    # reasons that only these messages have, above those of the core
    OPTION_MAGIC = 1000
    INNER_OFFSET

WORDS = {
    "OPTION_MAGIC": "magic is {a}, expected {b}",
    "INNER_OFFSET": "relative offset of the inner message is {a}, expected {b} or more",
}

kts_crc_init()


cdef struct Layout:
    int magic
    int create_at             # -1: the option has no such time
    int append_at
    int key_at
    int64_t least             # the smallest valid size field


cdef struct Fault:
    int reason
    int64_t position, offset, record, a, b


cdef struct Message:
    const uint8_t* p
    int64_t size, offset, create, append, key_size, value_size     # -1: null
    const uint8_t* key
    const uint8_t* value
    int codec


cdef struct Column:
    uint8_t* p
    int64_t n, room


cdef Layout layout_of(int option) noexcept nogil:
    cdef Layout layout
    layout.magic = KTS_OPTION_1 + option - 1
    layout.create_at = -1 if option == 2 else KTS_MESSAGE_TIME_AT
    layout.append_at = -1 if option == 3 else KTS_MESSAGE_TIME_AT + (8 if option == 1 else 0)
    layout.key_at = KTS_MESSAGE_TIME_AT + (16 if option == 1 else 8)
    layout.least = layout.key_at + 8 - KTS_OVERHEAD
    return layout


cdef int fail(Fault* f, int reason, int64_t a, int64_t b) noexcept nogil:
    f.reason = reason
    f.a = a
    f.b = b
    return KTS_FAILED


# --- one message --------------------------------------------------------------------------------------------------

cdef int header(const uint8_t* p, int64_t left, const Layout* layout, Message* m, Fault* f) noexcept nogil:
    """The times, codec and size of the message at p: KTS_OK, KTS_FAILED, or KTS_END if it is not whole."""
    cdef int64_t stated
    if left < KTS_OVERHEAD:
        return KTS_END
    stated = kts_i32(p + KTS_SIZE_AT)
    f.offset = kts_i64(p)
    if stated < KTS_V0_LEAST:
        return fail(f, KTS_BAD_SIZE, stated, 0)
    if left <= KTS_MAGIC_AT:
        return KTS_END
    if p[KTS_MAGIC_AT] != layout.magic:
        return fail(f, OPTION_MAGIC, <signed char> p[KTS_MAGIC_AT], layout.magic)
    if stated > KTS_LARGEST_ENTRY:
        return fail(f, KTS_SIZE_OVERFLOW, stated, 0)
    if stated < layout.least:
        return fail(f, KTS_SHORT_MESSAGE, stated, layout.least)
    if left < stated + KTS_OVERHEAD:
        return KTS_END
    m.p = p
    m.size = stated + KTS_OVERHEAD
    m.offset = f.offset
    m.codec = p[KTS_MESSAGE_ATTRIBUTES_AT] & KTS_CODEC_MASK
    m.create = kts_i64(p + layout.create_at) if layout.create_at >= 0 else -1
    m.append = kts_i64(p + layout.append_at) if layout.append_at >= 0 else -1
    if m.codec > KTS_LAST_OF_MESSAGES:
        return fail(f, KTS_BAD_CODEC, m.codec, KTS_LAST_OF_MESSAGES)
    return KTS_OK


cdef int right_crc(const Message* m, int reason, Fault* f) noexcept nogil:
    cdef uint32_t stored = kts_be32(m.p + KTS_MESSAGE_CRC_AT)
    cdef uint32_t found = kts_crc32(m.p + KTS_MESSAGE_CRC_FROM, <size_t> (m.size - KTS_MESSAGE_CRC_FROM))
    return KTS_OK if found == stored else fail(f, reason, stored, found)


cdef int body(const Layout* layout, Message* m, Fault* f) noexcept nogil:
    """Key and value, which must fill the message exactly."""
    cdef const uint8_t* p = m.p + layout.key_at
    cdef int64_t left = m.size - layout.key_at - 8, n = kts_i32(p)
    if n > left:
        return fail(f, KTS_MESSAGE_KEY, n, left)
    p += 4
    m.key = p
    m.key_size = n if n >= 0 else -1
    if n > 0:
        p += n
        left -= n
    n = kts_i32(p)
    if n > left:
        return fail(f, KTS_MESSAGE_VALUE, n, left)
    m.value = p + 4
    m.value_size = n if n >= 0 else -1
    left -= n if n > 0 else 0
    return KTS_OK if left == 0 else fail(f, KTS_MESSAGE_REST, n, left)


cdef int inner(const uint8_t* p, int64_t left, const Layout* layout, int64_t before, int verify, Message* m,
               Fault* f) noexcept nogil:
    """The inner message at p, whose relative offset must be above the one before; KTS_END if no bytes are left."""
    cdef int64_t offset = f.offset         # of the wrapper, which the error names
    cdef int status
    if left == 0:
        return KTS_END
    if left < KTS_OVERHEAD:
        return fail(f, KTS_RECORD_LENGTH, KTS_OVERHEAD, left)
    if kts_i32(p + KTS_SIZE_AT) < layout.least:
        return fail(f, KTS_SHORT_INNER, kts_i32(p + KTS_SIZE_AT), layout.least)
    status = header(p, left, layout, m, f)
    f.offset = offset
    if status == KTS_FAILED and f.reason == OPTION_MAGIC:
        f.reason = KTS_INNER_MAGIC
    if status == KTS_END:
        return fail(f, KTS_RECORD_LENGTH, kts_i32(p + KTS_SIZE_AT), left - KTS_OVERHEAD)
    if status != KTS_OK:
        return status
    if m.codec:
        return fail(f, KTS_NESTED, m.codec, 0)
    if verify and right_crc(m, KTS_INNER_CRC, f) != KTS_OK:
        return KTS_FAILED
    if m.offset <= before:
        return fail(f, INNER_OFFSET, m.offset, before + 1)
    return body(layout, m, f)


# --- what was found wrong -----------------------------------------------------------------------------------------

cdef object error_of(const Fault* f):
    if f.reason == KTS_NO_MEMORY:
        return MemoryError()
    if f.reason == KTS_COLUMN_FULL:
        return ValueError("data: a column would pass Arrow's 2 GiB; decode fewer entries at a time")
    own = f.reason >= OPTION_MAGIC
    reason = list(WORDS)[f.reason - OPTION_MAGIC] if own else _codec.REASONS[f.reason - 1]
    text = (WORDS[reason] if own else errors.REASONS[reason].words).format(a=f.a, b=f.b)
    if f.record >= 0:
        text = f"inner message {f.record}: {text}"
    return CorruptRecordError(text, position=f.position, offset=f.offset,
                              record_index=f.record if f.record >= 0 else None, reason=reason)


cdef bytes inflated(const Message* m, Fault* f, int64_t limit):
    """The messages in a wrapper."""
    if m.value_size < 0:
        fail(f, KTS_WRAPPER_NULL, 0, 0)
        raise error_of(f)
    try:
        return _codec.inflate(PyMemoryView_FromMemory(<char*> m.value, m.value_size, PyBUF_READ), m.codec, limit)
    except CorruptRecordError as error:
        error.position = f.position
        error.offset = f.offset
        raise


# --- bytes to columns ---------------------------------------------------------------------------------------------

cdef int put(Column* c, const void* from_, int64_t n) noexcept nogil:
    cdef void* more
    cdef int64_t room
    if c.n + n > c.room:
        room = 2 * c.room if 2 * c.room > c.n + n else c.n + n + 1024
        more = realloc(c.p, <size_t> room)
        if more == NULL:
            return KTS_FAILED
        c.p = <uint8_t*> more
        c.room = room
    if n:
        memcpy(c.p + c.n, from_, <size_t> n)
    c.n += n
    return KTS_OK


cdef bytes taken(const Column* c):
    return PyBytes_FromStringAndSize(<char*> c.p, c.n)


cdef enum:
    OFFSETS, CREATES, APPENDS, KEY_ENDS, KEY_NULLS, KEYS, VALUE_ENDS, VALUE_NULLS, VALUES, COLUMNS


@cython.final
cdef class Columns:
    """The messages of a set, in columns that grow."""

    cdef Column[COLUMNS] columns
    cdef Layout layout
    cdef int verify
    cdef int64_t rows

    def __dealloc__(self):
        cdef int i
        for i in range(COLUMNS):
            free(self.columns[i].p)

    cdef int bytes_column(self, int ends, const uint8_t* p, int64_t size) noexcept nogil:
        cdef uint8_t there = size >= 0
        cdef int32_t end
        if size > 0 and put(&self.columns[ends + 2], p, size) != KTS_OK:
            return KTS_FAILED
        if self.columns[ends + 2].n > INT32_MAX:
            return KTS_END
        end = <int32_t> self.columns[ends + 2].n
        if put(&self.columns[ends], &end, 4) != KTS_OK:
            return KTS_FAILED
        return put(&self.columns[ends + 1], &there, 1)

    cdef int add(self, const Message* m, int64_t offset, Fault* f) noexcept nogil:
        cdef int status = put(&self.columns[OFFSETS], &offset, 8)
        if status == KTS_OK:
            status = put(&self.columns[CREATES], &m.create, 8)
        if status == KTS_OK:
            status = put(&self.columns[APPENDS], &m.append, 8)
        if status == KTS_OK:
            status = self.bytes_column(KEY_ENDS, m.key, m.key_size)
        if status == KTS_OK:
            status = self.bytes_column(VALUE_ENDS, m.value, m.value_size)
        if status != KTS_OK:
            return fail(f, KTS_NO_MEMORY if status == KTS_FAILED else KTS_COLUMN_FULL, 0, 0)
        self.rows += 1
        return KTS_OK

    cdef int plain(self, const uint8_t* data, int64_t size, Message* m, Fault* f) noexcept nogil:
        """Messages from f.position on: KTS_END after the last, KTS_INFLATE at a wrapper, KTS_FAILED."""
        cdef int status
        while True:
            status = header(data + f.position, size - f.position, &self.layout, m, f)
            if status != KTS_OK:
                return status
            if self.verify and right_crc(m, KTS_BAD_CRC, f) != KTS_OK:
                return KTS_FAILED
            if body(&self.layout, m, f) != KTS_OK:
                return KTS_FAILED
            if m.codec:
                return KTS_INFLATE
            if self.add(m, m.offset, f) != KTS_OK:
                return KTS_FAILED
            f.position += m.size

    cdef int inside(self, const Message* outer, const uint8_t* p, int64_t size, Fault* f) noexcept nogil:
        """The messages in a wrapper."""
        cdef Message m
        cdef int64_t at = 0, last = -1, first = self.rows, i
        cdef int64_t* offsets
        cdef int status
        f.record = 0
        while True:
            status = inner(p + at, size - at, &self.layout, last, self.verify, &m, f)
            if status == KTS_END:
                break
            if status != KTS_OK or self.add(&m, m.offset, f) != KTS_OK:
                return KTS_FAILED
            last = m.offset
            at += m.size
            f.record += 1
        f.record = -1
        if first == self.rows:
            return fail(f, KTS_WRAPPER_EMPTY, 0, 0)
        if outer.offset < last:
            return fail(f, KTS_WRAPPER_OFFSET, outer.offset, last)
        offsets = <int64_t*> self.columns[OFFSETS].p
        for i in range(first, self.rows):
            offsets[i] += outer.offset - last
        if last + 1 == self.rows - first:  # not compacted: they share the wrapper's LogAppendTime
            for i in range(first, self.rows):
                (<int64_t*> self.columns[APPENDS].p)[i] = outer.append
        return KTS_OK


def decode(const uint8_t[::1] data not None, int option, bint verify_crc, int64_t max_decompressed_bytes):
    """Columns of the messages of a set: (rows, offsets, creates, appends; ends, nulls, bytes of keys; of values)."""
    cdef Columns columns = Columns.__new__(Columns)
    cdef Message m
    cdef Fault f
    cdef int status
    cdef int64_t size = data.shape[0], made
    cdef int32_t zero = 0
    cdef const uint8_t* p = &data[0] if size else NULL
    cdef bytes content
    cdef const uint8_t* within
    columns.layout = layout_of(option)
    columns.verify = verify_crc
    f.position = 0
    f.record = f.offset = -1
    if put(&columns.columns[KEY_ENDS], &zero, 4) or put(&columns.columns[VALUE_ENDS], &zero, 4):
        raise MemoryError()
    while True:
        with nogil:
            status = columns.plain(p, size, &m, &f)
        if status != KTS_INFLATE:
            break
        content = inflated(&m, &f, max_decompressed_bytes)
        within = <const uint8_t*> PyBytes_AS_STRING(content)
        made = len(content)
        with nogil:
            status = columns.inside(&m, within, made, &f)
        if status != KTS_OK:
            break
        f.position += m.size
    if status == KTS_FAILED:
        raise error_of(&f)
    return (columns.rows, *[taken(&columns.columns[i]) for i in range(COLUMNS)])


# --- the walk over entries ----------------------------------------------------------------------------------------

def first_magic(const uint8_t[::1] data not None):
    """The magic of the first entry; None without one."""
    return <signed char> data[KTS_MAGIC_AT] if data.shape[0] > KTS_MAGIC_AT else None


def entries(const uint8_t[::1] data not None, int option, bint verify_crc):
    """The entries of a set from their headers: (rows of int64, bytes of whole entries, error or None).

    A row is position, size, base offset, last offset, CreateTime, LogAppendTime, codec. The walk stops before an entry that
    is damaged, and before an incomplete one.
    """
    cdef Column rows
    cdef Layout layout = layout_of(option)
    cdef Message m
    cdef Fault f
    cdef int64_t size = data.shape[0]
    cdef const uint8_t* p = &data[0] if size else NULL
    cdef int64_t[7] row
    cdef int status
    rows.p = NULL
    rows.n = rows.room = 0
    f.position = 0
    f.record = f.offset = -1
    try:
        with nogil:
            while True:
                status = header(p + f.position, size - f.position, &layout, &m, &f)
                if status == KTS_OK and verify_crc:
                    status = right_crc(&m, KTS_BAD_CRC, &f)
                if status != KTS_OK:
                    break
                row[0] = f.position
                row[1] = m.size
                row[2] = -1 if m.codec else m.offset
                row[3] = m.offset
                row[4] = m.create
                row[5] = m.append
                row[6] = m.codec
                if put(&rows, row, sizeof(row)) != KTS_OK:
                    status = fail(&f, KTS_NO_MEMORY, 0, 0)
                    break
                f.position += m.size
        found = np.frombuffer(taken(&rows), np.int64).reshape(-1, 7)
    finally:
        free(rows.p)
    if status == KTS_FAILED and f.reason == KTS_NO_MEMORY:
        raise MemoryError()
    return found, f.position, error_of(&f) if status == KTS_FAILED else None


# --- columns to bytes ---------------------------------------------------------------------------------------------

cdef void finish(uint8_t* p, int64_t size, const Layout* layout, int codec, int64_t offset, int64_t create,
                 int64_t append) noexcept nogil:
    """Header and CRC of a message whose key and value are in place."""
    kts_put64(p, <uint64_t> offset)
    kts_put32(p + KTS_SIZE_AT, <uint32_t> (size - KTS_OVERHEAD))
    p[KTS_MAGIC_AT] = <uint8_t> layout.magic
    p[KTS_MESSAGE_ATTRIBUTES_AT] = <uint8_t> codec
    if layout.create_at >= 0:
        kts_put64(p + layout.create_at, <uint64_t> create)
    if layout.append_at >= 0:
        kts_put64(p + layout.append_at, <uint64_t> append)
    kts_put32(p + KTS_MESSAGE_CRC_AT, kts_crc32(p + KTS_MESSAGE_CRC_FROM, <size_t> (size - KTS_MESSAGE_CRC_FROM)))


cdef uint8_t* put_field(uint8_t* p, const uint8_t* from_, int64_t size) noexcept nogil:
    kts_put32(p, <uint32_t> (-1 if size < 0 else <int32_t> size))
    if size > 0:
        memcpy(p + 4, from_, <size_t> size)
    return p + 4 + (size if size > 0 else 0)


def messages(int option, const int64_t[::1] offsets not None, const int64_t[::1] creates not None,
             const int64_t[::1] appends not None, tuple key not None, tuple value not None, int64_t first, int64_t last,
             int64_t base, int64_t most_bytes):
    """Rows from ``first`` on as messages of up to ``most_bytes``, one at least: (bytes, the row after the last).

    ``key`` and ``value`` are (ends as int32, nulls as uint8: 0 is null, bytes); offsets are relative to ``base``.
    """
    cdef const int32_t[::1] key_ends = key[0], value_ends = value[0]
    cdef const uint8_t[::1] key_there = key[1], keys = key[2], value_there = value[1], values = value[2]
    cdef const uint8_t* key_p = &keys[0] if keys.shape[0] else NULL
    cdef const uint8_t* value_p = &values[0] if values.shape[0] else NULL
    cdef Layout layout = layout_of(option)
    cdef int64_t total = 0, size, row = first
    cdef uint8_t* p
    cdef uint8_t* q
    cdef bytes made
    with nogil:
        while row < last:
            size = layout.key_at + 8
            size += key_ends[row + 1] - key_ends[row] if key_there[row] else 0
            size += value_ends[row + 1] - value_ends[row] if value_there[row] else 0
            if total and total + size > most_bytes or size - KTS_OVERHEAD > KTS_LARGEST_ENTRY:
                break
            total += size
            row += 1
    if row == first:
        raise ValueError(f"row {first}: key and value do not fit into a message")
    made = PyBytes_FromStringAndSize(NULL, total)
    p = <uint8_t*> PyBytes_AS_STRING(made)
    last = row
    with nogil:
        for row in range(first, last):
            q = put_field(p + layout.key_at, key_p + key_ends[row],
                          key_ends[row + 1] - key_ends[row] if key_there[row] else -1)
            q = put_field(q, value_p + value_ends[row],
                          value_ends[row + 1] - value_ends[row] if value_there[row] else -1)
            finish(p, q - p, &layout, 0, offsets[row] - base, creates[row], appends[row])
            p = q
    return made, last


def wrapper(int option, int codec, int64_t offset, int64_t create, int64_t append, const uint8_t[::1] payload not None):
    """A compressed message without a key."""
    cdef Layout layout = layout_of(option)
    cdef int64_t n = payload.shape[0], size = layout.key_at + 8 + n
    cdef bytes made
    cdef uint8_t* p
    if size - KTS_OVERHEAD > KTS_LARGEST_ENTRY:
        raise ValueError(f"payload: {n} bytes do not fit into a message")
    made = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*> PyBytes_AS_STRING(made)
    put_field(put_field(p + layout.key_at, NULL, -1), &payload[0] if n else NULL, n)
    finish(p, size, &layout, codec, offset, create, append)
    return made


# --- what a leader does with a set --------------------------------------------------------------------------------

cdef int seen(const uint8_t* p, int64_t size, const Layout* layout, int64_t* count, int64_t* create,
              Fault* f) noexcept nogil:
    """Check the messages that a producer put into a wrapper; find their number, and the CreateTime that it gets."""
    cdef Message m
    cdef int64_t at = 0
    cdef int status
    f.record = 0
    while True:
        status = inner(p + at, size - at, layout, f.record - 1, 1, &m, f)
        if status == KTS_END:
            break
        if status == KTS_OK and m.offset != f.record:
            status = fail(f, INNER_OFFSET, m.offset, f.record)
        if status != KTS_OK:
            return status
        if f.record == 0 or layout.append_at < 0:  # option 1: of the first, option 3: of the last inner message
            create[0] = m.create
        at += m.size
        f.record += 1
    count[0] = f.record
    f.record = -1
    return KTS_OK if count[0] else fail(f, KTS_WRAPPER_EMPTY, 0, 0)


def assign(const uint8_t[::1] data not None, int option, int64_t offset, int64_t append,
           int64_t max_decompressed_bytes):
    """A producer's set as a leader stores it: (bytes with offsets from ``offset`` on and LogAppendTime, next offset).

    Wrappers are changed in place, without recompression. An incomplete message at the end is left out.
    """
    cdef bytes made = PyBytes_FromStringAndSize(<char*> &data[0] if data.shape[0] else NULL, data.shape[0])
    cdef uint8_t* p = <uint8_t*> PyBytes_AS_STRING(made)
    cdef int64_t size = data.shape[0], count = 0, create = -1, n
    cdef Layout layout = layout_of(option)
    cdef Message m
    cdef Fault f
    cdef bytes content
    cdef const uint8_t* within
    cdef int status
    f.position = 0
    f.record = f.offset = -1
    while True:
        with nogil:
            while True:
                status = header(p + f.position, size - f.position, &layout, &m, &f)
                if status == KTS_OK:
                    status = right_crc(&m, KTS_BAD_CRC, &f)
                if status == KTS_OK:
                    status = body(&layout, &m, &f)
                if status != KTS_OK or m.codec:
                    break
                finish(p + f.position, m.size, &layout, 0, offset, m.create, append)
                offset += 1
                f.position += m.size
        if status != KTS_OK:
            break
        content = inflated(&m, &f, max_decompressed_bytes)
        within = <const uint8_t*> PyBytes_AS_STRING(content)
        n = len(content)
        with nogil:
            status = seen(within, n, &layout, &count, &create, &f)
            if status != KTS_OK:
                break
            finish(p + f.position, m.size, &layout, m.codec, offset + count - 1, create, append)
            offset += count
            f.position += m.size
    if status == KTS_FAILED:
        raise error_of(&f)
    return made[:f.position] if f.position < size else made, offset
