"""Kafka's codecs: their numbers, their libraries, and compression for the encoder.

``_codec`` decompresses within bounds and reads the frames; it gets the libraries' decompressors from here.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

from .arguments import DEFAULT_MAX_DECOMPRESSED_BYTES
from .errors import CorruptRecordError, UnsupportedCompressionTypeError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
XERIAL_CHUNK_BYTES = 32 * 1024  # snappy-java's block size in Kafka since 0.11
GZIP_OS = 9  # position of the operating system in a member: 255, unknown, as in Java since 16
LIBSNAPPY = "libsnappy.1.dylib" if sys.platform == "darwin" else "libsnappy.so.1"
LZ4_FRAME_HEAD = b"\x04\x22\x4d\x18\x60\x40"  # version 1, independent blocks of at most 64 KiB, nothing else
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_STORED = 1 << 31  # flag in the size of a block that is stored uncompressed
_WITH_GZIP_HEADER = 31  # window bits of zlib
EXPANDED_BYTES = 2**14  # of a gzip file at a time
ZSTD_PIECE_BYTES = 2**10  # of a zstd file at a time: at most 32 MiB come out, as a block of 4 bytes gives 128 KiB
ZSTD_WINDOW_BYTES = DEFAULT_MAX_DECOMPRESSED_BYTES  # 128 MiB, as in zstd -d
LZ4_HIGH_LEVEL = 3  # from this level on the library uses another algorithm

Compress = Callable[[bytes | memoryview], bytes]


class CompressionLevels(NamedTuple):
    """The levels of a codec's library, and Kafka's default."""

    default: int
    lowest: int
    highest: int


class Codec(NamedTuple):
    """One of Kafka's codecs.

    Parameters
    ----------
    number : int
        In the attributes of an entry; the place in ``CODECS``.
    name : str
        In ``compression.type``.
    magic : int
        The first one whose entries carry the codec. 0.10.2 knows those of magic 0.
    produce, fetch : int
        The first versions of these requests that carry it.
    levels : CompressionLevels or None
        None if the codec has none.
    has_ratio : bool
        A few bytes unpack to at most some thousand times as many.
    compressor : callable
        (level, magic) to a function that compresses one payload as Kafka's producer frames it.
    decompressor : callable
        Opens what the package decompresses with, for the compiled core, which bounds it: of one deflate stream, of one
        block of snappy or lz4, of all zstd frames.
    library : callable
        The path of the shared library that has ``functions``, None where there is none.
    functions : tuple of str
        What the compiled core calls of it instead of ``decompressor``, without the interpreter's lock; at most eight.
    """

    number: int
    name: str
    magic: int = 0
    produce: int = 0
    fetch: int = 0
    levels: CompressionLevels | None = None
    has_ratio: bool = True
    compressor: Callable[[int, int], Compress] = lambda level, magic: bytes
    decompressor: Callable[[], Any] = lambda: None
    library: Callable[[], str | None] = lambda: None
    functions: tuple[str, ...] = ()


def codec_id(name: str, magic: int = 2) -> int:
    """Kafka's number of a codec.

    Raises
    ------
    UnsupportedCompressionTypeError
        The magic does not carry it, as zstd below magic 2 (KIP-110).
    ValueError
        Not the name of a codec.
    """
    if name not in CODEC_NAMES:
        raise ValueError(f"compression: expected one of {', '.join(CODEC_NAMES)}, found {name!r}")
    codec = CODECS[CODEC_NAMES.index(name)]
    if magic < codec.magic:
        raise UnsupportedCompressionTypeError(f"compression {name} needs magic {codec.magic}, found magic {magic}")
    return codec.number


def out_of_memory(error: BaseException) -> bool:
    """Whether a library ran out of memory. lz4 and zstandard say so in words alone, and cramjam panics."""
    return isinstance(error, MemoryError) or type(error).__name__ == "PanicException" or "llocation" in str(error)


def addresses(codec: int) -> tuple[int, ...]:
    """The addresses of a codec's ``functions``; none where its library is missing or does not show one of them."""
    import ctypes

    row = CODECS[codec]
    path = row.library()
    if path is None:
        return ()
    try:
        library = ctypes.CDLL(path)
        functions = [getattr(library, name) for name in row.functions]
    except (AttributeError, OSError):
        return ()
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)


