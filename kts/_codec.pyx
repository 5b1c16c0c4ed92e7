"""Kafka's messages (magic 0, 1) and record batches (magic 2): bytes to Arrow columns and back.

The surface of the C core in ``kts/native``, whose ``format.h`` has the layouts: decompression, the words of errors, and
the objects that Python calls. A compressed message (wrapper) of magic 0 or 1 holds entries in its value; a compressed
batch holds its records. Reading follows Kafka 3.9.2 (ByteBufferLogInputStream, DefaultRecordBatch, DefaultRecord,
AbstractLegacyRecordBatch).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, intptr_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

import threading

import numpy as np

from . import compression, errors
from .errors import CorruptRecordError, DecompressionLimitError

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    PyObject* PyBytes_AllocateUninitialised "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n) except NULL
    int _PyBytes_Resize(PyObject** made, Py_ssize_t n) except -1

kts_crc_init()

# --- what was found wrong --------------------------------------------------------------------------

# Why bytes are damaged or a set is refused, by name; the numbers are the places in it. kts.errors.REASONS has the words.
REASONS = tuple(kts_reasons[number].decode() for number in range(1, KTS_NO_MEMORY))
# The rows of codecs.h: name, and whether a message of magic 1 carries it.
# The columns that are decoded; a column is asked for by its place here.
STORED_COLUMNS = tuple(kts_column_names[place].decode() for place in range(KTS_STORED_COLUMNS))
CODECS = tuple((kts_codec_names[number].decode(), bool(kts_carries(1, number))) for number in range(KTS_CODECS_END))


cdef object error_of(Err* err):
    if err.reason == KTS_NO_MEMORY:
        return MemoryError()
    if err.reason == KTS_COLUMN_FULL:
        return ValueError("buf: a column of this buffer would pass Arrow's 2 GiB; read it in pieces with kts.iter_decode")
    reason = kts_reasons[err.reason].decode()
    codec = compression.CODEC_NAMES[err.a] if err.reason == KTS_WRAPPER_CODEC else None
    text = errors.REASONS[reason].words.format(a=err.a, b=err.b, codec=codec)
    record = None
    if err.record >= 0:
        record = err.record
        text = f"record {record} of {err.count}: {text}" if err.count >= 0 else f"inner message {record}: {text}"
    return CorruptRecordError(text, position=err.position, offset=err.offset, record_index=record, reason=reason)


# --- decompression -------------------------------------------------------------------------------------

cdef extern from "codecs.h" nogil:
    int KTS_GZIP, KTS_SNAPPY, KTS_LZ4, KTS_ZSTD

cdef uint32_t rotl(uint32_t v, int n) noexcept nogil:
    return v << n | v >> (32 - n)


cdef uint32_t xxh32(const uint8_t* p, int64_t n) noexcept nogil:
    """xxHash32 with seed 0: the lz4 frame's checksums."""
    cdef uint32_t h = 374761393u
    cdef uint32_t a = 606290984u, b = 2246822519u, c = 0, d = 1640531535u
    cdef const uint8_t* end = p + n
    if n >= 16:
        while end - p >= 16:
            a = rotl(a + kts_le32(p) * 2246822519u, 13) * 2654435761u
            b = rotl(b + kts_le32(p + 4) * 2246822519u, 13) * 2654435761u
            c = rotl(c + kts_le32(p + 8) * 2246822519u, 13) * 2654435761u
            d = rotl(d + kts_le32(p + 12) * 2246822519u, 13) * 2654435761u
            p += 16
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18)
    h += <uint32_t> n
    while end - p >= 4:
        h = rotl(h + kts_le32(p) * 3266489917u, 17) * 668265263u
        p += 4
    while p < end:
        h = rotl(h + p[0] * 374761393u, 11) * 2654435761u
        p += 1
    h = (h ^ h >> 15) * 2246822519u
    h = (h ^ h >> 13) * 3266489917u
    return h ^ h >> 16


cdef object damaged(str text, str reason="PAYLOAD"):
    return CorruptRecordError(text, reason=reason)


cdef object beyond(int64_t limit):
    return DecompressionLimitError(
        f"decompressing would pass the bound of {limit} bytes; raise max_decompressed_bytes if the data is trusted")


ctypedef int (*SnappyBlock)(const char*, size_t, char*, size_t*) noexcept nogil
ctypedef int (*Lz4Block)(const char*, char*, int, int) noexcept nogil
ctypedef void (*DeflateBegin)(Deflate*) noexcept nogil
ctypedef int (*DeflateRun)(Deflate*) noexcept nogil
ctypedef void* (*ZstdMake)() noexcept nogil
ctypedef size_t (*ZstdFree)(void*) noexcept nogil
ctypedef size_t (*ZstdReset)(void*, int) noexcept nogil
ctypedef size_t (*ZstdStream)(void*, ZstdOut*, ZstdIn*) noexcept nogil
ctypedef unsigned (*ZstdIsError)(size_t) noexcept nogil
ctypedef const char* (*ZstdErrorName)(size_t) noexcept nogil

cdef struct ZstdIn:                    # ZSTD_inBuffer
    const void* src
    size_t size
    size_t pos

cdef struct ZstdOut:                   # ZSTD_outBuffer
    void* dst
    size_t size
    size_t pos

cdef struct Deflate:                   # the front of ISA-L's inflate_state, as since 2.17; 88 KB of it are its own
    uint8_t* out
    uint32_t room
    uint32_t total
    const uint8_t* source
    uint64_t bits
    uint32_t left

cdef struct Isal:
    DeflateBegin begin
    DeflateRun run

cdef struct Snappy:
    SnappyBlock block

cdef struct Lz4:
    Lz4Block block

cdef struct Zstd:
    ZstdMake make
    ZstdFree free
    ZstdReset reset
    ZstdStream stream
    ZstdIsError is_error
    ZstdErrorName error_name

# The libraries' own functions, which need no lock, by the number of the codec and in the order of its row in CODECS of
# kts.compression. SOUGHT is set last, so that a thread which sees FOUND sees them; NULL where they cannot be had.
cdef void* FUNCTIONS[8][8]
cdef Isal* ISAL = <Isal*> FUNCTIONS[KTS_GZIP]
cdef Snappy* LIBSNAPPY = <Snappy*> FUNCTIONS[KTS_SNAPPY]
cdef Lz4* LIBLZ4 = <Lz4*> FUNCTIONS[KTS_LZ4]
cdef Zstd* ZSTD = <Zstd*> FUNCTIONS[KTS_ZSTD]
cdef int64_t[8] SOUGHT
SEEKING = threading.Lock()             # held by the thread that seeks

# Whether threads take turns with the interpreter's lock to decode. Only speed depends on it, so the three need not be
# of one moment; each is read and written as one, and once for a payload, for a Python without that lock.
cdef int DECODING = 0                  # threads that decode now
cdef int64_t LAST_DECODING = 0         # the thread that decoded last
cdef int64_t ALONE = 0                 # how often it did so since another one decoded, at most ALONE_FOR_GOOD

cdef enum:
    ALONE_FOR_GOOD = 8
    FOUND = 1                          # in SOUGHT; 0 before
    MISSING = 2
    DEFLATE_STATE = 262144             # bytes for an inflate_state
    DEFLATE_ENDS_EARLY = 1             # ISAL_END_INPUT
    DEFLATE_FULL = 2                   # ISAL_OUT_OVERFLOW

cdef dict DEFLATE_FAULTS = {-1: "invalid block", -2: "invalid symbol", -3: "distance that goes too far back"}


cdef int seek_functions(int codec) except -1:
    """Find a library's functions once, when data of its codec is first met."""
    if not kts_get(&SOUGHT[codec]):
        with SEEKING:
            if not kts_get(&SOUGHT[codec]):
                kts_set(&SOUGHT[codec], FOUND if find_functions(codec) else MISSING)
    return 0


cdef bint find_functions(int codec) except -1:
    cdef int place
    found = compression.addresses(codec)
    for place in range(len(found)):
        FUNCTIONS[codec][place] = <void*> <intptr_t> found[place]
    return bool(found) and (codec != KTS_GZIP or isal_is_known())


cdef bint isal_is_known() except -1:
    """Whether an ``inflate_state`` has the fields of ``Deflate``: a known stream is inflated."""
    cdef Inflater known = Inflater.__new__(Inflater)
    known.own(1)
    try:
        return known.deflated(b"\x4b\x04\x00", 3, 1) == 3 and known.bytes() == b"a"
    except CorruptRecordError:
        return False


cdef inline bint needs_no_lock(const CEntry* e, int64_t limit) noexcept nogil:
    """Whether an entry is decompressed by its library's own functions."""
    if kts_get(&SOUGHT[e.codec]) != FOUND:
        return False
    if e.codec == KTS_GZIP:                    # they count in 32 bits
        return e.payload_size < INT32_MAX and limit < INT32_MAX
    if e.codec == KTS_SNAPPY:                  # the package is faster in one thread, but takes the lock for each batch
        return kts_get(&ALONE) < ALONE_FOR_GOOD
    return True


