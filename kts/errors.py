"""Every error that kts raises, with Kafka's error code where Kafka has one."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CorruptIndexError",
    "CorruptRecordError",
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
    ``code`` is the number of Kafka's ``Errors`` enum; -1 (UNKNOWN_SERVER_ERROR) where Kafka has none.
    """

    code: int = -1

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


# --- found in bytes -------------------------------------------------------------------------------


class CorruptRecordError(KtsError):
    """CRC, size, magic, truncation, varint or compressed data is wrong (CORRUPT_MESSAGE)."""

    code = 2


class DecompressionLimitError(CorruptRecordError):
    """Decompressing would pass the bound; the message names the setting."""


class CorruptIndexError(KtsError):
    """An index file contradicts itself or its log. No wire code: the index is rebuilt."""


class InvalidOffsetError(KtsError):
    """An offset is not in order, or does not fit into its segment. No wire code."""


class IndexFullError(KtsError):
    """An index has no slot left; the log rolls before that. No wire code."""


# --- refused by policy ----------------------------------------------------------------------------


class InvalidRecordError(KtsError):
    """Well formed, but refused; ``record_errors`` lists (index, reason) (INVALID_RECORD)."""

    code = 87
    record_errors: tuple[tuple[int, str], ...] = ()


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is out of the accepted range, or of a type the sender may not set."""

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
    """The codec is unknown, or not allowed for this magic."""

    code = 76


class UnsupportedForMessageFormatError(KtsError):
    """The magic cannot carry what was asked for (headers, transactions, timestamps)."""

    code = 43


class OutOfOrderSequenceError(KtsError):
    """A producer's batch does not go on where its last one ended (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    code = 45


class InvalidProducerEpochError(KtsError):
    """A producer's epoch is older than the newest one the log knows."""

    code = 47


class InvalidTxnStateError(KtsError):
    """A batch does not fit the producer's open transaction."""

    code = 48


class TransactionCoordinatorFencedError(KtsError):
    """A transaction marker of a coordinator that was replaced."""

    code = 52


# --- asked of something that cannot answer --------------------------------------------------------


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
    """This node does not lead the partition."""

    code = 6


# --- the disk -------------------------------------------------------------------------------------


class LogStorageError(KtsError):
    """Reading or writing a log failed; ``errno`` is the operating system's (KAFKA_STORAGE_ERROR)."""

    code = 56
    errno: int | None = None


class LogClosedError(KtsError):
    """The log was closed."""


class LogLockedError(KtsError):
    """Another writer holds the log directory."""
