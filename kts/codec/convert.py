"""Messages and record batches of one magic as those of another, up and down."""

from __future__ import annotations

from typing import Any

from kts._codec import Source
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT64_MAX, INT64_MIN, choice, integer, magic
from kts.codec.conversion import WHOLE, Entries, How, each, one_set
from kts.codec.refusals import as_shipped
from kts.compression import codec_id
from kts.config import GENERATIONS
from kts.errors import CorruptRecordError


def convert(
    buf: Any,
    to_magic: int,
    *,
    generation: str | None = None,
    shipped: bool = False,
    down_only: bool = False,
    first_offset: int = 0,
    compression: str | None = None,
    level: int | None = None,
    batch_bytes: int = 16384,
    lossless: bool = False,
    drop_headers: bool = False,
    allow_negative_timestamps: bool = False,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Convert a buffer of message sets and record batches to one magic; offsets, keys and values stay.

    Parameters
    ----------
    buf : buffer
        As :func:`kts.decode` takes it; a cut tail is left out.
    to_magic : int
        0, 1 or 2.
    generation : str, optional
        "3.9" converts entry by entry and keeps each one's codec and timestamp type. "0.10.2" (magic 0 and 1) makes one
        set of everything, with the codec of the first entry, as its fetches do; without a whole entry the bytes come
        back as they are. None: "0.10.2" as long as there is no magic 2.
    shipped : bool
        Exactly as that Kafka: CRCs are not looked at, entries of a lower magic are left as they are by 3.9, and errors
        have the codes that escaped there.
    down_only : bool
        Leave entries of a lower magic as they are, as fetches do.
    first_offset : int
        Going down, records below it that are not compressed are left out (by 3.9).
    compression : str, optional
        Another codec for all; None keeps each entry's.
    level : int, optional
        Of the codec; None is Kafka's default.
    batch_bytes : int
        About how many bytes of uncompressed messages become one batch or wrapper.
    lossless : bool
        Refuse what the target cannot carry (headers, transactions, control batches) instead of leaving it out.
    drop_headers : bool
        Leave out headers all the same.
    allow_negative_timestamps : bool
        Convert times before 1970 instead of refusing them; -1 is none in any case.
    verify_crc : bool
        Check the CRCs of what is converted.
    max_decompressed_bytes : int
        Bound of each batch.

    Returns
    -------
    bytes

    Raises
    ------
    CorruptRecordError
        Damage, with position, offset and record index where known.
    UnsupportedCompressionTypeError
        zstd below magic 2.
    UnsupportedForMessageFormatError
        What ``lossless`` refuses.
    KtsError
        A negative timestamp, code -1 as in Kafka.

    Notes
    -----
    Source: AbstractRecords.toMessageFormat of 0.10.2, RecordsUtil.downConvert of 3.9, LogValidator for the way up;
    KIP-31, KIP-32.
    """
    magic("to_magic", to_magic)
    if generation is not None:
        choice("generation", generation, GENERATIONS)
    codec = None if compression is None else codec_id(compression, to_magic)
    batch_bytes = integer("batch_bytes", batch_bytes, 1, WHOLE)
    first_offset = integer("first_offset", first_offset, INT64_MIN, INT64_MAX)
    how = How(
        to_magic,
        shipped,
        down_only or shipped,
        first_offset,
        codec,
        level,
        batch_bytes,
        lossless,
        drop_headers,
        allow_negative_timestamps,
        verify_crc and not shipped,
        max_decompressed_bytes,
    )
    Source(buf)  # says it where that is no buffer
    data = memoryview(buf).cast("B") if memoryview(buf).nbytes else memoryview(b"")
    entries = Entries(data)
    if generation is None:
        generation = "3.9" if to_magic == 2 or (entries.magic == 2).any() else "0.10.2"
    if generation == "0.10.2" and to_magic == 2:
        raise ValueError("to_magic: 0.10.2 knows 0 and 1, found 2")
    try:
        return (each if generation == "3.9" else one_set)(data, entries, how)
    except CorruptRecordError as error:
        if shipped:
            raise as_shipped(error, generation) from error
        raise