cdef class Inflater:
    """Decompresses one payload at a time, never more than a bound, whatever sizes the payload claims.

    After ``run`` the bytes are at ``out``, in the inflater's own memory, valid until the next call.
    """

    cdef Buf scratch
    cdef const uint8_t* out
    cdef int64_t out_size
    cdef bint unlocked                         # this payload is decompressed by its library's own functions
    cdef object snappy
    cdef object lz4
    cdef object zstd
    cdef void* zstd_context
    cdef Deflate* deflate

    def __dealloc__(self):
        free(self.scratch.p)
        free(self.deflate)
        if self.zstd_context != NULL:
            ZSTD.free(self.zstd_context)

    cdef bint begin(self, const CEntry* e) noexcept nogil:
        """Forget the payload before; false if there is nothing to decompress."""
        self.out = NULL
        self.out_size = 0
        return not (e.magic == 2 and e.count == 0 and e.payload_size == 0)

    cdef int run_free(self, const CEntry* e, int64_t limit, bint unlocked) except -1 nogil:
        """As ``run``; with the lock, unless ``needs_no_lock`` said ``unlocked``."""
        self.unlocked = unlocked
        if not self.begin(e):
            return 0
        if e.codec == KTS_GZIP:
            return self.gzip(e.payload, e.payload_size, limit)
        if e.codec == KTS_SNAPPY:
            return self.snappy_stream(e.payload, e.payload_size, limit)
        if e.codec == KTS_LZ4:
            return self.lz4_frame(e.payload, e.payload_size, limit, e.magic)
        if e.codec == KTS_ZSTD:
            return self.zstd_frames(e.payload, e.payload_size, limit)
        with gil:
            raise damaged(f"codec {e.codec} has no decompressor here", "BAD_CODEC")

    cdef int run(self, const CEntry* e, int64_t limit) except -1:
        try:
            seek_functions(e.codec)
            return self.run_free(e, limit, needs_no_lock(e, limit))
        except BaseException as error:
            self.zstd = None
            if compression.out_of_memory(error):
                raise MemoryError() from None
            if isinstance(error, (CorruptRecordError, ImportError, TypeError)) or not isinstance(error, Exception):
                raise                          # a package says TypeError of a call, not of the data
            name = compression.CODEC_NAMES[e.codec]
            raise damaged(f"{name} data is damaged: {error}") from error

    cdef bytes bytes(self):
        """A copy of what ``run`` made."""
        return PyBytes_FromStringAndSize(<char*> self.out, self.out_size)

    cdef int own(self, int64_t size) except -1 nogil:
        if kts_grow(&self.scratch, size):
            with gil:
                raise MemoryError()
        self.out = self.scratch.p
        return 0

    cdef int gzip(self, const uint8_t* p, int64_t n, int64_t limit) except -1 nogil:
        """Every member (RFC 1952), as Java's GZIPInputStream: what follows one and has no whole member header is left."""
        cdef int64_t at = gzip_header(p, n), before, more
        cdef uint32_t crc, size
        if at == 0:
            with gil:
                raise damaged("gzip data has no member header")
        self.own(1)
        while True:
            before = self.out_size
            if self.unlocked:
                at += self.deflated(p + at, n - at, limit)
            else:
                with gil:
                    at += self.deflated_by_package(p + at, n - at, limit)
            if n - at < 8:
                with gil:
                    raise damaged("gzip data ends inside a trailer")
            crc = kts_crc32(self.scratch.p + before, <size_t> (self.out_size - before))
            size = <uint32_t> (self.out_size - before)
            if crc != kts_le32(p + at):
                with gil:
                    raise damaged(f"gzip CRC is {crc:08x}, expected the stored {kts_le32(p + at):08x}")
            if size != kts_le32(p + at + 4):
                with gil:
                    raise damaged(f"gzip size is {size}, expected the stored {kts_le32(p + at + 4)}")
            at += 8
            # Java looks for a further member only where more than 18 bytes are left
            more = gzip_header(p + at, n - at) if n - at > 18 else 0
            if more == 0:
                return 0
            at += more

    cdef int64_t deflated(self, const uint8_t* p, int64_t n, int64_t limit) except -1 nogil:
        """Append one deflate stream to the scratch memory, by the library's own functions; its length."""
        cdef int64_t room = self.scratch.cap - self.out_size, most = limit - self.out_size + 1
        cdef Deflate* d
        cdef int status
        if self.deflate == NULL:
            self.deflate = <Deflate*> calloc(1, DEFLATE_STATE)
            if self.deflate == NULL:
                with gil:
                    raise MemoryError()
        d = self.deflate
        if room < 4 * n:
            room = 4 * n
        while True:
            if room > most:
                room = most
            self.own(self.out_size + room)
            ISAL.begin(d)
            d.source, d.left = p, <uint32_t> n
            d.out, d.room = self.scratch.p + self.out_size, <uint32_t> room
            status = ISAL.run(d)
            if status != DEFLATE_FULL or room == most:
                break
            room *= 2
        if status == DEFLATE_ENDS_EARLY:
            with gil:
                raise damaged("gzip data ends before its end mark")
        if status < 0:
            with gil:
                raise damaged(f"gzip data is damaged: {DEFLATE_FAULTS.get(status, status)}")
        room = d.out - (self.scratch.p + self.out_size)
        if status == DEFLATE_FULL or room == most:
            with gil:
                raise beyond(limit)
        self.out_size += room
        return d.source - p

    cdef int64_t deflated_by_package(self, const uint8_t* p, int64_t n, int64_t limit) except -1:
        """As ``deflated``, through the package."""
        cdef int64_t at = 0, step = 256, used, size
        cdef bytes data
        cdef object stream = compression.CODECS[KTS_GZIP].decompressor()
        while not stream.eof:
            if at == n:
                raise damaged("gzip data ends before its end mark")
            used = n - at if n - at < step else step
            data = stream.decompress(PyMemoryView_FromMemory(<char*> p + at, used, PyBUF_READ), limit - self.out_size + 1)
            size = PyBytes_GET_SIZE(data)
            if self.out_size + size > limit:
                raise beyond(limit)
            self.own(self.out_size + size)
            memcpy(self.scratch.p + self.out_size, PyBytes_AS_STRING(data), <size_t> size)
            self.out_size += size
            at += used - PyBytes_GET_SIZE(<bytes> stream.unconsumed_tail)
            step *= 2                          # what is read beyond the end is read again, and must not add up to n
        return at - PyBytes_GET_SIZE(<bytes> stream.unused_data)

    cdef int snappy_block(self, const uint8_t* p, int64_t n, int64_t limit) except -1 nogil:
        """Append one raw block to the scratch memory."""
        cdef uint64_t size = 0
        cdef size_t made
        cdef int shift = 0, i = 0
        while True:
            if i >= n or i > 4:
                with gil:
                    raise damaged("snappy block has no length")
            size |= <uint64_t> (p[i] & 0x7F) << shift
            shift += 7
            i += 1
            if p[i - 1] < 0x80:
                break
        if <int64_t> size > limit - self.out_size:
            with gil:
                raise beyond(limit)
        # the densest element makes 64 bytes of 3: a larger claim is a lie, and costs no memory
        if <int64_t> size > 22 * n:
            with gil:
                raise damaged(f"snappy block of {n} bytes claims {size}")
        self.own(self.out_size + <int64_t> size + 1)
        if size == 0:
            if n != i:
                with gil:
                    raise damaged("snappy block claims no bytes but has some")
            return 0
        made = <size_t> size
        if not self.unlocked:
            with gil:
                made = self.snappy_block_by_package(p, n, size)
        elif LIBSNAPPY.block(<const char*> p, <size_t> n, <char*> self.scratch.p + self.out_size, &made) != 0:
            with gil:
                raise damaged("snappy data is damaged: a block does not decompress")
        if made != size:
            with gil:
                raise damaged(f"snappy block claims {size} bytes and holds {made}")
        self.out_size += <int64_t> size
        return 0

    cdef size_t snappy_block_by_package(self, const uint8_t* p, int64_t n, uint64_t size) except? 0:
        if self.snappy is None:
            self.snappy = compression.CODECS[KTS_SNAPPY].decompressor()
        return self.snappy(
            PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ),
            PyMemoryView_FromMemory(<char*> self.scratch.p + self.out_size, <Py_ssize_t> size, PyBUF_WRITE))

    cdef int snappy_stream(self, const uint8_t* p, int64_t n, int64_t limit) except -1 nogil:
        """snappy-java's chunks behind its header, else one raw block (SnappyInputStream)."""
        cdef int64_t at = 16
        cdef int32_t size
        if n == 0:
            with gil:
                raise damaged("snappy data is empty")
        if n < 16 or memcmp(p, b"\x82SNAPPY\x00", 8) != 0:
            return self.snappy_block(p, n, limit)
        self.own(1)
        while n - at >= 4:
            size = kts_i32(p + at)
            at += 4
            if <uint32_t> size == 0x82534E41u:
                if n - at < 12 or memcmp(p + at, b"PPY\x00", 4) != 0 or kts_i32(p + at + 4) < 1:
                    with gil:
                        raise damaged("snappy stream goes on with a damaged header")
                at += 12
                continue
            if size < 0 or size > n - at:
                with gil:
                    raise damaged(f"snappy chunk length {size} does not fit the {n - at} bytes left")
            self.snappy_block(p + at, size, limit)
            at += size
        return 0

    cdef int lz4_block(self, const uint8_t* p, int64_t n, int64_t most) except -1 nogil:
        """Append one compressed block of a frame, whose blocks hold ``most`` bytes at most, to the scratch memory."""
        cdef int64_t room = most if most < 255 * n else 255 * n  # a byte makes at most 255
        cdef int made
        self.own(self.out_size + room)
        if self.unlocked:
            made = LIBLZ4.block(<const char*> p, <char*> self.scratch.p + self.out_size, <int> n, <int> room)
            if made < 0:
                with gil:
                    raise damaged("lz4 data is damaged: a block does not decompress")
            self.out_size += made
            return 0
        with gil:
            if self.lz4 is None:
                self.lz4 = compression.CODECS[KTS_LZ4].decompressor()
            self.out_size += <int64_t> self.lz4(
                PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ),
                PyMemoryView_FromMemory(<char*> self.scratch.p + self.out_size, room, PyBUF_WRITE), room)
        return 0

    cdef int lz4_frame(self, const uint8_t* p, int64_t n, int64_t limit, int magic) except -1 nogil:
        """One frame, as Kafka's Lz4BlockInputStream reads it: what follows the end mark is not looked at."""
        cdef int64_t at = 6, most, size, sums, blocks
        cdef uint8_t flags, checksum
        cdef uint32_t word, found
        if n < 7 or kts_le32(p) != 0x184D2204:
            with gil:
                raise damaged("lz4 frame has no magic number")
        flags = p[4]
        if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20 or p[5] & 0x8F or p[5] >> 4 < 4:
            with gil:
                raise damaged(f"lz4 frame descriptor {flags:02x} {p[5]:02x} is not one that Kafka reads")
        most = <int64_t> 1 << (8 + 2 * (p[5] >> 4))
        if flags & 0x08:
            at += 8                            # a content size: not believed
        if n <= at:
            with gil:
                raise damaged("lz4 frame ends inside its descriptor")
        checksum = <uint8_t> (xxh32(p + 4, at - 4) >> 8)
        if magic and checksum != p[at]:
            with gil:
                raise damaged(f"lz4 frame descriptor checksum is {checksum:02x}, expected the stored {p[at]:02x}")
        at += 1
        blocks = at
        sums = 4 if flags & 0x10 else 0
        while True:                            # the frame is walked first: what is cut costs no decompression
            if n - at < 4:
                with gil:
                    raise damaged("lz4 frame ends before its end mark")
            word = kts_le32(p + at)
            size = word & 0x7FFFFFFF
            at += 4
            if size == 0:
                break
            if size > most:
                with gil:
                    raise damaged(f"lz4 block of {size} bytes exceeds the frame's {most}")
            if size + sums > n - at:
                with gil:
                    raise damaged(f"lz4 block of {size} bytes exceeds the {n - at} left")
            if size == 1 and not word >> 31 and p[at] < 16:
                with gil:
                    raise damaged("lz4 block holds no bytes")
            at += size + sums
        if flags & 0x04:
            at += 4                            # a content checksum: there, and not verified
            if n < at:
                with gil:
                    raise damaged("lz4 frame ends before its checksum")
        if n - at >= 4 and kts_le32(p + at) == 0x184D2204:
            with gil:
                raise damaged("a second lz4 frame follows the first, and Kafka would not read it", "SECOND_FRAME")
        self.own(1)
        at = blocks
        while True:
            word = kts_le32(p + at)
            size = word & 0x7FFFFFFF
            at += 4
            if size == 0:
                return 0
            if sums:
                found = xxh32(p + at, size)
                if found != kts_le32(p + at + size):
                    with gil:
                        raise damaged(f"lz4 block checksum is {found:08x}, expected the stored {kts_le32(p + at + size):08x}")
            if word >> 31:
                self.own(self.out_size + size)
                memcpy(self.scratch.p + self.out_size, p + at, size)
                self.out_size += size
            else:
                self.lz4_block(p + at, size, most)
            if self.out_size > limit:
                with gil:
                    raise beyond(limit)
            at += size + sums

    cdef int zstd_frames(self, const uint8_t* p, int64_t n, int64_t limit) except -1 nogil:
        """Every frame, as zstd-jni's stream; the blocks are walked first, so nothing is cut and little is claimed."""
        cdef int64_t bound = zstd_bound(p, n), cap
        if bound < 0:
            with gil:
                raise damaged("zstd data is not a sequence of whole frames")
        cap = (bound if bound < limit else limit) + 1         # one to spare: the library checks a frame's end beyond it
        self.own(cap)
        if self.unlocked:
            self.zstd_stream(p, n, cap)
        else:
            with gil:
                self.zstd_reader(p, n, cap)
        if self.out_size > limit:
            with gil:
                raise beyond(limit)
        return 0

    cdef int zstd_stream(self, const uint8_t* p, int64_t n, int64_t cap) except -1 nogil:
        """Up to ``cap`` bytes of the frames, by the library's own functions."""
        cdef ZstdIn source
        cdef ZstdOut made
        cdef size_t status, read, before
        if self.zstd_context == NULL:
            self.zstd_context = ZSTD.make()
            if self.zstd_context == NULL:
                with gil:
                    raise MemoryError()
        ZSTD.reset(self.zstd_context, 1)       # the session alone
        source.src, source.size, source.pos = p, <size_t> n, 0
        made.dst, made.size, made.pos = self.scratch.p, <size_t> cap, 0
        while made.pos < made.size:
            read, before = source.pos, made.pos
            status = ZSTD.stream(self.zstd_context, &made, &source)
            if ZSTD.is_error(status):
                with gil:
                    raise damaged(f"zstd data is damaged: {ZSTD.error_name(status).decode()}")
            if source.pos == read and made.pos == before:
                break
        self.out_size = <int64_t> made.pos
        return 0

    cdef int zstd_reader(self, const uint8_t* p, int64_t n, int64_t cap) except -1:
        """Up to ``cap`` bytes of the frames, through the package."""
        cdef Py_ssize_t got
        if self.zstd is None:
            self.zstd = compression.CODECS[KTS_ZSTD].decompressor()
        stream = self.zstd(PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ))
        while self.out_size < cap:
            got = stream.readinto(PyMemoryView_FromMemory(<char*> self.scratch.p + self.out_size, cap - self.out_size,
                                                          PyBUF_WRITE))
            if got <= 0:
                break
            self.out_size += got
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

