"""The records of one partition in a Produce request: their headers, read once, and the checks on them.

Source: ProduceRequest.validateRecords, LogValidator (3.9).
"""

from __future__ import annotations

from kts.behaviour import DEFAULT
from kts.codec.convert import convert
from kts.codec.layout import Entries
from kts.codec.validate import PRODUCER, target_codec
from kts.compression import CODECS, NONE, WITHOUT_RATIO
from kts.config import LogConfig
from kts.errors import InvalidRecordError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError

# Larger sets are appended in a thread. The ratio of zstd has no useful bound.
PLAIN_BYTES, COMPRESSED_BYTES = 128 * 1024, 4 * 1024
UNREADABLE = frozenset(("BAD_SIZE", "BAD_MAGIC", "PROPOSED_MAGIC"))  # Kafka cannot even iterate over such entries


class ProducedRecords:
    """Records as a producer sent them, and the headers of their entries.

    Parameters
    ----------
    records : memoryview

    Attributes
    ----------
    first : Entry or None
        The first whole entry, if there is one.
    """

    __slots__ = ("_entries", "first", "records")

    def __init__(self, records: memoryview) -> None:
        self.records = records
        self._entries = Entries(records, until_damage=True)
        self.first = self._entries[0] if len(self._entries) else None

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole entry, and no damage. Kafka accepts this up to Produce 2, and writes nothing."""
        return self.first is None and self._entries.error is None

    @property
    def is_transactional(self) -> bool:
        """Whether the first entry belongs to a transaction."""
        return self.first is not None and self.first.transactional

    @property
    def max_timestamp(self) -> int | None:
        """The max timestamp in the header of the first entry, in ms; None where it has none."""
        return None if self.first is None or self.first.magic == 0 else self.first.max_timestamp

    def check_readable(self, position: int = 0) -> None:
        """Check the size and magic of the entry at a position, by default the first.

        Raises
        ------
        CorruptRecordError
            No entry has such a size or magic.
        """
        error = self._entries.error
        if error is not None and position == self._entries.end and error.reason in UNREADABLE:
            raise error

    def check_one_batch(self, version: int) -> None:
        """Check the rules of Produce 3 and later: exactly one batch of magic 2, of a codec that the version carries.

        Raises
        ------
        InvalidRecordError, UnsupportedCompressionTypeError, CorruptRecordError
        """
        if version < 3:
            return
        first = self.first
        if first is None:
            self.check_readable()
            raise InvalidRecordError(f"Produce {version}: expected one record batch, found no whole one")
        if first.magic != 2:
            raise InvalidRecordError(f"Produce {version}: expected magic 2, found {first.magic}")
        if first.codec < len(CODECS) and version < CODECS[first.codec].produce:
            *others, last = (codec.name for codec in CODECS if codec.produce <= version)
            expected, found = f"{', '.join(others)} or {last}", CODECS[first.codec].name
            raise UnsupportedCompressionTypeError(f"Produce {version}: expected {expected}, found {found}")
        if len(self._entries) == 1:
            self.check_readable(first.size)
        if len(self._entries) > 1 or self._entries.error is not None:
            raise InvalidRecordError(f"Produce {version}: expected one record batch, found more")

    def in_topic_format(self, config: LogConfig) -> memoryview | bytes:
        """The records for the log: batches of magic 2 are converted for a topic of an older message format.

        Raises
        ------
        UnsupportedForMessageFormatError
            The format has no headers, idempotent or transactional producers, or control batches.
        UnsupportedCompressionTypeError
            The format does not carry the codec.

        Notes
        -----
        The log of such a topic may follow a release that does not know magic 2. Kafka 0.11 and later convert.
        """
        if self.first is None or self.first.magic != 2 or config.behaviour().greatest_magic == 2:
            return self.records
        if self.first.producer_id >= 0:
            message = f"message format {config.message_format_version} has no idempotent or transactional producers"
            raise UnsupportedForMessageFormatError(message)
        return convert(self.records, config.magic, generation=DEFAULT.release, lossless=True)

    def needs_thread(self, config: LogConfig) -> bool:
        """Whether to append in a thread: there is much to read or decompress, or something to compress."""
        if self.first is None:
            return False
        codec, target = self.first.codec, target_codec(config.compression_type)
        if codec == NONE and target in (PRODUCER, codec):
            return len(self.records) > PLAIN_BYTES
        return len(self.records) > COMPRESSED_BYTES or bool(WITHOUT_RATIO & {codec, target})
