"""kts's errors as the error objects of the recorded verdicts, and the groups that those are compared by."""

from __future__ import annotations

from typing import Any

import kts

GROUPS = {
    "corrupt": (
        "CorruptRecordException",
        "InvalidRecordException",
        "InvalidMessageException",
        "RecordValidationException",
    ),
    "timestamp": ("InvalidTimestampException",),
    "too large": ("RecordTooLargeException",),
    "set too large": ("RecordBatchTooLargeException",),
    "format": ("UnsupportedForMessageFormatException",),
    "codec": ("UnsupportedCompressionTypeException",),
    "offset range": ("OffsetOutOfRangeException",),
    "invalid offset": ("InvalidOffsetException", "LogSegmentOffsetOverflowException", "IndexOffsetOverflowException"),
    "order": ("OffsetsOutOfOrderException", "UnexpectedAppendOffsetException"),
    "index": ("CorruptIndexException",),
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}

# The first that fits; an owner of other errors of kts adds a line. Whatever is not here is a plain KafkaException.
CLASSES: list[tuple[type[Exception], str]] = [
    (kts.InvalidTimestampError, "InvalidTimestampException"),
    (kts.InvalidRecordError, "InvalidRecordException"),
    (kts.CorruptIndexError, "CorruptIndexException"),
    (kts.InvalidOffsetError, "InvalidOffsetException"),
    (kts.IndexFullError, "IllegalArgumentException"),
    (kts.CorruptRecordError, "CorruptRecordException"),
    (kts.RecordTooLargeError, "RecordTooLargeException"),
    (kts.RecordBatchTooLargeError, "RecordBatchTooLargeException"),
    (kts.OffsetOutOfRangeError, "OffsetOutOfRangeException"),
    (kts.UnsupportedCompressionTypeError, "UnsupportedCompressionTypeException"),
    (kts.UnsupportedForMessageFormatError, "UnsupportedForMessageFormatException"),
]


def error_object(error: kts.KtsError, name: str | None = None) -> dict[str, Any]:
    """The error object for a kts error; `name` is Kafka's simple class name where the type does not tell it."""
    found = (theirs for ours, theirs in CLASSES if isinstance(error, ours))
    out: dict[str, Any] = {"class": name or next(found, "KafkaException"), "message": str(error), "code": error.code}
    refused = getattr(error, "record_errors", ())
    if refused:
        out["record_errors"] = [list(pair) for pair in refused]
    return out


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and "class" in value


def group(error: dict[str, Any]) -> str:
    """The group of an error object; everything that Kafka did not foresee is `runtime`."""
    return GROUP_OF.get((error.get("invalid") or error["class"]).rpartition(".")[2], "runtime")