cdef void drop_kept(Slab* s) noexcept nogil:
    cdef PyObject** kept = <PyObject**> s.kept.p
    cdef int i
    with gil:
        for i in range(s.n_kept):
            Py_DECREF(<object> kept[i])
    s.n_kept = 0


cdef void slab_unref(Slab* s) noexcept nogil:
    kts_slab_unref(s, drop_kept)


cdef void release(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    array.release = NULL
    slab_unref(<Slab*> array.private_data)


# --- the Python surface --------------------------------------------------------------------------------

@cython.final
@cython.freelist(8)
cdef class HeldBuffer:
    """Keeps a caller's buffer, for as long as a pass or a view needs it."""

    cdef Py_buffer view
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef HeldBuffer held_buffer(buf):
    cdef HeldBuffer source = HeldBuffer.__new__(HeldBuffer)
    try:
        PyObject_GetBuffer(buf, &source.view, PyBUF_SIMPLE)
    except TypeError as error:
        raise TypeError(f"buf: expected bytes or another buffer, found {type(buf).__name__}") from error
    except (BufferError, ValueError) as error:
        raise TypeError(f"buf: expected a contiguous buffer: {error}") from error
    source.held = True
    return source


def check_buffer(buf):
    """Raise TypeError unless ``buf`` is a contiguous buffer."""
    held_buffer(buf)


cdef class Decoder:
    """One pass over a buffer, in pieces of whole entries.

    Parameters
    ----------
    buf : buffer
        Entries of any magic.
    ids : bytes
        Places of the wanted columns in ``STORED_COLUMNS``.
    views : bool
        Keys and values as views into ``buf`` (or into decompressed bytes), instead of copies.
    verify_crc : bool
    max_decompressed_bytes : int
        Bound on each batch or wrapper.
    """

    cdef HeldBuffer source
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
        self.source = held_buffer(buf)
        self.ids = ids
        self.limit = max_decompressed_bytes
        self.d.data = <const uint8_t*> self.source.view.buf
        self.d.size = self.source.view.len
        self.d.views = views
        self.d.verify = verify_crc
        for column in ids:
            self.d.want |= <uint32_t> 1 << column
        if self.d.want >> KTS_C_CREATE_TIME & 1:                         # the one is read off the other
            self.d.want |= 1 << KTS_C_TIMESTAMP | 1 << KTS_C_OWN_TIME
        if self.d.want >> KTS_C_SEQUENCE & 1:
            self.d.want |= 1 << KTS_C_OFFSET
        self.d.records = kts_wanted_of_records(self.d.want, views, verify_crc)
        self.nullable = self.d.want & (1 << KTS_C_BASE_OFFSET | 1 << KTS_C_LAST_DELTA | 1 << KTS_C_BASE_TIME
                                       | 1 << KTS_C_MAX_TIME | 1 << KTS_C_CREATE_TIME)
        if self.nullable & ~(<uint32_t> 1 << KTS_C_CREATE_TIME):
            self.d.want |= 1 << KTS_C_IS_BATCH

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
        s = kts_slab_take(slice_bytes if slice_bytes else self.d.size)
        try:
            if s == NULL:
                raise MemoryError()
            try:
                status = self.fill(s, slice_bytes)
                self.ended = status == KTS_END
            except BaseException as error:
                self.ended = True
                kts_take_back(s)
                if slice_bytes == 0 or s.rows == 0 or not isinstance(error, CorruptRecordError):
                    raise
                self.failure = error
            if s.rows == 0 and slice_bytes:
                return 0
            array = kts_export(s, <const uint8_t*> PyBytes_AS_STRING(self.ids), <int> PyBytes_GET_SIZE(self.ids),
                               self.d.views, self.nullable, release)
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
        if kts_grow(&s.kept, (n + 1) * sizeof(void*)) or kts_grow(&s.bases, (n + 1) * sizeof(void*)) \
                or kts_grow(&s.sizes, (n + 1) * 8):
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
        """Append entries until the piece is full: KTS_END or KTS_STOP."""
        cdef CEntry e
        cdef Err err
        cdef int status
        cdef Pass* d = &self.d
        cdef int64_t whole = d.size + 1, stop, made = 0, left
        cdef int64_t me = PyThread_get_thread_ident(), alone = 0
        stop = d.position + slice_bytes if 0 < slice_bytes < whole - d.position else whole
        if kts_add(&DECODING, 0) == 0 and kts_get(&LAST_DECODING) == me:
            alone = min(kts_get(&ALONE) + 1, ALONE_FOR_GOOD)
        kts_set(&ALONE, alone)
        kts_set(&LAST_DECODING, me)
        d.base = NULL
        kts_set_mark(s)
        while True:
            kts_add(&DECODING, 1)
            try:
                with nogil:
                    status = kts_decode(d, s, stop, &e, &err)
                    while status == KTS_INFLATE:
                        self.inflate(s, &e)
                        made += self.inflater.out_size
                        if slice_bytes and made >= 8 * slice_bytes:
                            stop = d.position  # well-compressed entries: a piece is not to become huge
                        status = kts_decode_inflated(d, s, &e, self.inflater.out, self.inflater.out_size, &err)
                        if status == KTS_OK:
                            status = kts_decode(d, s, stop, &e, &err)
            except CorruptRecordError as error:
                error.position = e.position
                error.offset = e.offset
                raise
            finally:
                kts_add(&DECODING, -1)
            if status == KTS_FAILED:
                raise error_of(&err)
            elif status == KTS_END:
                return status
            elif status == KTS_BASE:
                left = d.data + d.size - d.base
                self.keep(s, self.source, d.base, left if left < INT32_MAX else INT32_MAX)
            elif s.rows:
                return status
            else:
                stop = d.position + slice_bytes if slice_bytes < whole - d.position else whole

    cdef int inflate(self, Slab* s, CEntry* e) except -1 nogil:
        """Decompress an entry, without the interpreter's lock if its codec allows that."""
        if needs_no_lock(e, self.limit) and not self.d.views and self.inflater is not None:
            return self.inflater.run_free(e, self.limit, True)
        with gil:
            return self.inflate_locked(s, e)

    cdef int inflate_locked(self, Slab* s, CEntry* e) except -1:
        cdef bytes owner
        if self.inflater is None:
            self.inflater = Inflater.__new__(Inflater)
        self.inflater.run(e, self.limit)
        if self.d.views:
            if self.inflater.out_size > INT32_MAX:
                raise ValueError(f"buf: the batch at position {e.position} decompresses to {self.inflater.out_size} bytes, "
                                 "and a view reaches 2 GiB at most; read it with views=False")
            owner = self.inflater.bytes()
            self.inflater.out = <const uint8_t*> PyBytes_AS_STRING(owner)
            self.keep(s, owner, self.inflater.out, self.inflater.out_size)
        return 0


def max_timestamp(buf, bint verify_crc, int64_t max_decompressed_bytes):
    """(timestamp, offset, shallow offset) of the first record with the greatest timestamp; (-1, -1, -1) without one."""
    cdef Decoder decoder = Decoder(buf, bytes((KTS_C_OFFSET, KTS_C_TIMESTAMP, KTS_C_SHALLOW)), False, verify_crc,
                                   max_decompressed_bytes)
    cdef Slab* s = kts_slab_take(0)
    cdef int64_t i, best = -1, offset = -1, shallow = -1
    cdef int64_t* timestamps
    cdef int status = KTS_STOP
    if s == NULL:
        raise MemoryError()
    decoder.d.records |= KTS_REST                  # as Kafka, which looks at every field on its way
    try:
        while status != KTS_END:
            s.rows = s.key.rows = s.value.rows = 0
            status = decoder.fill(s, 1048576)
            with nogil:
                timestamps = kts_longs(s, KTS_C_TIMESTAMP)
                for i in range(s.rows):
                    if timestamps[i] > best:
                        best = timestamps[i]
                        offset = kts_longs(s, KTS_C_OFFSET)[i]
                        shallow = kts_longs(s, KTS_C_SHALLOW)[i]
    finally:
        slab_unref(s)
    return best, offset, shallow


def first_offset(buf, int64_t max_decompressed_bytes):
    """The offset of the first message of the wrapper in ``buf``; no CRC, key or value is checked.

    Raises
    ------
    CorruptRecordError
        There is none, or it cannot be found.
    """
    cdef HeldBuffer source = held_buffer(buf)
    cdef Inflater inflater = Inflater.__new__(Inflater)
    cdef CEntry e
    cdef Err err
    cdef int64_t offset = -1
    cdef int status
    err.position = err.offset = err.record = err.count = -1
    status = kts_read_header(<const uint8_t*> source.view.buf, source.view.len, 0, &e, &err)
    if status == KTS_OK:
        status = kts_wrapper_value(&e, &err)
    if status == KTS_OK:
        inflater.run(&e, max_decompressed_bytes)
        status = kts_first_inner_offset(inflater.out, inflater.out_size, &e, &offset, &err)
    if status != KTS_OK:
        raise error_of(&err)
    return offset


def valid_bytes(buf):
    """Length of the whole entries at the front; CorruptRecordError for an impossible size or magic."""
    cdef HeldBuffer source = held_buffer(buf)
    cdef const uint8_t* p = <const uint8_t*> source.view.buf
    cdef int64_t total = source.view.len, at = 0, size = 0
    cdef int status
    cdef Err err
    with nogil:
        while True:
            status = kts_entry_size(p + at, total - at, KTS_GENERATION_3_9, &size, &err)
            if status != KTS_OK:
                break
            at += size
    if status == KTS_FAILED:
        err.position = at
        err.record = err.count = -1
        err.offset = kts_i64(p + at)
        raise error_of(&err)
    return at


cdef bytes ROW_IDS = bytes((
    KTS_C_POSITION, KTS_C_SIZE, KTS_C_MAGIC, KTS_C_BASE_OFFSET, KTS_C_OFFSET, KTS_C_LAST_DELTA, KTS_C_BASE_TIME,
    KTS_C_MAX_TIME, KTS_C_TYPE, KTS_C_CODEC, KTS_C_LEADER_EPOCH, KTS_C_PRODUCER, KTS_C_PRODUCER_EPOCH, KTS_C_SEQUENCE,
    KTS_C_TRANSACTIONAL, KTS_C_CONTROL, KTS_C_CRC_OK,
))
cdef uint32_t ROW_COLUMNS = 1 << KTS_C_IS_BATCH
for _column in ROW_IDS:
    ROW_COLUMNS |= <uint32_t> 1 << <int> _column


cdef intptr_t arrow_rows(Slab* s) except 0:
    """Address of an ArrowArray with the columns ``ROW_IDS`` of a slab, which it owns."""
    cdef const uint8_t* ids = <const uint8_t*> PyBytes_AS_STRING(ROW_IDS)
    cdef ArrowArray* array = kts_export(s, ids, 17, False, 1 << KTS_C_BASE_OFFSET | 1 << KTS_C_LAST_DELTA, release)
    if array == NULL:
        slab_unref(s)
        raise MemoryError()
    return <intptr_t> array


def scan(buf):
    """Address of an ArrowArray with a row for each entry, from headers and CRCs alone."""
    cdef HeldBuffer source = held_buffer(buf)
    cdef Slab* s = kts_slab_take(0)
    cdef Err err
    cdef int status
    if s == NULL:
        raise MemoryError()
    with nogil:
        status = kts_scan(<const uint8_t*> source.view.buf, source.view.len, ROW_COLUMNS, s, &err)
        if status == KTS_FAILED:
            slab_unref(s)
    if status == KTS_FAILED:
        raise error_of(&err)
    return arrow_rows(s)


# --- the table of entries ------------------------------------------------------------------------------

# Of format.h, for kts.codec.layout.
OVERHEAD_BYTES, SMALLEST_ENTRY_BYTES, HEADER_BYTES = KTS_OVERHEAD, KTS_OVERHEAD + KTS_V0_LEAST, KTS_BATCH_HEADER
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = KTS_CODEC_MASK, KTS_LOG_APPEND_TIME, KTS_TRANSACTIONAL, KTS_CONTROL
DELETE_HORIZON, HAS_TIMESTAMP = KTS_DELETE_HORIZON, KTS_HAS_TIMESTAMP

ENTRY = np.dtype(                       # kts_row of entries.h
    [(name, np.int64) for name in (
        "position", "base_offset", "last_offset", "base_timestamp", "max_timestamp", "producer_id",
    )]
    + [(name, np.int32) for name in ("size", "count", "leader_epoch", "base_sequence")]
    + [(name, np.int16) for name in ("attributes", "producer_epoch")]
    + [(name, np.int8) for name in ("magic", "codec", "timestamp_type", "crc_ok")]
    + [(name, np.bool_) for name in ("transactional", "control")],
    align=True,
)
if ENTRY.itemsize != sizeof(Row):
    raise ImportError(f"the table of entries: expected rows of {ENTRY.itemsize} bytes, found {sizeof(Row)}")


@cython.final
@cython.freelist(8)
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

    cdef Row row

    def __init__(self):
        raise TypeError("an Entry is read from bytes: use Entries or read_header")

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in ENTRY.names)
        return f"Entry({fields})"

    @property
    def position(self):
        return self.row.position

    @property
    def size(self):
        return self.row.size

    @property
    def end(self):
        return self.row.position + self.row.size

    @property
    def magic(self):
        return self.row.magic

    @property
    def base_offset(self):
        return self.row.base_offset

    @property
    def last_offset(self):
        return self.row.last_offset

    @property
    def count(self):
        return self.row.count

    @property
    def base_timestamp(self):
        return self.row.base_timestamp

    @property
    def max_timestamp(self):
        return self.row.max_timestamp

    @property
    def timestamp_type(self):
        return self.row.timestamp_type

    @property
    def codec(self):
        return self.row.codec

    @property
    def attributes(self):
        return self.row.attributes

    @property
    def leader_epoch(self):
        return self.row.leader_epoch

    @property
    def producer_id(self):
        return self.row.producer_id

    @property
    def producer_epoch(self):
        return self.row.producer_epoch

    @property
    def base_sequence(self):
        return self.row.base_sequence

    @property
    def transactional(self):
        return self.row.transactional != 0

    @property
    def control(self):
        return self.row.control != 0

    @property
    def crc_ok(self):
        return None if self.row.crc_ok < 0 else self.row.crc_ok != 0


