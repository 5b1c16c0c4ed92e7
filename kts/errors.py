"""All errors that kts raises, with Kafka's error codes, its warning, and the reasons for which bytes are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .behaviour import Behaviour

__all__ = [
    "CorruptIndexError",
    "CorruptRecordError",
    "DamageWarning",
    "DecompressionLimitError",
    "IndexFullError",
    "InvalidOffsetError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "KtsError",
    "KtsWarning",
    "LogClosedError",
    "LogLockedError",
    "LogStorageError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "RecordBatchTooLargeError",
    "RecordTooLargeError",
    "TransactionCoordinatorFencedError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedVersionError",
]


class KtsError(Exception):
    """Base of all errors raised by kts.

    Parameters
    ----------
    message : str
        What was expected, what was found.
    path : str, optional
        File or directory the error was found in.
    position : int, optional
        Byte position in the buffer or file.
    offset : int, optional
        Kafka offset of the record, message or batch.
    record_index : int, optional
        Index of the record inside its batch or wrapper message, from 0.

    Notes
    -----
    ``code`` is the number of Kafka's ``Errors`` enum; -1 (UNKNOWN_SERVER_ERROR) where Kafka has none. ``reason`` is a
    name of ``REASONS`` for damaged or refused bytes, None for everything else.
    """

    code: int = -1
    reason: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
        record_index: int | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.position = position
        self.offset = offset
        self.record_index = record_index
        self.__dict__.update(details)

    def __str__(self) -> str:
        where = []
        if self.position is not None:
            where.append(f"at position {self.position}")
        if self.path is not None:
            where.append(f"of {self.path}" if where else f"in {self.path}")
        return f"{self.message}, {' '.join(where)}" if where else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[KtsError], message: str, state: dict[str, Any]) -> KtsError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class KtsWarning(UserWarning):
    """A reader left something out, or a log mended an index.

    Parameters
    ----------
    message : str
        What was found, and what was done.
    path : str, optional
        File or directory it was found in.
    """

    def __init__(self, message: str = "", path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class DamageWarning(KtsWarning):
    """A reader with ``on_error="skip"`` left damaged data out."""


# --- found in bytes -------------------------------------------------------------------------------


class CorruptRecordError(KtsError):
    """CRC, size, magic, truncation, varint or compressed data is wrong (CORRUPT_MESSAGE)."""

    code = 2


class DecompressionLimitError(CorruptRecordError):
    """Decompressed data would exceed the bound; the message names the setting."""


class CorruptIndexError(KtsError):
    """An index file contradicts itself or its log. It has no wire code: the index is rebuilt."""


class InvalidOffsetError(KtsError):
    """An offset is out of order, or does not fit its segment. It has no wire code."""


class IndexFullError(KtsError):
    """An index is full; the log rolls before that. It has no wire code."""


# --- refused by policy ----------------------------------------------------------------------------


class InvalidRecordError(KtsError):
    """Well formed but refused by policy (INVALID_RECORD); ``record_errors`` lists (index, reason)."""

    code = 87
    record_errors: tuple[tuple[int, str], ...] = ()


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is out of the accepted range, or of a type that a producer may not set."""

    code = 32


class RecordTooLargeError(KtsError):
    """An entry is larger than ``max.message.bytes`` (MESSAGE_TOO_LARGE)."""

    code = 10


class RecordBatchTooLargeError(KtsError):
    """A set is larger than ``segment.bytes`` (RECORD_LIST_TOO_LARGE)."""

    code = 18


class OffsetOutOfRangeError(KtsError):
    """An offset lies outside [log start offset, log end offset]."""

    code = 1


class UnsupportedCompressionTypeError(KtsError):
    """The codec is unknown, or not allowed in this magic."""

    code = 76


class UnsupportedForMessageFormatError(KtsError):
    """The magic does not support what was asked for (headers, transactions, timestamps)."""

    code = 43