def compressor(codec: int, magic: int, level: int | None) -> Compress:
    """A function that compresses the payload of one batch or wrapper as Kafka's producer frames it.

    Parameters
    ----------
    codec : int
        Its number in ``CODECS``; not 0.
    magic : int
        lz4 in magic 0 has the wrong header checksum that old clients expect (KAFKA-3160).
    level : int or None
        The library's level; None is Kafka's default.

    Raises
    ------
    ValueError
        The codec does not have this level.
    """
    row = CODECS[codec]
    if level is None:
        level = row.levels.default if row.levels else 0
    elif row.levels is None:
        raise ValueError(f"level: {row.name} has no levels, found {level}")
    elif not isinstance(level, int) or not row.levels.lowest <= level <= row.levels.highest:
        raise ValueError(f"level: {row.name} takes {row.levels.lowest} to {row.levels.highest}, found {level!r}")
    return row.compressor(level, magic)


def expanded(codec: str, source: BinaryIO) -> Iterator[bytes]:
    """The content of a whole file that gzip or zstd compressed, of all its members or frames, in pieces.

    Raises
    ------
    CorruptRecordError
        The file is damaged or cut, or a size or checksum in it is wrong; raised after the pieces before.

    Notes
    -----
    Memory is bounded whatever the file claims.
    """
    from isal import isal_zlib
    from zstandard import ZstdError

    faults: Any = isal_zlib.error, ZstdError
    try:
        yield from _expanded_gzip(source) if codec == "gzip" else _expanded_zstd(source)
    except EOFError as error:
        raise CorruptRecordError(f"the {codec} data ends early: the file was cut") from error
    except faults as error:
        raise CorruptRecordError(f"the {codec} data is damaged: {error}") from error


def _expanded_gzip(source: BinaryIO) -> Iterator[bytes]:
    from isal import isal_zlib

    member: Any = None
    while data := source.read(EXPANDED_BYTES):
        while data := data if member else data.lstrip(b"\0"):  # zeros may follow a member, as tapes leave them
            member = member or isal_zlib.decompressobj(_WITH_GZIP_HEADER)
            yield member.decompress(data, EXPANDED_BYTES)
            data = member.unused_data if member.eof else member.unconsumed_tail
            member = None if member.eof else member
    if member is not None:
        raise EOFError


def _expanded_zstd(source: BinaryIO) -> Iterator[bytes]:
    import zstandard

    context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    frame: Any = None
    while data := source.read(ZSTD_PIECE_BYTES):
        while data:
            frame = frame or context.decompressobj()
            yield frame.decompress(data)
            data = frame.unused_data
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError


# --- gzip -----------------------------------------------------------------------------------------


def _isal() -> str:
    from isal import isal_zlib

    return str(isal_zlib.__file__)


def _deflate() -> Any:
    """A decompressor of one deflate stream without gzip's header and trailer."""
    from isal import isal_zlib

    return isal_zlib.decompressobj(-15)


def _gzip(level: int, magic: int) -> Compress:
    import zlib

    def compress(data: bytes | memoryview) -> bytes:
        stream = zlib.compressobj(level, zlib.DEFLATED, 31)
        member = bytearray(stream.compress(data) + stream.flush())
        member[GZIP_OS] = 0xFF
        return bytes(member)

    return compress


# --- snappy ---------------------------------------------------------------------------------------


def _snappy_block() -> Callable[..., int]:
    """A function (source, destination) that decompresses one raw block."""
    import cramjam

    def block(source: memoryview, destination: memoryview) -> int:
        made = cramjam.snappy.decompress_raw(source)
        destination[: len(made)] = made
        return len(made)

    # Without the interpreter's lock, cramjam refuses to write to a memoryview.
    return block if sysconfig.get_config_var("Py_GIL_DISABLED") else cramjam.snappy.decompress_raw_into


def _snappy(level: int, magic: int) -> Compress:
    import cramjam

    def compress(data: bytes | memoryview) -> bytes:
        parts = [XERIAL_HEADER]
        for start in range(0, len(data), XERIAL_CHUNK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_CHUNK_BYTES]))
            parts += (len(block).to_bytes(4, "big"), block)
        return b"".join(parts)

    return compress


# --- lz4 ------------------------------------------------------------------------------------------


def _liblz4() -> str:
    import lz4.block

    return str(lz4.block._block.__file__)


def _lz4_block() -> Callable[[memoryview, memoryview, int], int]:
    """A function (source, destination, its size) that decompresses one block."""
    import lz4.block

    def block(source: memoryview, destination: memoryview, size: int) -> int:
        made = lz4.block.decompress(source, uncompressed_size=size)
        destination[: len(made)] = made
        return len(made)

    return block