cdef Entry entry_of(const Row* row):
    cdef Entry made = Entry.__new__(Entry)
    made.row = row[0]
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
    us. ``column(name)`` gives an array: for many. As a buffer, it is the table itself, with rows of the type ``ENTRY``.
    """

    cdef Row* rows
    cdef Row[2] few           # the first rows, so that a single entry needs no memory of its own
    cdef int64_t room
    cdef int64_t count
    cdef readonly int64_t end
    cdef readonly object error
    cdef readonly bint all_sound

    def __cinit__(self, buf, *, int64_t start=0, bint verify_crc=False, bint until_damage=False):
        cdef HeldBuffer source = held_buffer(buf)
        cdef Err err
        cdef int status
        with nogil:
            status = self.walk(<const uint8_t*> source.view.buf, source.view.len, start, verify_crc, &err)
        if status == KTS_FAILED:
            if err.reason != KTS_NO_MEMORY:
                err.position += start
            error = error_of(&err)
            if not until_damage or err.reason == KTS_NO_MEMORY:
                raise error
            self.error = error

    def __dealloc__(self):
        if self.rows != self.few:
            free(self.rows)

    cdef int walk(self, const uint8_t* p, int64_t n, int64_t start, bint verify, Err* err) noexcept nogil:
        cdef CEntry e
        cdef Row* row
        cdef int64_t position = 0
        cdef int status
        self.rows = self.few
        self.room = 2
        self.all_sound = True
        while True:
            self.end = start + position
            status = kts_next_entry(p, n, position, &e, err)
            if status != KTS_OK:
                return status
            if self.count == self.room and self.make_room():
                return kts_fail(err, KTS_NO_MEMORY, 0, 0)
            position += e.size
            e.position += start
            row = self.rows + self.count
            kts_row_of(&e, kts_crc_ok(&e, err) if verify else -1, row)
            if row.crc_ok == 0:
                self.all_sound = False
            self.count += 1

    cdef int make_room(self) noexcept nogil:
        cdef int64_t room = 64 if self.rows == self.few else 2 * self.room
        cdef Row* rows = <Row*> realloc(NULL if self.rows == self.few else self.rows, <size_t> room * sizeof(Row))
        if rows == NULL:
            return KTS_FAILED
        if self.rows == self.few:
            memcpy(rows, self.few, sizeof(self.few))
        self.rows = rows
        self.room = room
        return KTS_OK

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.rows, self.count * sizeof(Row), True, flags)

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
        """One field of all entries, as a view of the table; ``transactional``, ``control`` and ``crc_ok`` are bools."""
        if name == "crc_ok" and self.count and self.rows.crc_ok < 0:
            raise ValueError("crc_ok: the CRCs of these entries were not verified")
        found = (np.frombuffer(self, ENTRY) if self.count else np.empty(0, ENTRY))[name]
        return found.view(np.bool_) if name == "crc_ok" else found

    def arrow(self, int64_t count):
        """The same as ``scan`` of the first entries, whose CRCs must have been verified."""
        cdef Slab* s
        cdef int status
        if self.count and self.rows.crc_ok < 0:
            raise ValueError("the CRCs of these entries were not verified")
        s = kts_slab_take(0)
        if s == NULL:
            raise MemoryError()
        with nogil:
            status = kts_columns_of_rows(self.rows, min(count, self.count), ROW_COLUMNS, s)
            if status == KTS_FAILED:
                slab_unref(s)
        if status == KTS_FAILED:
            raise MemoryError()
        return arrow_rows(s)


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
    cdef HeldBuffer source = held_buffer(buf)
    cdef CEntry e
    cdef Row row
    cdef Err err
    cdef int status
    if not 0 <= at <= source.view.len:
        raise ValueError(f"at: expected 0 to {source.view.len}, found {at}")
    status = kts_read_header(<const uint8_t*> source.view.buf, source.view.len, at, &e, &err)
    if status == KTS_FAILED:
        err.position += start
        raise error_of(&err)
    if status == KTS_END:
        return None
    e.position += start
    kts_row_of(&e, -1, &row)
    return entry_of(&row)


# --- writing -------------------------------------------------------------------------------------------

cdef int64_t data_bytes(const Strings* t, int64_t first, int64_t last) noexcept nogil:
    return 0 if t.offsets == NULL else t.offsets[last + t.shift] - t.offsets[first + t.shift]


cdef Head head_of(tuple items):
    cdef Head h
    memset(&h, 0, sizeof(Head))
    h.attributes = items[0]
    if items[1] is None:
        h.follows |= KTS_FOLLOWS_OFFSET
    else:
        h.offset = items[1]
    if items[2] is None:
        h.follows |= KTS_FOLLOWS_DELTA
    else:
        h.last_offset_delta = items[2]
    if items[3] is None:
        h.follows |= KTS_FOLLOWS_BASE
    else:
        h.base_timestamp = items[3]
    if items[4] is None:
        h.follows |= KTS_FOLLOWS_MAX
    else:
        h.max_timestamp = items[4]
    h.leader_epoch, h.producer_id, h.producer_epoch, h.base_sequence = items[5:]
    return h


cdef int64_t EXPECTED = 0


cdef void expect(int64_t size) noexcept:
    """glibc maps fresh pages for blocks larger than any it got back, and they cost more than encoding into them.

    A result is given back smaller than it was asked for, so it gets one of that size here.
    """
    if size > kts_get(&EXPECTED):
        kts_set(&EXPECTED, size)
        PyMem_RawFree(PyMem_RawMalloc(<size_t> size))


cdef void null_string(String* s) noexcept:
    s.p = s.end = NULL
    s.n = -1


cdef void string_of(bytes data, String* s) noexcept:
    s.p = <const uint8_t*> PyBytes_AS_STRING(data)
    s.n = PyBytes_GET_SIZE(data)
    s.end = s.p + s.n


cdef class Encoder:
    """Writes rows of Arrow columns as record batches or messages.

    The addresses handed to ``rows`` must stay valid as long as the encoder is used.
    """

    cdef Rows r
    cdef Sink out             # the bytes object that will be the result
    cdef PyObject* made
    cdef Sink body            # what is to be compressed
    cdef bint from_zero       # each batch or wrapper has offsets from 0 on, as a producer sends it

    def __dealloc__(self):
        Py_XDECREF(self.made)
        free(self.body.p)

    def rows(self, int64_t count, intptr_t offsets, intptr_t times, key, value, headers, bint from_zero=False):
        """Where the rows lie: addresses of int64 columns; (offsets, data, bytes of data, valid, shift) of binary ones,
        or None."""
        self.from_zero = from_zero
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
            if kts_grow(&buf, cap):
                raise MemoryError()
            sink.p = buf.p
            sink.cap = buf.cap
            return 0
        if done:                               # the others will take about as much as they
            guess = min(1.02 * sink.end / done * self.r.count, <double> (sink.end + self.most_bytes()))
            cap = max(cap, <int64_t> guess)
        sink.cap = 0
        expect(cap)
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

    def empty_batch(self, head):
        """Append a batch without records, as the cleaner leaves it; ``head`` is as in ``batch``, without None."""
        cdef Head h = head_of(head)
        cdef int64_t begin = self.out.end
        if h.follows:
            raise ValueError("batch: without records nothing follows from them")
        self.room_for(KTS_BATCH_HEADER, 0)
        self.out.end = begin + KTS_BATCH_HEADER
        with nogil:
            kts_put_batch(self.out.p + begin, KTS_BATCH_HEADER, &h, 0)

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
        cdef int64_t row = first, begin = self.out.end, body = 0, size, top = -1
        cdef int prefix = 1, status = KTS_CRAMPED
        cdef bytes packed
        cdef Sink* sink = &self.out if compress is None else &self.body
        if h.follows & KTS_FOLLOWS_OFFSET:
            h.offset = self.r.offsets[first]
        if h.follows & KTS_FOLLOWS_BASE:
            h.base_timestamp = self.r.times[first]
        self.room_for(KTS_BATCH_HEADER, first)
        if compress is None:
            self.out.end = body = begin + KTS_BATCH_HEADER
        self.body.end = 0
        while True:
            with nogil:
                status = kts_write_records(sink, &self.r, &h, body, most_bytes, first, last, &row, &top, &prefix)
            if status != KTS_CRAMPED:
                break
            self.more(sink, row)
        if row == first:
            self.out.end = begin
            raise ValueError(f"batch: the record at row {first} does not fit a batch")
        if h.follows & KTS_FOLLOWS_DELTA:
            h.last_offset_delta = <int32_t> (<uint64_t> self.r.offsets[row - 1] - <uint64_t> h.offset)
        if h.follows & KTS_FOLLOWS_MAX:
            h.max_timestamp = top
        if compress is not None:
            packed = compress(PyMemoryView_FromMemory(<char*> self.body.p, self.body.end, PyBUF_READ))
            size = PyBytes_GET_SIZE(packed)
            if size + KTS_BATCH_HEADER > KTS_LARGEST_ENTRY:
                raise ValueError(f"batch: the compressed records of row {first} do not fit a batch")
            self.room_for(KTS_BATCH_HEADER + size, row)
            memcpy(self.out.p + begin + KTS_BATCH_HEADER, PyBytes_AS_STRING(packed), <size_t> size)
            self.out.end = begin + KTS_BATCH_HEADER + size
        if self.from_zero:
            h.offset = 0
        with nogil:
            kts_put_batch(self.out.p + begin, self.out.end - begin, &h, <int32_t> (row - first))
        return row

    def messages(self, int64_t first, int64_t last, int magic, int attributes, append_time):
        """Append uncompressed messages of rows first to last; ``append_time`` is the time of all, None: their own."""
        cdef int64_t time = 0 if append_time is None else append_time, row = first, top = -1
        cdef bint own = append_time is None
        cdef int status = KTS_CRAMPED
        while status != KTS_OK:
            with nogil:
                status = kts_write_messages(&self.out, &self.r, magic, attributes, own, time, 0, INT64_MAX, last, &row, &top)
            if status == KTS_HUGE:
                raise ValueError(f"batch: the record at row {row} does not fit a message")
            if status == KTS_CRAMPED:
                self.more(&self.out, row)

    def wrapper(self, int64_t first, int64_t last, int64_t most_bytes, int magic, int attributes, append_time, compress):
        """Append one compressed message around rows from ``first`` on, as ``batch``; inner offsets are absolute in
        magic 0 and relative to the first in magic 1. Returns the first row not written."""
        cdef int64_t row = first, top = -1, time
        cdef int64_t most = most_bytes - KTS_OVERHEAD - (KTS_V1_LEAST if magic else KTS_V0_LEAST)
        cdef int64_t base = self.r.offsets[first] if magic or self.from_zero else 0
        cdef int64_t offset
        cdef String key, value
        cdef int status = KTS_CRAMPED
        cdef bytes packed
        self.body.end = 0
        while status == KTS_CRAMPED:
            with nogil:
                status = kts_write_messages(&self.body, &self.r, magic, 0, True, 0, base,
                                            most if most < KTS_LARGEST_ENTRY else KTS_LARGEST_ENTRY, last, &row, &top)
            if status == KTS_CRAMPED:
                self.more(&self.body, 0)
        if row == first:
            raise ValueError(f"batch: the record at row {first} does not fit a message")
        packed = compress(PyMemoryView_FromMemory(<char*> self.body.p, self.body.end, PyBUF_READ))
        time = top if append_time is None else append_time
        null_string(&key)
        string_of(packed, &value)
        self.room_for(KTS_OVERHEAD + KTS_V1_LEAST + KTS_SLACK + value.n, row)
        offset = self.r.offsets[row - 1] - (self.r.offsets[first] if self.from_zero else 0)
        if kts_write_message(&self.out, magic, attributes, offset, time, &key, &value) != KTS_OK:
            raise ValueError(f"batch: the compressed messages of row {first} do not fit a message")
        return row

    def result(self):
        """All that was appended; the encoder is empty then."""
        cdef object data
        if self.made == NULL:
            return b""
        _PyBytes_Resize(&self.made, self.out.end)
        self.out.cap = self.out.end = 0
        data = <object> self.made
        Py_DECREF(data)
        self.made = NULL
        return data


def renumber(buf, int64_t shift, int32_t leader_epoch):
    """Add ``shift`` to the offset of each whole entry of a writable buffer; returns the bytes of these entries.

    Batches of magic 2 also get the leader epoch. No CRC covers these two fields. The offsets inside of a compressed
    wrapper are relative from magic 1 on, and stay; those inside of one of magic 0 are not: such a wrapper is refused.
    """
    cdef Py_buffer view
    cdef CEntry e
    cdef Err err
    cdef int64_t position = 0
    cdef int status
    cdef uint8_t* p
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        with nogil:
            while True:
                status = kts_next_entry(<const uint8_t*> view.buf, view.len, position, &e, &err)
                if status != 0 or (e.magic == 0 and e.codec):
                    break
                p = <uint8_t*> view.buf + position
                kts_put64(p + KTS_OFFSET_AT, <uint64_t> (e.offset + shift))
                if e.magic == 2:
                    kts_put32(p + KTS_BATCH_EPOCH_AT, <uint32_t> leader_epoch)
                position += e.size
        if status == KTS_FAILED:
            raise error_of(&err)
        if status != KTS_END:
            raise ValueError("buf: expected entries whose inner offsets are relative, found a wrapper of magic 0")
        return position
    finally:
        PyBuffer_Release(&view)


cdef uint32_t murmur2_of(const uint8_t* p, int64_t n) noexcept nogil:
    cdef uint32_t result = <uint32_t> 0x9747B28C ^ <uint32_t> n
    cdef uint32_t word
    cdef int64_t left = n
    while left >= 4:
        word = kts_le32(p) * <uint32_t> 0x5BD1E995
        word = (word ^ word >> 24) * <uint32_t> 0x5BD1E995
        result = result * <uint32_t> 0x5BD1E995 ^ word
        p += 4
        left -= 4
    if left:
        if left == 3:
            result ^= <uint32_t> p[2] << 16
        if left >= 2:
            result ^= <uint32_t> p[1] << 8
        result = (result ^ p[0]) * <uint32_t> 0x5BD1E995
    result = (result ^ result >> 13) * <uint32_t> 0x5BD1E995
    return result ^ result >> 15


def rises(const int64_t[::1] numbers):
    """Whether each number is greater than the one before it."""
    cdef Py_ssize_t i
    cdef bint found = True
    for i in range(1, numbers.shape[0]):
        found &= numbers[i] > numbers[i - 1]
    return found


def murmur2(const uint8_t[::1] data):
    """Kafka's 32-bit murmur2 hash, as an unsigned number (Utils.murmur2)."""
    return murmur2_of(&data[0] if data.shape[0] else NULL, data.shape[0])