class OutOfOrderSequenceError(KtsError):
    """A producer's batch does not continue its last sequence (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    code = 45


class InvalidProducerEpochError(KtsError):
    """A producer's epoch is older than the log's newest epoch of that producer."""

    code = 47


class InvalidTxnStateError(KtsError):
    """A batch does not fit the producer's open transaction."""

    code = 48


class TransactionCoordinatorFencedError(KtsError):
    """A transaction marker from a coordinator that was replaced."""

    code = 52


# --- refused requests -----------------------------------------------------------------------------


class UnknownTopicOrPartitionError(KtsError):
    """No such topic or partition in the directory or on the broker."""

    code = 3


class InvalidTopicError(KtsError):
    """Not a legal topic name."""

    code = 17


class InvalidRequestError(KtsError):
    """The request contradicts itself."""

    code = 42


class UnsupportedVersionError(KtsError):
    """The API version is not served."""

    code = 35


class NotLeaderError(KtsError):
    """This node is not the partition's leader."""

    code = 6


# --- the disk -------------------------------------------------------------------------------------


class LogStorageError(KtsError):
    """Reading or writing a log failed (KAFKA_STORAGE_ERROR); ``errno`` is the operating system's."""

    code = 56
    errno: int | None = None


class LogClosedError(KtsError):
    """The log is closed."""


class LogLockedError(KtsError):
    """Another writer holds the log directory."""


# --- why bytes are damaged or a set of records is refused -----------------------------------------


class Raises(NamedTuple):
    """The errors for one reason. None in ``kafka_0_10`` stands for ``kafka``, in the others for ``error``.

    Attributes
    ----------
    error, error_0_10 : type
        What kts raises by the rules of 3.9 and of 0.10.2.
    kafka, kafka_0_10 : type, optional
        What Kafka 3.9.2 and 0.10.2.2 answer; KtsError is UNKNOWN_SERVER_ERROR (-1).
    """

    error: type[KtsError]
    error_0_10: type[KtsError] | None = None
    kafka: type[KtsError] | None = None
    kafka_0_10: type[KtsError] | None = None

    def by(self, behaviour: Behaviour) -> type[KtsError]:
        """The error by the rules of a release, or exactly as that release answers."""
        own = (self.error, self.kafka) if behaviour.checks_by_batch else (self.error_0_10, self.kafka_0_10)
        if not behaviour.released_codes:
            return own[0] or self.error
        return own[1] or self.kafka or self.error


class Reason(NamedTuple):
    """The words of an error, its class when bytes are read, and its class when a set is appended."""

    words: str
    read: Raises | None
    append: Raises | None


_CORRUPT = Raises(CorruptRecordError)
_INVALID = Raises(InvalidRecordError)
_UNKNOWN = Raises(KtsError)
_UNSUPPORTED = Raises(UnsupportedForMessageFormatError)
_TIMESTAMP = Raises(InvalidTimestampError)
_READ_UNKNOWN = Raises(CorruptRecordError, kafka=KtsError)  # exceptions of Java's buffers and streams
_READ_UNKNOWN_0_10 = Raises(CorruptRecordError, kafka_0_10=KtsError)
_READ_UNKNOWN_3_9 = Raises(CorruptRecordError, kafka=KtsError, kafka_0_10=CorruptRecordError)
_NO_INNER = Raises(InvalidRecordError, error_0_10=CorruptRecordError, kafka_0_10=KtsError)

