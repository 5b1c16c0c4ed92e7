"""Lines of JSON, as ``kts dump --format jsonl`` writes them, as record columns: whole pieces of the input at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from kts.codec.columns import ALL_COLUMNS

from .text_in import NotBytesError, decode_column, why_not

PIECE_BYTES = 1 << 20
INT64 = range(-(2**63), 2**63)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TEXT = {"topic", "timestampType", "key", "value"}
_FLAGS = {"transactional", "control"}
_TYPES = {name: pa.string() if name in _TEXT else pa.bool_() if name in _FLAGS else pa.int64() for name in ALL_COLUMNS}
_TYPES |= {"topic": pa.string(), "partition": pa.int64(), "headers": pa.list_(pa.list_(pa.string()))}
_SECOND_NULL = re.compile(rb"}[ \t\r]*n")
_OPTIONS = pj.ParseOptions(explicit_schema=pa.schema(list(_TYPES.items())), unexpected_field_behavior="error")
_USED = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class BadLineError(ValueError):
    """A line that is no record.

    Attributes
    ----------
    line : int
        Its number in the input, from 1.
    good : RecordBatch
        The records of the same piece before it.
    """

    def __init__(self, line: int, reason: str, good: Any) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.good = good


def pieces_of_lines(stream: BinaryIO, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a stream as (number of the first one, bytes), as soon as they can be read."""
    read = getattr(stream, "read1", stream.read)
    number = 1
    waiting: list[bytes] = []
    while data := read(piece_bytes):
        end = data.rfind(b"\n") + 1
        if end:
            lines = b"".join([*waiting, data[:end]])
            yield number, lines
            number += lines.count(b"\n")
            waiting = []
        if end < len(data):
            waiting.append(data[end:])
    if waiting:
        yield number, b"".join(waiting)


def records_of(lines: bytes, first_line: int, *, keys: str = "base64", values: str = "base64") -> Any:
    """The records of some lines: ``topic partition offset timestamp key value headers`` and the number of the ``line``.

    Parameters
    ----------
    first_line : int
        The number of the first one.
    keys, values : {"base64", "utf8", "hex"}
        How those two are written. Header values are always base64.

    Raises
    ------
    BadLineError
        Not a JSON object, an unknown or wrong field.
    """
    if not lines.strip():
        return _columns(pa.Table.from_pylist([], _OPTIONS.explicit_schema), [], keys, values)
    count = lines.count(b"\n") + (not lines.endswith(b"\n"))
    begun = lines.count(b"\n{") + lines.startswith(b"{")
    if begun != count or _SECOND_NULL.search(lines):  # Arrow crashes where an object is expected and null is found
        return _one_by_one(lines, first_line, keys, values)
    try:
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        table = pj.read_json(BytesIO(lines), options, _OPTIONS)
        if table.num_rows == count:  # else some hold two objects
            return _columns(table, np.arange(first_line, first_line + count), keys, values)
    except (pa.ArrowInvalid, NotBytesError):
        pass
    return _one_by_one(lines, first_line, keys, values)


def _one_by_one(lines: bytes, first_line: int, keys: str, values: str) -> Any:
    """The same, line by line: which one is wrong, and why."""
    found: list[dict[str, Any]] = []
    numbers: list[int] = []

    def good() -> Any:
        return _columns(pa.Table.from_pylist(found, _OPTIONS.explicit_schema), numbers, keys, values)

    for number, line in enumerate(lines.split(b"\n"), first_line):
        if not line.strip():
            continue
        record, reason = _checked(line, keys, values)
        if reason is not None:
            raise BadLineError(number, reason, good())
        found.append(record)
        numbers.append(number)
    return good()


def _checked(line: bytes, keys: str, values: str) -> tuple[dict[str, Any], str | None]:
    """One line as an object, and what is wrong with it."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        return {}, f"expected a JSON object, found {error.msg} at character {error.pos + 1}"
    except (ValueError, RecursionError) as error:  # not UTF-8, too deep, a number of too many digits
        return {}, f"expected a JSON object, found {error}"
    if not isinstance(record, dict):
        return {}, f"expected a JSON object, found {type(record).__name__}"
    for name, value in record.items():
        if name not in _TYPES:
            return {}, f"field {name!r} is unknown; there are {', '.join(_USED)}"
        reason = None if value is None else _wrong(name, value, keys if name == "key" else values)
        if reason is not None:
            return {}, f"{name}: {reason}"
    return record, None


def _wrong(name: str, value: Any, encoding: str) -> str | None:
    kind = _TYPES[name]
    if name == "headers":
        return _wrong_headers(value)
    if kind == pa.string():
        if not isinstance(value, str):
            return f"expected text or null, found {type(value).__name__}"
        try:
            value.encode()
        except UnicodeEncodeError:
            return "expected Unicode text, found half a surrogate pair"
        return why_not(value, encoding) if name in ("key", "value") else None
    if kind == pa.bool_():
        return None if isinstance(value, bool) else f"expected true or false, found {value!r}"
    if isinstance(value, bool) or not isinstance(value, int) or value not in INT64:
        return f"expected a 64-bit integer, found {value!r}"
    return None


def _wrong_headers(value: Any) -> str | None:
    expected = "expected [[name, base64 or null], ...], found"
    if not isinstance(value, list):
        return f"{expected} {type(value).__name__}"
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            return f"{expected} {json.dumps(pair)[:60]}"
        if pair[1] is not None and not isinstance(pair[1], str):
            return f"{expected} {json.dumps(pair)[:60]}"
        if pair[1] is not None and (reason := why_not(pair[1], "base64")) is not None:
            return reason
        try:
            pair[0].encode()
        except UnicodeEncodeError:
            return "expected Unicode text, found half a surrogate pair"
    return None


def _columns(table: Any, numbers: Any, keys: str, values: str) -> Any:
    """A table of JSON fields as record columns."""
    whole = {name: _one(table.column(name)) for name in _USED}
    whole["key"] = decode_column(whole["key"], keys)
    whole["value"] = decode_column(whole["value"], values)
    whole["headers"] = _headers(whole["headers"])
    return pa.RecordBatch.from_pydict(whole | {"line": pa.array(numbers, pa.int64())})


def _one(column: Any) -> Any:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _headers(column: Any) -> Any:
    """``[[name, base64 or null], ...]`` as Kafka's headers."""
    pairs = column.flatten()
    texts = pairs.flatten()
    ends = np.asarray(pairs.value_lengths().fill_null(-1))
    if (ends != 2).any():
        raise pa.ArrowInvalid("headers: expected pairs")
    at = np.arange(0, len(texts), 2)
    names, contents = texts.take(pa.array(at)), texts.take(pa.array(at + 1))
    if names.null_count:
        raise pa.ArrowInvalid("headers: expected names")
    try:
        contents = decode_column(contents, "base64")
    except NotBytesError as error:
        raise pa.ArrowInvalid(str(error)) from error
    structs = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    counts = np.asarray(column.value_lengths().fill_null(0))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=HEADERS)