def partitions_of_keys(const int32_t[::1] offsets, const uint8_t[::1] data, int32_t partitions, int32_t[::1] out):
    """Fill ``out`` with the partition of each key (BuiltInPartitioner.partitionForKey).

    The key in row i is ``data[offsets[i]:offsets[i + 1]]``; the caller vouches for the offsets.
    """
    cdef Py_ssize_t i
    cdef const uint8_t* p = &data[0] if data.shape[0] else NULL
    if offsets.shape[0] != out.shape[0] + 1 or partitions < 1:
        raise ValueError("expected one offset more than rows, and at least one partition")
    with nogil:
        for i in range(out.shape[0]):
            out[i] = <int32_t> ((murmur2_of(p + offsets[i], offsets[i + 1] - offsets[i]) & 0x7FFFFFFF)
                                % <uint32_t> partitions)


def crc32c(buf):
    """CRC-32C of a buffer, as the codec computes it."""
    cdef HeldBuffer source = held_buffer(buf)
    return kts_crc32c(<const uint8_t*> source.view.buf, source.view.len)


def crc32(buf):
    """CRC-32 of a buffer, as the codec computes it."""
    cdef HeldBuffer source = held_buffer(buf)
    return kts_crc32(<const uint8_t*> source.view.buf, source.view.len)