def _lz4(level: int, magic: int) -> Compress:
    """Frames of independent 64 KiB blocks. One library call per block is faster than one per frame."""
    block_of = _lz4_high_block(level) if level >= LZ4_HIGH_LEVEL else _lz4_fast_block()
    # FLG 60, BD 40: the checksum is 82, or 1a if the frame's magic number is hashed with them (KAFKA-3160).
    head = LZ4_FRAME_HEAD + (b"\x82" if magic else b"\x1a")

    def compress(data: bytes | memoryview) -> bytes:
        parts: list[bytes | memoryview] = [head]
        for start in range(0, len(data), LZ4_BLOCK_BYTES):
            plain = data[start : start + LZ4_BLOCK_BYTES]
            block = block_of(plain)
            if len(block) < len(plain):
                parts += (len(block).to_bytes(4, "little"), block)
            else:
                parts += ((len(plain) | LZ4_STORED).to_bytes(4, "little"), plain)
        parts.append(bytes(4))
        return b"".join(parts)

    return compress


def _lz4_fast_block() -> Compress:
    """Arrow's lz4 gives the same bytes as Kafka's lz4-java; the package lz4 does not."""
    import pyarrow as pa

    return partial(pa.Codec("lz4_raw").compress, asbytes=True)


def _lz4_high_block(level: int) -> Compress:
    import lz4.block

    def compress(plain: bytes | memoryview) -> bytes:
        try:
            block: bytes = lz4.block.compress(plain, mode="high_compression", compression=level, store_size=False)
        except lz4.block.LZ4BlockError:  # its output always fits, so memory ran out
            raise MemoryError() from None
        return block

    return compress


# --- zstd -----------------------------------------------------------------------------------------


def _libzstd() -> str | None:
    found = find_spec("zstandard._cffi")
    return found.origin if found else None


def _zstd_reader() -> Callable[[Any], Any]:
    """A function (source) that opens a stream over all frames of the source; it reuses one context."""
    import zstandard

    context = zstandard.ZstdDecompressor()

    def open_stream(source: Any) -> Any:
        return context.stream_reader(source, read_across_frames=True)

    return open_stream


def _zstd(level: int, magic: int) -> Compress:
    import zstandard

    context = zstandard.ZstdCompressor(level=level, write_content_size=False)

    def compress(data: bytes | memoryview) -> bytes:
        try:
            frame = context.compressobj()
            # Java flushes its stream before it closes it: this adds an empty last block and leaves out the size.
            parts = frame.compress(data), frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), frame.flush()
        except zstandard.ZstdError as error:
            if out_of_memory(error):
                raise MemoryError() from None
            raise
        return b"".join(parts)

    return compress


# One row for each codec of kts/native/codecs.h.
CODECS = (
    Codec(NONE, "none"),
    Codec(
        GZIP,
        "gzip",
        levels=CompressionLevels(default=6, lowest=1, highest=9),
        compressor=_gzip,
        decompressor=_deflate,
        library=_isal,
        functions=("isal_inflate_init", "isal_inflate_stateless"),
    ),
    Codec(
        SNAPPY,
        "snappy",
        compressor=_snappy,
        decompressor=_snappy_block,
        library=lambda: LIBSNAPPY,
        functions=("snappy_uncompress",),
    ),
    Codec(
        LZ4,
        "lz4",
        levels=CompressionLevels(default=0, lowest=0, highest=16),
        compressor=_lz4,
        decompressor=_lz4_block,
        library=_liblz4,
        functions=("LZ4_decompress_safe",),
    ),
    Codec(
        ZSTD,
        "zstd",
        magic=2,
        produce=7,
        fetch=10,
        has_ratio=False,
        levels=CompressionLevels(default=3, lowest=-131072, highest=22),
        compressor=_zstd,
        decompressor=_zstd_reader,
        library=_libzstd,
        functions=(
            "ZSTD_createDCtx",
            "ZSTD_freeDCtx",
            "ZSTD_DCtx_reset",
            "ZSTD_decompressStream",
            "ZSTD_isError",
            "ZSTD_getErrorName",
        ),
    ),
)
CODEC_NAMES = tuple(codec.name for codec in CODECS)
WITHOUT_RATIO = frozenset(codec.number for codec in CODECS if not codec.has_ratio)
