"""Why a set of records is refused, as the error that the matching Kafka release would answer with."""

from __future__ import annotations

from typing import Any, NamedTuple

from kts.compression import CODEC_NAMES
from kts.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KtsError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)

Error = type[KtsError]
Bad = tuple[int, int, int, int]  # record, offset, time, what is wrong
Found = tuple[int, int, int, int, int, int, list[Bad], CorruptRecordError | None]
UNEXPECTED = KtsError  # whatever Kafka itself did not expect: UNKNOWN_SERVER_ERROR(-1)
INVALID_RECORD_0_10 = 2  # InvalidRecordException is a CorruptRecordException up to 2.3


class Refusal(NamedTuple):
    """One number of ``kts_refusal``: the shipped error, what is said, and the error by default where it differs."""

    shipped: Error
    text: str
    default: Error | None = None
    shipped_0_10: Error | None = None  # where it differs in 0.10.2

    def error(self, old: bool, shipped: bool) -> Error:
        if not shipped and self.default is not None and (self.shipped_0_10 is None or old):
            return self.default
        return self.shipped_0_10 if old and self.shipped_0_10 is not None else self.shipped


POLICY, PAYLOAD = 35, 40
REFUSALS = {
    1: Refusal(CorruptRecordError, "size {a} is below the smallest message (14 bytes)"),
    2: Refusal(UNEXPECTED, "size {a} exceeds the largest entry Kafka can hold (2147483635 bytes)"),
    3: Refusal(CorruptRecordError, "magic {a} is unknown, expected 0 to {b}"),
    4: Refusal(UNEXPECTED, "batch length {a} is below the 49 bytes of a record batch header"),
    5: Refusal(RecordTooLargeError, "the entry has {a} bytes, max.message.bytes is {b}"),
    6: Refusal(CorruptRecordError, "CRC is {b:08x}, expected the stored {a:08x}"),
    7: Refusal(UNEXPECTED, "compression codec {a} is unknown, expected 0 to {b}"),
    8: Refusal(InvalidRecordError, "base offset of the batch is {a}, expected 0 from a client"),
    9: Refusal(InvalidRecordError, "expected a batch, found none"),
    10: Refusal(InvalidRecordError, "expected one batch, found another behind it"),
    11: Refusal(InvalidRecordError, "magic of the entry is {a}, expected {b} as the first has"),
    12: Refusal(InvalidRecordError, "last offset delta of the batch is {a}, expected 0 or more"),
    13: Refusal(InvalidRecordError, "record count of the batch is {a}, expected 1 or more"),
    14: Refusal(InvalidRecordError, "record count of the batch is {a}, its last offset delta is {b}"),
    15: Refusal(InvalidRecordError, "the batch is a control batch, which clients may not write"),
    16: Refusal(InvalidRecordError, "the batch has a producer id and base sequence {a}, expected 0 or more"),
    17: Refusal(UnsupportedForMessageFormatError, "transactional records need message format 2, the topic has {a}"),
    18: Refusal(UnsupportedForMessageFormatError, "idempotent records need message format 2, the topic has {a}"),
    19: Refusal(InvalidRecordError, "the fields of the record do not fit the bytes it has"),
    20: Refusal(UNEXPECTED, "length of the record has no end within 5 bytes", InvalidRecordError),
    21: Refusal(InvalidRecordError, "{b} bytes are left behind the {a} records that the batch declares"),
    22: Refusal(UNEXPECTED, "key and value do not fill the message of {a} bytes", CorruptRecordError),
    23: Refusal(InvalidRecordError, "a compressed message has no value", CorruptRecordError, UNEXPECTED),
    24: Refusal(InvalidRecordError, "a compressed message holds no inner message", CorruptRecordError, UNEXPECTED),
    25: Refusal(InvalidRecordError, "wrapper offset {a} is below the last inner offset {b}"),
    26: Refusal(InvalidRecordError, "codec zstd in a message of magic {a}, which cannot carry it"),
    27: Refusal(CorruptRecordError, "inner message {b} has size {a}, below the smallest message (14 bytes)"),
    28: Refusal(InvalidRecordError, "magic of an inner message is {a}, expected its wrapper's {b}"),
    29: Refusal(InvalidRecordError, "inner message is compressed itself (codec {a})"),
    30: Refusal(CorruptRecordError, "inner message CRC is {b:08x}, expected the stored {a:08x}"),
    31: Refusal(InvalidRecordError, "offset delta of the record is {a}, expected {b}"),
    32: Refusal(UNEXPECTED, "timestamp {a} lies before 1970 and cannot be written; see allow.negative.timestamps"),
    33: Refusal(UNEXPECTED, "the record has headers, which message format {b} cannot carry"),
    34: Refusal(UNEXPECTED, "offset deltas of a compressed batch are not 0, 1, 2 ..."),
    POLICY: Refusal(InvalidRecordError, "{n} records are refused, the first: record {record}: {reason}"),
    36: Refusal(
        UNEXPECTED, "transactional records need message format 2, {a} was asked", UnsupportedForMessageFormatError
    ),
    37: Refusal(UNEXPECTED, "producer id {a} with an epoch or a base sequence ({b}) that does not go with it"),
    38: Refusal(
        UNEXPECTED, "compression zstd needs message format 2, the topic has {a}", UnsupportedCompressionTypeError
    ),
    39: Refusal(UNEXPECTED, "there is nothing that could be written"),
    PAYLOAD: Refusal(UNEXPECTED, "{codec} data is damaged", CorruptRecordError),
}
REASONS = {
    1: "no key, and the topic is compacted",
    2: "timestamp {time} is out of range, expected {least} to {most}",
    3: "timestamp type LogAppendTime, which a producer may not set",
    4: "magic is not its wrapper's",
}


def refused(found: Found, *, old: bool, shipped: bool, now_ms: int, before_ms: int, after_ms: int) -> KtsError:
    """The error that a refusal of the compiled walk stands for.

    Parameters
    ----------
    found : tuple
        As ``AppendSet.refusal`` gives it.
    old : bool
        By 0.10.2.2, else by 3.9.2.
    shipped : bool
        As that release answers, also where it answers UNKNOWN_SERVER_ERROR(-1).
    now_ms, before_ms, after_ms : int
        The clock and the limits that records were held against, in ms.

    Returns
    -------
    KtsError
        InvalidRecordError has code 2 in 0.10.2, as InvalidRecordException had, and 87 in 3.9.
    """
    number, position, offset, record, a, b, bad, failure = found
    refusal = REFUSALS[number]
    kind = refusal.error(old, shipped)
    where: dict[str, Any] = {"position": position, "offset": offset, "record_index": record if record >= 0 else None}
    if old and kind is InvalidRecordError:
        where["code"] = INVALID_RECORD_0_10
    if number == POLICY:
        limits = {"least": now_ms - before_ms, "most": now_ms + after_ms}
        reasons = tuple((index, REASONS[wrong].format(time=time, **limits)) for index, _, time, wrong in bad)
        where["record_index"] = reasons[0][0]
        text = refusal.text.format(n=len(reasons), record=reasons[0][0], reason=reasons[0][1])
        if any(wrong in (2, 3) for *_, wrong in bad):
            where.pop("code", None)
            return InvalidTimestampError(text, **where, record_errors=reasons)
        return InvalidRecordError(text, **where, record_errors=reasons)
    if number == PAYLOAD and failure is not None:
        error = kind(failure.message, **where)
        error.__cause__ = failure
        return error
    text = refusal.text.format(a=a, b=b, codec=CODEC_NAMES[a] if number == PAYLOAD else "")
    return kind(text, **where)
