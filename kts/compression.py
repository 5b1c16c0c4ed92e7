"""Kafka's codecs: their numbers, their libraries, and compression for the encoder.

``_codec`` decompresses within bounds and reads the frames; it gets the libraries' decompressors from here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO

from .arguments import DEFAULT_MAX_DECOMPRESSED_BYTES
from .errors import CorruptRecordError, UnsupportedCompressionTypeError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

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


def codec_id(name: str, magic: int = 2) -> int:
    """Kafka's number of a codec.

    Raises
    ------
    UnsupportedCompressionTypeError
        zstd below magic 2 (KIP-110).
    ValueError
        Not the name of a codec.
    """
    if name not in CODEC_NAMES:
        raise ValueError(f"compression: expected one of {', '.join(CODEC_NAMES)}, found {name!r}")
    codec = CODEC_NAMES.index(name)
    if codec == ZSTD and magic < 2:
        raise UnsupportedCompressionTypeError(f"compression zstd needs magic 2, found magic {magic}")
    return codec


def out_of_memory(error: BaseException) -> bool:
    """Whether a library ran out of memory. lz4 and zstandard say so in words alone, and cramjam panics."""
    return isinstance(error, MemoryError) or type(error).__name__ == "PanicException" or "llocation" in str(error)


def deflate_decompressor() -> Any:
    """A new decompressor of one deflate stream without gzip's header and trailer (``isal``)."""
    from isal import isal_zlib

    return isal_zlib.decompressobj(-15)


def snappy_block_decompressor() -> Callable[..., int]:
    """A function (source, destination) that decompresses one raw snappy block (``cramjam``)."""
    import cramjam

    return cramjam.snappy.decompress_raw_into


def lz4_block_decompressor() -> Callable[[Any, Any, int], int]:
    """A function (source, destination, its size) that decompresses one lz4 block (``cramjam``)."""
    import cramjam

    return cramjam.lz4.decompress_block_into


def isal_addresses() -> tuple[int, ...]:
    """The addresses of ISA-L's ``isal_inflate_init`` and ``isal_inflate_stateless`` in the package ``isal``; none where
    its module does not show them.

    The compiled core calls them for each deflate stream without the interpreter's lock, and without an object for it.
    """
    from isal import isal_zlib

    return _addresses(isal_zlib.__file__, "isal_inflate_init", "isal_inflate_stateless")


def snappy_addresses() -> tuple[int, ...]:
    """The address of ``snappy_uncompress`` in the system's libsnappy, as above; none where that is not installed."""
    return _addresses(LIBSNAPPY, "snappy_uncompress")


def lz4_addresses() -> tuple[int, ...]:
    """The address of liblz4's ``LZ4_decompress_safe`` in the package ``lz4``, as above; none where it is not shown."""
    import lz4.block

    return _addresses(lz4.block._block.__file__, "LZ4_decompress_safe")


def zstd_addresses() -> tuple[int, ...]:
    """The addresses of libzstd's ``ZSTD_createDCtx``, ``ZSTD_freeDCtx``, ``ZSTD_DCtx_reset``,
    ``ZSTD_decompressStream``, ``ZSTD_isError`` and ``ZSTD_getErrorName`` in the package ``zstandard``, as above; none
    where they are not shown.
    """
    found = find_spec("zstandard._cffi")
    names = "createDCtx", "freeDCtx", "DCtx_reset", "decompressStream", "isError", "getErrorName"
    return () if found is None or not found.origin else _addresses(found.origin, *(f"ZSTD_{name}" for name in names))


def _addresses(path: str, *names: str) -> tuple[int, ...]:
    """The addresses of functions of a shared library; none if one is not there."""
    import ctypes

    try:
        library = ctypes.CDLL(path)
        functions = [getattr(library, name) for name in names]
    except (AttributeError, OSError):
        return ()
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)


def zstd_reader() -> Callable[[Any], Any]:
    """A function (source) that opens a stream over all zstd frames of the source; it reuses one context."""
    import zstandard

    context = zstandard.ZstdDecompressor()

    def open_stream(source: Any) -> Any:
        return context.stream_reader(source, read_across_frames=True)

    return open_stream


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


def compressor(codec: int, magic: int, level: int | None) -> Compress:
    """A function that compresses the payload of one batch or wrapper as Kafka's producer frames it.

    Parameters
    ----------
    codec : int
        1 gzip, 2 snappy, 3 lz4, 4 zstd.
    magic : int
        lz4 in magic 0 has the wrong header checksum that old clients expect (KAFKA-3160).
    level : int or None
        The library's level; None is Kafka's default. snappy has no levels.

    Raises
    ------
    ValueError
        The codec does not have this level.
    """
    if codec == GZIP:
        return _gzip(level)
    if codec == SNAPPY:
        if level is not None:
            raise ValueError(f"level: snappy has no levels, found {level}")
        return _snappy
    if codec == LZ4:
        return _lz4(magic, level)
    return _zstd(level)


def _level(level: int | None, default: int, lowest: int, highest: int, name: str) -> int:
    if level is None:
        return default
    if not isinstance(level, int) or not lowest <= level <= highest:
        raise ValueError(f"level: {name} takes {lowest} to {highest}, found {level!r}")
    return level


def _gzip(level: int | None) -> Compress:
    import zlib

    number = _level(level, 6, 1, 9, "gzip")

    def compress(data: bytes | memoryview) -> bytes:
        stream = zlib.compressobj(number, zlib.DEFLATED, 31)
        member = bytearray(stream.compress(data) + stream.flush())
        member[GZIP_OS] = 0xFF
        return bytes(member)

    return compress


def _snappy(data: bytes | memoryview) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_CHUNK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_CHUNK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _lz4(magic: int, level: int | None) -> Compress:
    """Frames of independent 64 KiB blocks. One library call per block is faster than one per frame."""
    number = _level(level, 0, 0, 16, "lz4")
    block_of = _lz4_high_block(number) if number >= LZ4_HIGH_LEVEL else _lz4_block()
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


def _lz4_block() -> Compress:
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


def _zstd(level: int | None) -> Compress:
    import zstandard

    number = _level(level, 3, -131072, 22, "zstd")
    context = zstandard.ZstdCompressor(level=number, write_content_size=False)

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