# One row for each member of ``enum kts_reason`` (``kts._codec.REASONS``).
REASONS = {
    # entries
    "BAD_SIZE": Reason("size {a} is below the smallest message (14 bytes)", _CORRUPT, _CORRUPT),
    "SIZE_OVERFLOW": Reason(
        "size {a} exceeds the largest entry Kafka can hold (2147483635 bytes)", _READ_UNKNOWN, _UNKNOWN
    ),
    "BAD_MAGIC": Reason("magic {a} is unknown, expected 0 to {b}", _CORRUPT, _CORRUPT),
    "PROPOSED_MAGIC": Reason(
        "magic {a} is KIP-32's option {b}, which only kts.proposals.options reads", _CORRUPT, _CORRUPT
    ),
    "SHORT_BATCH": Reason(
        "batch length {a} is below the 49 bytes of a record batch header", _READ_UNKNOWN_3_9, _UNKNOWN
    ),
    "SHORT_MESSAGE": Reason("message size {a} is below the {b} bytes that its magic needs", _READ_UNKNOWN_3_9, None),
    "TOO_LARGE": Reason("the entry has {a} bytes, max.message.bytes is {b}", None, Raises(RecordTooLargeError)),
    "BAD_CRC": Reason("CRC is {b:08x}, expected the stored {a:08x}", _CORRUPT, _CORRUPT),
    "BAD_CODEC": Reason("compression codec {a} is unknown, expected 0 to {b}", _READ_UNKNOWN, _UNKNOWN),
    "PAYLOAD": Reason("{codec} data is damaged", _READ_UNKNOWN, _READ_UNKNOWN),
    "SECOND_FRAME": Reason("a second lz4 frame follows the first, and Kafka would not read it", _CORRUPT, None),
    # a set from a producer
    "BASE_OFFSET": Reason(
        "base offset of the batch is {a}, expected 0 from a client; append one batch at a time, or rows of any number "
        "with kts.Log.append_rows",
        None,
        _INVALID,
    ),
    "NO_BATCH": Reason("expected a batch, found none", None, _INVALID),
    "SECOND_BATCH": Reason("expected one batch, found another after it", None, _INVALID),
    "OTHER_MAGIC": Reason("magic of the entry is {a}, expected {b} as the first has", None, _INVALID),
    "OFFSET_RANGE": Reason("last offset delta of the batch is {a}, expected 0 or more", None, _INVALID),
    "BAD_COUNT": Reason("record count of the batch is {a}, expected 1 or more", None, _INVALID),
    "COUNT_RANGE": Reason("record count of the batch is {a}, its last offset delta is {b}", None, _INVALID),
    "CONTROL_BATCH": Reason("the batch is a control batch, which clients may not write", None, _INVALID),
    "NO_SEQUENCE": Reason("the batch has a producer id and base sequence {a}, expected 0 or more", None, _INVALID),
    "TRANSACTION": Reason("transactional records need message format 2, the topic has {a}", None, _UNSUPPORTED),
    "IDEMPOTENCE": Reason("idempotent records need message format 2, the topic has {a}", None, _UNSUPPORTED),
    # the records of a batch
    "NEGATIVE_COUNT": Reason("record count {a} is negative", _CORRUPT, None),
    "COUNT_LEFT": Reason("record count {a} does not fit the {b} bytes of records", _CORRUPT, None),
    "RECORDS_LEFT": Reason("{b} bytes are left after the {a} records that the batch declares", _CORRUPT, _INVALID),
    "BAD_RECORD": Reason("the fields of the record do not fit the bytes it has", None, _INVALID),
    "BAD_LENGTH": Reason(
        "length of the record has no end within 5 bytes", None, Raises(InvalidRecordError, kafka=KtsError)
    ),
    "RECORD_LENGTH": Reason("record length {a} exceeds the {b} bytes left", _CORRUPT, None),
    "RECORD_END": Reason("the record ends inside a field, {b} bytes before its end", _CORRUPT, None),
    "RECORD_REST": Reason("record length {a} leaves {b} bytes after the record's last field", _CORRUPT, None),
    "VARINT": Reason("a varint has no end within {a} bytes", _CORRUPT, None),
    "KEY": Reason("key length {a} exceeds the {b} bytes left", _CORRUPT, None),
    "VALUE": Reason("value length {a} exceeds the {b} bytes left", _CORRUPT, None),
    "HEADER_COUNT": Reason("header count {a} does not fit the {b} bytes left", _CORRUPT, None),
    "HEADER_KEY": Reason("header key length {a} does not fit the {b} bytes left", _CORRUPT, None),
    "HEADER_VALUE": Reason("header value length {a} exceeds the {b} bytes left", _CORRUPT, None),
    "DELTAS": Reason("offset delta of the record is {a}, expected {b}", None, _INVALID),
    # messages and wrappers
    "BAD_FIELDS": Reason(
        "key and value do not fill the message of {a} bytes", None, Raises(CorruptRecordError, kafka=KtsError)
    ),
    "MESSAGE_KEY": Reason("key length {a} exceeds the {b} bytes left", _READ_UNKNOWN, None),
    "MESSAGE_VALUE": Reason("value length {a} exceeds the {b} bytes left", _READ_UNKNOWN, None),
    "MESSAGE_REST": Reason("value length {a} leaves {b} bytes after the message's value", _CORRUPT, None),
    "WRAPPER_NULL": Reason("a compressed message has no value", _READ_UNKNOWN_0_10, _NO_INNER),
    "WRAPPER_EMPTY": Reason("a compressed message holds no inner message", _READ_UNKNOWN_0_10, _NO_INNER),
    "WRAPPER_OFFSET": Reason("wrapper offset {a} is below the last inner offset {b}", _CORRUPT, _INVALID),
    "WRAPPER_CODEC": Reason("codec {codec} in a message of magic {b}, which cannot carry it", _CORRUPT, _INVALID),
    "INNER_SIZE": Reason("inner message {b} has size {a}, below the smallest message (14 bytes)", None, _CORRUPT),
    "SHORT_INNER": Reason("inner message size {a} is below the smallest message ({b} bytes)", _CORRUPT, None),
    "INNER_MAGIC": Reason("magic of an inner message is {a}, expected its wrapper's {b}", None, _INVALID),
    "UNKNOWN_INNER_MAGIC": Reason("inner message magic {a} is unknown, expected 0 or 1", _CORRUPT, None),
    "NESTED": Reason("inner message is compressed itself (codec {a})", _CORRUPT, _INVALID),
    "COMPRESSED": Reason("compression codec {a} in a set that is not compressed, expected 0", None, _UNKNOWN),
    "INNER_CRC": Reason("inner message CRC is {b:08x}, expected the stored {a:08x}", _CORRUPT, _CORRUPT),
    "EMPTIED": Reason(
        "no record of the last message that was cleaned stays, and magic {a} has no empty batches", _UNKNOWN, None
    ),
    # policy: the set, then what is wrong with one record
    "POLICY": Reason("{n} records are refused, the first: record {record}: {first}", None, _INVALID),
    "NO_KEY": Reason("no key, and the topic is compacted", None, _INVALID),
    "OUT_OF_RANGE": Reason("timestamp {time} is out of range, expected {least} to {most}", None, _TIMESTAMP),
    "APPEND_TIME": Reason("timestamp type LogAppendTime, which a producer may not set", None, _TIMESTAMP),
    "WRONG_MAGIC": Reason("magic is not its wrapper's", None, _INVALID),
    "NO_TIME": Reason("no timestamp, and message.timestamp.missing is refuse", None, _TIMESTAMP),
    # a set that cannot be written in the topic's format
    "NEGATIVE": Reason(
        "timestamp {a} lies before 1970 and cannot be written; see allow.negative.timestamps", None, _UNKNOWN
    ),
    "HEADERS": Reason("the record has headers, which message format {b} cannot carry", None, _UNKNOWN),
    "SKIPPED": Reason("offset deltas of a compressed batch are not 0, 1, 2 ...", None, _UNKNOWN),
    "WRITER_TRANSACTION": Reason(
        "transactional records need message format 2, the topic has {a}",
        None,
        Raises(UnsupportedForMessageFormatError, kafka=KtsError),
    ),
    "PRODUCER_STATE": Reason(
        "producer id {a} with an epoch or a base sequence ({b}) that does not go with it", None, _UNKNOWN
    ),
    "CODEC_FORMAT": Reason(
        "compression {codec} needs message format 2, the topic has {b}",
        None,
        Raises(UnsupportedCompressionTypeError, kafka=KtsError),
    ),
    "NOTHING": Reason("there is nothing that could be written", None, _UNKNOWN),
}