# --- appending -----------------------------------------------------------------------------------------

cdef inline int put_item(object made, Py_ssize_t place, object item) except -1:
    """Set an item of a new tuple."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, place, item)
    return 0


cdef class Appender:
    """The rules that a topic appends by.

    Parameters
    ----------
    old : bool
        As 0.10.2.2 does, else as 3.9.2.
    shipped, append_time, compacted, client, replica, exempt, negative, missing : bool
        See ``kts_append_rules`` in ``append.h``.
    none : int
        As there; -1 without ``negative``.
    magic : int
        Of the topic.
    target : int
        Codec of the topic; -1 is the producer's.
    before, after : int
        Limits of a record's time, in ms.
    largest : int
        Most bytes of an entry.
    max_decompressed_bytes : int
    result : type
        What ``append`` returns: a tuple, or a class of named tuples with the fields of ``kts.codec.validate.Validated``.
    """

    cdef AppendRules rules
    cdef type result
    cdef int target
    cdef int64_t limit
    cdef void* spare          # an inflater that no set uses now

    def __dealloc__(self):
        Py_XDECREF(<PyObject*> self.spare)

    cdef Inflater inflater(self):
        cdef PyObject* kept = <PyObject*> kts_swap(&self.spare, NULL)
        cdef Inflater inflater
        if kept == NULL:
            return Inflater.__new__(Inflater)
        inflater = <Inflater> <object> kept
        Py_DECREF(inflater)
        return inflater

    cdef int give_back(self, Inflater inflater) except -1:
        if inflater is not None:
            Py_INCREF(inflater)
            if not kts_offer(&self.spare, <void*> inflater):
                Py_DECREF(inflater)
        return 0

    def __cinit__(self, *, bint old, bint shipped, int magic, bint append_time, bint compacted, bint client,
                  bint replica, bint exempt, bint negative, int target, int64_t before, int64_t after, int64_t largest,
                  int64_t max_decompressed_bytes, bint missing=False, int64_t none=-1, type result=tuple):
        self.rules.old = old
        self.rules.shipped = shipped
        self.rules.magic = magic
        self.rules.append_time = append_time
        self.rules.compacted = compacted
        self.rules.client = client
        self.rules.replica = replica
        self.rules.exempt = exempt
        self.rules.negative = negative
        self.rules.missing = missing
        self.rules.none = none
        self.rules.before = before
        self.rules.after = after
        self.rules.largest = largest
        self.target = target
        self.limit = max_decompressed_bytes
        self.result = result

    def set(self, buf, int64_t offset, int64_t now, int32_t epoch):
        """A set of records to be appended by these rules; nothing is done with it yet."""
        cdef AppendSet made = AppendSet.__new__(AppendSet)
        cdef HeldBuffer source = made.take(self, buf, offset, now, epoch)
        with nogil:
            memcpy(made.p, source.view.buf, <size_t> made.n)
        return made

    def append(self, buf, int64_t offset, int64_t now, int32_t epoch):
        """Analyse a set, look at its records, and keep it in place if that can be.

        Returns a ``result``; or the set if it was refused, is empty or is to be written anew.
        """
        cdef AppendSet made = AppendSet.__new__(AppendSet)
        cdef Append* s = &made.s
        cdef HeldBuffer source = made.take(self, buf, offset, now, epoch)
        cdef bint done
        with nogil:
            done = kts_append_plain(s, made.p, <const uint8_t*> source.view.buf, made.n, self.target)
        if s.refused.reason or s.found.entries == 0:
            return made
        made.n = s.found.valid
        if not done:
            if made.deep() is not True:
                return made
            self.give_back(made.inflater)
            made.inflater = None
        records = made.records()
        result = PyType_GenericAlloc(self.result, 12)
        put_item(result, 0, records)
        put_item(result, 1, s.asked.start)
        put_item(result, 2, s.found.next - 1)
        put_item(result, 3, s.found.max)
        put_item(result, 4, s.found.max_offset)
        put_item(result, 5, s.asked.now if s.asked.r.append_time else -1)
        put_item(result, 6, s.found.entries)
        put_item(result, 7, s.found.valid)
        put_item(result, 8, False)
        put_item(result, 9, s.found.source)
        put_item(result, 10, s.target)
        put_item(result, 11, s.found.next)
        return result


@cython.final
@cython.freelist(2)
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
        free(self.s.refused.bad)

    cdef HeldBuffer take(self, Appender rules, buf, int64_t offset, int64_t now, int32_t epoch):
        """Room for a copy of the buffer; the buffer itself is given back."""
        cdef HeldBuffer source = held_buffer(buf)
        self.rules = rules
        self.n = source.view.len
        self.s.asked.r = rules.rules
        self.s.asked.start = self.s.found.next = offset
        self.s.asked.now = now
        self.s.asked.epoch = epoch
        self.s.record = -1
        self.made = PyBytes_AllocateUninitialised(NULL, self.n)
        self.p = <uint8_t*> PyBytes_AS_STRING(<object> self.made)
        return source

    cdef object records(self):
        """The copy, given away."""
        cdef object data
        if self.made == NULL:
            raise ValueError("the bytes were given away before")
        if self.n < PyBytes_GET_SIZE(<object> self.made):
            _PyBytes_Resize(&self.made, self.n)
        data = <object> self.made
        Py_DECREF(data)
        self.made = NULL
        return data

    def analyse(self, bint leader):
        """The shallow walk: whether it went through. The set ends behind its last whole entry then."""
        cdef int status
        with nogil:
            status = kts_analyse(&self.s, self.p, self.n, leader)
        if status == KTS_OK:
            self.n = self.s.found.valid
        return status == KTS_OK

    def choose(self, int source, int target):
        """Take these codecs instead of those that the analysis would find, and append uncompressed sets in place.

        Returns whether the set is done with, or refused.
        """
        cdef int status
        self.s.found.source = source
        self.s.target = target
        if source or target:
            return False
        status = kts_same_magic(&self.s, self.p, self.n)
        if status == KTS_FAILED:
            return True
        self.s.found.same = status
        if status:
            self.in_place()
        return status != 0

    cdef int in_place(self) except -1:
        if kts_begin_in_place(&self.s, self.p, self.n) == KTS_OK and self.walk():
            kts_end_in_place(&self.s)
        return 0

    cdef bint walk(self) except -1:
        """All entries on the path that was begun; whether none was refused."""
        cdef Append* s = &self.s
        cdef int status
        self.payloads = []
        self.inflated = 0
        while True:
            with nogil:
                status = kts_append_entries(s, self.p, self.n, self.p + self.n)
            if status != KTS_INFLATE:
                return status == KTS_OK
            if not self.inflate():
                return False
            with nogil:
                status = kts_append_inflated(s, self.p, self.inflater.out, self.inflater.out_size)
            if status != KTS_OK:
                return False

    cdef bint inflate(self) except -1:
        cdef Seen m
        if self.inflater is None:
            self.inflater = self.rules.inflater()
        elif self.payloads and self.payloads[len(self.payloads) - 1] is None:
            self.payloads[len(self.payloads) - 1] = self.payload()
        if kts_is_batch(&self.s, self.p + self.s.at):
            kts_see_outer(&self.s, &m.e, self.p + self.s.at, self.s.size)
        else:
            kts_see_message(&self.s, &m, self.p + self.s.at, self.s.size, NULL)
            kts_message_fields(&m)             # they were found to fit; bytes behind the value do not matter here
            m.e.magic = 0 if m.e.magic == 0 else 1
        try:
            self.inflater.run(&m.e, self.rules.limit - self.inflated)
            self.inflated += self.inflater.out_size
        except DecompressionLimitError:
            raise
        except CorruptRecordError as error:
            self.failure = error
            kts_refuse(&self.s, KTS_PAYLOAD, m.e.codec, 0)
            return False
        self.payloads.append(None)
        return True

    cdef bytes payload(self):
        """What was decompressed last."""
        return self.inflater.bytes()

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
        if s.found.source == 0 and s.target == 0:
            return False if self.convertible() else None
        if kts_begin_deep(s, self.p, self.n) or not self.walk():
            return None
        if s.asked.r.old and not s.asked.r.shipped and s.found.batches > 1:
            s.found.in_place = 0                     # 0.10.2 would give offsets to the first wrapper only
        if s.found.in_place:
            return True if kts_end_deep_in_place(s, self.p, self.n) == 0 else None
        s.at = 0
        s.record = -1
        if s.found.number == 0 and (s.asked.r.old or (s.asked.r.append_time and (s.target or s.asked.r.magic == 2))):
            kts_refuse(s, KTS_NOTHING, 0, 0)
            return None
        if s.found.skipped:
            kts_refuse(s, KTS_SKIPPED, 0, 0)
            return None
        return False

    cdef bint convertible(self) except -1:
        cdef Append* s = &self.s
        kts_begin(s, KTS_READ)
        if not self.walk():
            return False
        if s.asked.r.old:
            if s.found.number < 0:
                s.at = 0
                kts_refuse(s, KTS_NOTHING, s.found.number, 0)
                return False
        elif kts_first_batch(s, self.p, self.n, 0):
            return False
        elif self.p[KTS_MAGIC_AT] == 2 and self.p[KTS_BATCH_FLAGS_AT] & KTS_TRANSACTIONAL and s.asked.r.magic < 2:
            kts_refuse(s, KTS_WRITER_TRANSACTION, s.asked.r.magic, 0)
            return False
        kts_begin(s, KTS_CONVERT)
        return self.walk()

    def writable(self):
        """Whether what was looked at can be written anew; the offset counter moves as Kafka's does."""
        cdef Append* s = &self.s
        cdef int64_t producer
        cdef int32_t sequence
        s.at = 0
        s.record = -1
        if not kts_carries(s.asked.r.magic, s.target) and s.unwritable_why != KTS_BAD_FIELDS:
            return kts_refuse(s, KTS_CODEC_FORMAT, s.target, s.asked.r.magic) == KTS_OK
        if s.unwritable >= 0:
            s.record = s.unwritable
            if s.unwritable_why != KTS_BAD_FIELDS:
                s.found.next = s.asked.start + s.unwritable + 1
            return kts_refuse(s, s.unwritable_why, s.unwritable_time, s.asked.r.magic) == KTS_OK
        s.found.next = s.asked.start + s.found.number
        if s.asked.r.old or self.p[KTS_MAGIC_AT] != 2:
            return True
        producer = kts_i64(self.p + KTS_BATCH_PRODUCER_AT)
        if producer == -1 and self.p[KTS_BATCH_FLAGS_AT] & KTS_TRANSACTIONAL:
            return kts_refuse(s, KTS_PRODUCER_STATE, producer, 0) == KTS_OK
        sequence = kts_i32(self.p + KTS_BATCH_SEQUENCE_AT)
        if producer != -1 and (s.asked.r.magic < 2 or sequence < 0 or
                               <int16_t> kts_be16(self.p + KTS_BATCH_PRODUCER_EPOCH_AT) == -1):
            return kts_refuse(s, KTS_PRODUCER_STATE, producer, sequence) == KTS_OK
        return True

    def messages(self, int magic, int64_t base, bint keep, bint stamp, bint append_time, bint own_type):
        """All records as uncompressed messages of one magic: (bytes, greatest time, offset of it).

        Offsets are written relative to ``base``; the others are fields of ``kts_writer`` in ``append.h``.
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
        room += 4 * room if self.p[KTS_MAGIC_AT] == 2 and not s.asked.r.old else 8 * (room // 26 + 1)
        made = PyBytes_FromStringAndSize(NULL, room + KTS_SLACK)
        memset(w, 0, sizeof(Writer))
        w.prefix = 1
        w.out = <uint8_t*> PyBytes_AS_STRING(made)
        w.offset = s.asked.start
        w.base = base
        w.magic = magic
        w.keep = keep
        w.stamp = stamp
        w.append_time = append_time
        w.own_type = own_type
        w.now = s.asked.now
        w.top = s.asked.r.none
        w.top_offset = -1
        i = 0
        while True:
            with nogil:
                while kts_append_size(s, self.p + at, self.n - at, &size) == KTS_OK:
                    e = self.p + at
                    if kts_codec_of(s, e) and not (s.asked.r.old and s.path == KTS_CONVERT):
                        break
                    kts_rewrite_entry(s, w, e, size)
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
                kts_rewrite_inflated(s, w, e, size, p, n)
            at += size

    def recompressed(self, int attributes, int64_t max_timestamp, compress):
        """The one record batch of the set with the same records, compressed by ``compress`` or, with None, not at all;
        None where they are not what a writer would make of them."""
        cdef const uint8_t* p = self.p + KTS_BATCH_HEADER
        cdef int64_t n = self.n - KTS_BATCH_HEADER
        if self.payloads:
            p = self.inflater.out
            n = self.inflater.out_size
        if not kts_as_written(p, n, self.s.found.number):
            return None
        return self.batched(p, n, kts_i64(self.p + KTS_BATCH_BASE_TIME_AT), attributes, max_timestamp, compress)

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
        cdef int64_t size
        cdef uint8_t* to
        if compress is not None:
            packed = compress(PyMemoryView_FromMemory(<char*> p, n, PyBUF_READ))
            p = <const uint8_t*> PyBytes_AS_STRING(packed)
            n = PyBytes_GET_SIZE(packed)
        size = KTS_BATCH_HEADER + n
        if size > KTS_LARGEST_ENTRY:
            raise ValueError(f"the {n} bytes of the records do not fit a batch")
        made = PyBytes_FromStringAndSize(NULL, size)
        to = <uint8_t*> PyBytes_AS_STRING(made)
        memcpy(to + KTS_BATCH_HEADER, p, <size_t> n)
        h.attributes = <int16_t> attributes
        h.offset = self.s.asked.start
        h.last_offset_delta = <int32_t> (self.s.found.number - 1)
        h.base_timestamp = base_timestamp
        h.max_timestamp = max_timestamp
        h.leader_epoch = self.s.asked.epoch
        _, _, h.producer_id, h.producer_epoch, h.base_sequence = self.producer()
        kts_put_batch(to, size, &h, <int32_t> self.s.found.number)
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
        made = PyBytes_FromStringAndSize(<char*> self.p, KTS_BATCH_HEADER) + (self.payloads[0] or self.payload())
        p = <uint8_t*> PyBytes_AS_STRING(made)
        kts_put32(p + KTS_SIZE_AT, <uint32_t> (PyBytes_GET_SIZE(made) - KTS_OVERHEAD))
        p[KTS_BATCH_FLAGS_AT] &= <uint8_t> ~KTS_CODEC_MASK
        self.release()
        return made

    def kept(self):
        """The bytes where they were kept in place; the set is empty afterwards."""
        return self.records()

    def facts(self):
        """(entries, source codec, target codec, first offset, first or last offset of the first entry, last offset,
        max timestamp, offset of it, valid bytes, offsets rise), as the shallow walk found them."""
        cdef Append* s = &self.s
        cdef int target = s.found.source if self.rules.target < 0 else self.rules.target
        return (s.found.entries, s.found.source, target, s.found.first, s.found.first_or_last, s.found.last, s.found.top,
                s.found.top_offset, s.found.valid, s.found.monotonic != 0)

    def result(self):
        """(start, next offset, max timestamp, offset of it, log append time or -1), as the deep walk found them."""
        cdef Append* s = &self.s
        return (s.asked.start, s.found.next, s.found.max, s.found.max_offset,
                s.asked.now if s.asked.r.append_time else -1)

    def producer(self):
        """(magic, attributes, producer id, producer epoch, base sequence) of the first entry; -1 below magic 2."""
        cdef const uint8_t* p = self.p
        if p[KTS_MAGIC_AT] != 2 or self.s.asked.r.old:
            return p[KTS_MAGIC_AT], p[KTS_MESSAGE_ATTRIBUTES_AT], -1, -1, -1
        return (2, p[KTS_BATCH_FLAGS_AT], kts_i64(p + KTS_BATCH_PRODUCER_AT),
                <int16_t> kts_be16(p + KTS_BATCH_PRODUCER_EPOCH_AT), kts_i32(p + KTS_BATCH_SEQUENCE_AT))

    def refusal(self):
        """None, or (reason, position, offset, record, two numbers, records refused by policy, what decompression said)."""
        cdef Refused* r = &self.s.refused
        cdef int64_t i
        if r.reason == KTS_FINE:
            return None
        if r.reason == KTS_NO_MEMORY:
            raise MemoryError()
        self.release()
        bad = [(r.bad[i].record, r.bad[i].time, kts_reasons[r.bad[i].wrong].decode()) for i in range(r.bads)]
        return kts_reasons[r.reason].decode(), r.position, r.offset, r.record, r.a, r.b, bad, self.failure


def inflate(payload, int codec, int64_t max_decompressed_bytes):
    """A payload of gzip, snappy or lz4 decompressed, framed as in magic 1; for messages of other layouts."""
    cdef HeldBuffer source = held_buffer(payload)
    cdef Inflater inflater = Inflater.__new__(Inflater)
    cdef CEntry e
    e.magic = 1
    e.codec = codec
    e.count = -1
    e.payload = <const uint8_t*> source.view.buf
    e.payload_size = source.view.len
    inflater.run(&e, max_decompressed_bytes)
    return inflater.bytes()


def message(int magic, int attributes, int64_t offset, int64_t timestamp, bytes value not None):
    """One message of magic 0 or 1 without a key."""
    cdef Sink sink
    cdef String key, body
    cdef bytes made
    null_string(&key)
    string_of(value, &body)
    sink.end = 0
    sink.cap = KTS_OVERHEAD + KTS_V1_LEAST + KTS_SLACK + body.n
    made = PyBytes_FromStringAndSize(NULL, sink.cap)
    sink.p = <uint8_t*> PyBytes_AS_STRING(made)
    if kts_write_message(&sink, magic, attributes, offset, timestamp, &key, &body) != KTS_OK:
        raise ValueError(f"value: {body.n} bytes do not fit a message")
    return made[:sink.end]


# --- the cleaner ----------------------------------------------------------------------------------------

SLOT_BYTES = KTS_SLOT_BYTES   # of an offset map
CLEANED_FIELDS = (
    "mapped_records", "records_read", "records_written", "bytes_read", "bytes_written", "without_key", "superseded",
    "tombstones", "aborted", "markers", "kept_tombstones", "kept_markers", "unmapped", "rewritten", "emptied",
)


@cython.final
cdef class LatestOffsets:
    """The last offset of each key: a cleaner's offset map, filled with columns.

    Parameters
    ----------
    keys : int
        Most keys in it.
    secret : bytes
        16 random bytes, of the hash of the keys.
    """

    cdef OffsetMap map

    def __cinit__(self, int64_t keys, bytes secret not None):
        if not 0 < keys <= INT32_MAX // 2 or PyBytes_GET_SIZE(secret) != 16:
            raise ValueError(f"keys: expected 1 to 2^30-1, found {keys}")
        if kts_map_begin(&self.map, 2 * keys, keys, <const uint8_t*> PyBytes_AS_STRING(secret)):
            raise MemoryError()

    def __dealloc__(self):
        kts_map_free(&self.map)

    def __len__(self):
        return self.map.keys

    def hashes(self, ends, data):
        """The hashes of keys, 16 bytes each.

        Parameters
        ----------
        ends : buffer of int32
            Where each key ends in ``data``, behind where the first begins, as in Arrow.
        """
        cdef HeldBuffer places = held_buffer(ends), source = held_buffer(data)
        cdef const int32_t* at = <const int32_t*> places.view.buf
        cdef const uint8_t* p = <const uint8_t*> source.view.buf
        cdef int64_t count = places.view.len // sizeof(int32_t) - 1, i
        cdef bytes found = PyBytes_FromStringAndSize(NULL, max(count, 0) * sizeof(KeyHash))
        cdef KeyHash* out = <KeyHash*> PyBytes_AS_STRING(found)
        for i in range(count):
            if not 0 <= at[i] <= at[i + 1] <= source.view.len:
                raise ValueError(f"ends: expected rising places in {source.view.len} bytes, found {at[i]}, {at[i + 1]}")
        with nogil:
            for i in range(count):
                kts_hash_of(self.map.secret, p + at[i], at[i + 1] - at[i], out + i)
        return found

    def put(self, hashes, offsets):
        """Set the offsets (int64) of hashes; returns how many, fewer than were given if the map is full."""
        cdef HeldBuffer keys = held_buffer(hashes), values = held_buffer(offsets)
        cdef const KeyHash* hash = <const KeyHash*> keys.view.buf
        cdef const int64_t* offset = <const int64_t*> values.view.buf
        cdef int64_t count = values.view.len // sizeof(int64_t), i = 0
        cdef int status = KTS_OK
        if keys.view.len // <Py_ssize_t> sizeof(KeyHash) != count:
            raise ValueError(f"offsets: expected {keys.view.len // sizeof(KeyHash)}, one for each hash, found {count}")
        with nogil:
            while i < count and status == KTS_OK:
                status = kts_map_put(&self.map, hash + i, offset[i])
                i += status == KTS_OK
        if status == KTS_FAILED:
            raise MemoryError()
        return i

    def entries(self):
        """The hashes of all keys, and their offsets (int64), in one order."""
        cdef bytes keys = PyBytes_FromStringAndSize(NULL, self.map.keys * sizeof(KeyHash))
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, self.map.keys * sizeof(int64_t))
        cdef KeyHash* hash = <KeyHash*> PyBytes_AS_STRING(keys)
        cdef int64_t* offset = <int64_t*> PyBytes_AS_STRING(offsets)
        cdef int64_t i, at = 0
        with nogil:
            for i in range(self.map.count):
                if self.map.slots[i].next:
                    hash[at] = self.map.slots[i].hash
                    offset[at] = self.map.slots[i].next - 1
                    at += 1
        return keys, offsets


cdef class Cleaner:
    """One pass of the cleaner over a log: entries into its offset map, then entries without the records that may go.

    Parameters
    ----------
    slots, keys : int
        Most slots of the map, and most keys in it.
    secret : bytes
        16 random bytes, of the hash of the keys.
    start : int
        Records below this offset are not mapped.
    now, retention : int
        The clock, and ``delete.retention.ms``.
    end : int
        The pass ends before this offset.
    verify : bool
        Check the CRCs of what is read.
    keep_last : bool
        Copy the last message of magic 0 or 1 if none of its records stays; otherwise the pass fails there, as Kafka's.
    none : int, optional
        Times before 1970 count, and this one means none.

    Notes
    -----
    Use it in one thread. The caller gives it buffers that begin with an entry, and enlarges one that has no whole entry.
    """

    cdef Cleaning c
    cdef Inflater inflater
    cdef int64_t limit
    cdef dict compressors

    def __cinit__(self, *, int64_t slots, int64_t keys, bytes secret not None, int64_t start, int64_t now,
                  int64_t retention, int64_t end, bint verify, bint keep_last, none, int64_t max_decompressed_bytes):
        if not 0 < keys <= slots <= INT32_MAX or PyBytes_GET_SIZE(secret) != 16:
            raise ValueError(f"slots: expected 1 to 2^31-1 and no more keys, found {slots} for {keys} keys")
        self.inflater = Inflater.__new__(Inflater)
        self.limit = max_decompressed_bytes
        self.compressors = {}
        self.c.start = start
        self.c.now = now
        self.c.retention = retention
        self.c.end = end
        self.c.verify = verify
        self.c.keep_last = keep_last
        self.c.negative = none is not None
        self.c.none = -1 if none is None else none
        if kts_map_begin(&self.c.map, slots, keys, <const uint8_t*> PyBytes_AS_STRING(secret)):
            raise MemoryError()

    def __dealloc__(self):
        kts_cleaning_free(&self.c)

    @property
    def keys(self):
        """Keys in the map."""
        return self.c.map.keys

    @property
    def map_bytes(self):
        """Memory of the map."""
        return self.c.map.count * KTS_SLOT_BYTES

    @property
    def latest(self):
        """The last offset that was mapped; -1 if there is none."""
        return self.c.map.latest

    @latest.setter
    def latest(self, int64_t offset):
        self.c.map.latest = offset

    def counts(self):
        """What was read and written so far, by the names of ``CLEANED_FIELDS``."""
        return dict(zip(CLEANED_FIELDS, (
            self.c.done.mapped_records, self.c.done.records_read, self.c.done.records_written, self.c.done.bytes_read,
            self.c.done.bytes_written, self.c.done.without_key, self.c.done.superseded, self.c.done.tombstones,
            self.c.done.aborted, self.c.done.markers, self.c.done.kept_tombstones, self.c.done.kept_markers,
            self.c.done.unmapped, self.c.done.rewritten, self.c.done.emptied,
        )))

    def begin(self):
        """Forget all transactions and producers: a walk begins at the first entry."""
        kts_forget_producers(&self.c.producers)

    def add_aborted(self, transactions):
        """Take aborted transactions, (producer id, first, last, last stable offset); they may be known."""
        cdef int64_t count = len(transactions), i = 0
        cdef Aborted* found = <Aborted*> calloc(<size_t> max(count, 1), sizeof(Aborted))
        cdef Aborted* one
        cdef int status
        if found == NULL:
            raise MemoryError()
        try:
            for one_of in transactions:
                one = found + i
                one.producer, one.first, one.last, one.stable = one_of
                if one.producer < 0:
                    raise ValueError(f"transactions: expected producer ids of 0 or more, found {one.producer}")
                i += 1
            with nogil:
                status = kts_add_aborted(&self.c.producers, found, count)
            if status:
                raise MemoryError()
        finally:
            free(found)

    def know_producers(self, producers):
        """Take the producers that the log knows now, (id, epoch, offset of the last record or -1)."""
        kts_no_active_producers(&self.c.producers)
        for number, epoch, last in producers:
            if number >= 0 and kts_add_active_producer(&self.c.producers, number, epoch, last):
                raise MemoryError()

    def keep_deletes(self, bint kept):
        """Whether tombstones of magic 0 and 1 stay."""
        self.c.keep_deletes = kept

    def map(self, buf):
        """Put the keys of entries into the map: (bytes of the entries that are done, whether the map is full).

        Raises
        ------
        CorruptRecordError, DecompressionLimitError
        """
        cdef int64_t at = 0
        cdef int status = self.walk(buf, True, &at)
        return at, status == KTS_FULL

    def filter(self, buf):
        """Write entries without the records that may go, for ``take``. Returns the bytes of the entries that are done.

        Raises
        ------
        CorruptRecordError, DecompressionLimitError
        KtsError
            The last message of magic 0 or 1 has no record to keep.
        """
        cdef int64_t at = 0
        self.walk(buf, False, &at)
        return at

    cdef int walk(self, buf, bint mapping, int64_t* at) except -1:
        cdef HeldBuffer source = held_buffer(buf)
        cdef const uint8_t* p = <const uint8_t*> source.view.buf
        cdef int64_t n = source.view.len
        cdef CEntry e
        cdef Err err
        cdef int status = KTS_OK
        while status != KTS_END and status != KTS_FULL:
            with nogil:
                while True:
                    if mapping:
                        status = kts_map_entries(&self.c, p, n, at, &e, &err)
                    else:
                        status = kts_filter_entries(&self.c, p, n, at, &e, &err)
                    if status != KTS_INFLATE or not needs_no_lock(&e, self.limit):
                        break
                    self.inflater.run_free(&e, self.limit, True)
                    status = self.inflated(mapping, &e, at, &err)
                    if status != KTS_OK:
                        break
            if status == KTS_INFLATE:
                self.inflater.run(&e, self.limit)
                with nogil:
                    status = self.inflated(mapping, &e, at, &err)
            if status == KTS_FAILED:
                raise self.failure(&err)
            if status == KTS_STOP:
                self.compress(&e)
        return status

    cdef int inflated(self, bint mapping, const CEntry* e, int64_t* at, Err* err) noexcept nogil:
        if mapping:
            return kts_map_inflated(&self.c, e, self.inflater.out, self.inflater.out_size, at, err)
        return kts_filter_inflated(&self.c, e, self.inflater.out, self.inflater.out_size, at, err)

    cdef object failure(self, Err* err):
        error = error_of(err)
        if err.reason == KTS_EMPTIED:
            return errors.KtsError(error.message, position=error.position, offset=error.offset)
        return error

    cdef int compress(self, const CEntry* e) except -1:
        """Write the entry that was filtered last, with its codec."""
        cdef int status
        cdef bytes packed
        known = self.compressors.get((e.codec, e.magic))
        if known is None:
            known = self.compressors[e.codec, e.magic] = compression.compressor(e.codec, e.magic, None)
        packed = known(PyMemoryView_FromMemory(<char*> self.c.body.p, self.c.body_end, PyBUF_READ))
        status = kts_put_compressed(&self.c, <const uint8_t*> PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        if status == KTS_HUGE:
            raise errors.KtsError(f"the {PyBytes_GET_SIZE(packed)} bytes of the compressed records do not fit an entry",
                                  position=e.position, offset=e.offset)
        if status == KTS_FAILED:
            raise MemoryError()
        return 0

    def take(self):
        """What was written since the last call, as a view that the next ``filter`` makes invalid."""
        size, self.c.out_end = self.c.out_end, 0
        if not size:
            return memoryview(b"")
        return PyMemoryView_FromMemory(<char*> self.c.out.p, size, PyBUF_READ)

    def listed(self):
        """The aborted transactions whose markers were kept since the last call, as for ``add_aborted``."""
        cdef const Aborted* one = <const Aborted*> self.c.listed.p
        cdef int64_t i
        found = [(one[i].producer, one[i].first, one[i].last, one[i].stable) for i in range(self.c.listed_count)]
        self.c.listed_count = 0
        return found
