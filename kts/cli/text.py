"""Records as JSON lines and CSV, and JSON lines as records: whole Arrow columns at a time, no loop over records."""

from __future__ import annotations

import binascii
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kts.codec.columns import ALL_COLUMNS
from kts.codec.rows import MARKED, BadTimeError, refuse_marks, row_times
from kts.times import milliseconds

from .output import NAMES, NotTextError, cores, naming_the_record
from .times import UNIT_OPTION

PIECE_BYTES = 1 << 20  # converted at a time; fastest if it fits the CPU caches

# --- bytes as text -----------------------------------------------------------------------------


_PADS = pa.array([b"", b"\0\0", b"\0"], pa.binary())
_PAD = ord("=")


def spelled(column: Any, spell: Callable[[Any], str]) -> Any:
    """A column with few different values as strings; each different value is converted once."""
    coded = column.dictionary_encode(null_encoding="encode")
    return pa.array(map(spell, coded.dictionary.to_pylist()), pa.string()).take(coded.indices)


def encode_column(column: Any, encoding: str, name: str) -> Any:
    """A binary column as a string column; null stays null.

    Parameters
    ----------
    encoding : {"base64", "hex", "utf8", "json", "auto"}
        ``json`` is UTF-8 that is JSON, on one line. ``auto`` is UTF-8, and ``0x`` and hex for each value that is not.

    Raises
    ------
    NotTextError
        The encoding is ``utf8`` or ``json`` and a value is not.
    """
    if encoding == "utf8":
        return utf8_column(column, name)
    if encoding == "json":
        return json_column(column, name)
    if encoding == "auto":
        return auto_column(column)
    return hex_column(column) if encoding == "hex" else base64_column(column)


def base64_column(column: Any) -> Any:
    """Base64 with padding, each value by itself."""
    left_over = np.asarray(pc.fill_null(pc.binary_length(column), 0)) % 3
    padded = pc.binary_join_element_wise(pc.fill_null(column, b""), _PADS.take(pa.array(left_over)), b"")
    offsets, data = layout(padded)
    # Every value fills whole groups of three bytes, so one call encodes them all and no group mixes two values.
    text = bytearray(binascii.b2a_base64(data, newline=False))
    ends = offsets // 3 * 4
    view = np.frombuffer(text, np.uint8)
    view[ends[1:][left_over != 0] - 1] = _PAD
    view[ends[1:][left_over == 1] - 2] = _PAD
    return _strings(ends, text, column)


def hex_column(column: Any) -> Any:
    """Hex, two lower-case digits per byte."""
    offsets, data = layout(pc.fill_null(column, b""))
    return _strings(offsets * 2, bytes(data).hex().encode("ascii"), column)


def utf8_column(column: Any, name: str) -> Any:
    """The bytes as text, checked; ``name`` is for the error."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        row = int(np.argmax(not_utf8(column)))
        value = column[row].as_py()
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotTextError(name, row, f"is not UTF-8 (byte {value[error.start]:#04x} at {error.start})") from None
        raise


def auto_column(column: Any) -> Any:
    """The bytes as text; ``0x`` and hex for values that are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        binary = pa.array(not_utf8(column))
    text = pc.if_else(binary, b"", column).cast(pa.string())
    spelled_out = pc.binary_join_element_wise("0x", hex_column(pc.if_else(binary, column, b"")), "")
    return pc.if_else(binary, spelled_out, text)


def not_utf8(column: Any) -> Any:
    """Which values of a binary column are not UTF-8, as a numpy array; null is."""
    # Zero bytes after each value end a sequence that the value leaves open.
    offsets, data = layout(pc.binary_join_element_wise(pc.fill_null(column, b""), b"\0\0\0", b""))
    codes = np.frombuffer(data, np.uint8)
    following = codes & 0xC0 == 0x80
    expected = np.zeros(len(codes), bool)
    for distance, least in ((1, 0xC0), (2, 0xE0), (3, 0xF0)):  # a lead byte is followed by one to three others
        expected[distance:] |= codes[:-distance] >= least
    wrong = (following != expected) | (codes == 0xC0) | (codes == 0xC1) | (codes > 0xF4)
    first, second = codes[:-1], codes[1:]
    # Overlong forms, surrogates, and what lies beyond U+10FFFF.
    wrong[1:] |= ((first == 0xE0) & (second < 0xA0)) | ((first == 0xED) & (second > 0x9F))
    wrong[1:] |= ((first == 0xF0) & (second < 0x90)) | ((first == 0xF4) & (second > 0x8F))
    return np.logical_or.reduceat(wrong, offsets[:-1]) if len(column) else wrong


class _NoConstants(json.JSONDecoder):
    """JSON without NaN and Infinity, which Python adds."""

    def __init__(self) -> None:
        super().__init__(parse_int=str, parse_float=str, parse_constant=self._refused)

    @staticmethod
    def _refused(name: str) -> None:
        raise ValueError(f"{name} is no JSON")


def json_column(column: Any, name: str) -> Any:
    """The bytes as JSON text, checked, with line breaks as spaces; ``name`` is for the error."""
    text = utf8_column(column, name)
    if not all_json(text):
        for row, value in enumerate(text.to_pylist()):
            try:
                if value is not None:
                    _NoConstants().decode(value)
            except (ValueError, RecursionError) as error:
                raise NotTextError(name, row, f"is not JSON ({error})") from None
    for end in "\n\r":  # a JSON string has none, so that these are only white space
        text = pc.replace_substring(text, end, " ")
    return text


def all_json(text: Any) -> bool:
    """Whether all strings of a column are JSON."""
    values = pc.drop_null(text)
    # One call parses them all, with marks between them that no value can know.
    mark = secrets.token_hex(16)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), f',"{mark}",')[0].as_py()
    try:
        parsed = _NoConstants().decode(f"[{joined}]")
    except (ValueError, RecursionError):
        return False
    return len(parsed) == max(2 * len(values) - 1, 0) and all(part == mark for part in parsed[1::2])


FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # of the years 1 and 9999


def iso_column(times: Any, zone: str | None = None) -> Any:
    """Times in ms as ISO 8601 strings; null for -1, and the number of ms beyond the years 1 to 9999."""
    times = times.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(times, FIRST_MS), pc.less_equal(times, LAST_MS))
    moments = pc.if_else(inside, times, 0).cast(pa.timestamp("ms", None if zone is None else "UTC"))
    if zone is None:
        text = pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ")
    else:
        text = pc.strftime(moments.cast(pa.timestamp("ms", zone)), "%Y-%m-%dT%H:%M:%S%z")
        text = pc.replace_substring_regex(text, r"(..)$", r":\1")
    text = pc.if_else(inside, text, times.cast(pa.string()))
    return pc.if_else(pc.equal(times, -1), None, text)


def json_strings(column: Any) -> Any:
    """A string column as JSON strings with their quotes; null becomes ``null``."""
    quoted = pc.binary_join_element_wise('"', escaped(column), '"', "")
    return pc.fill_null(quoted, "null") if column.null_count else quoted


def escaped(column: Any) -> Any:
    """A string column with the escapes that JSON strings need."""
    column = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    _, data = layout(column)
    codes = np.frombuffer(data, np.uint8)
    if len(codes) and codes.min() < 32:
        for code in np.unique(codes[codes < 32]).tolist():
            column = pc.replace_substring(column, chr(code), json.dumps(chr(code))[1:-1])
    return column


def layout(column: Any) -> tuple[Any, memoryview]:
    """The offsets (from 0) and the bytes of a binary or string column."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    if not len(offsets):
        return np.zeros(1, np.int32), memoryview(b"")
    view = memoryview(b"" if data is None else data)
    return offsets - offsets[0], view[offsets[0] : offsets[-1]]


def _strings(offsets: Any, text: bytes | bytearray, like: Any) -> Any:
    """A string column from offsets and text, null where ``like`` is null."""
    buffers = (pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text))
    made = pa.StringArray.from_buffers(len(like), *buffers)
    return pc.if_else(like.is_valid(), made, None) if like.null_count else made


# --- text as bytes -----------------------------------------------------------------------------


_HEX = np.zeros(256, bool)
_HEX[list(b"0123456789abcdefABCDEF")] = True


class NotBytesError(ValueError):
    """A text is not in the expected encoding; ``row`` is its row in the column."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def decode_column(column: Any, encoding: str) -> Any:
    """A string column in base64, hex or UTF-8 as a binary column; null stays null.

    Raises
    ------
    NotBytesError
        A text is not in the encoding; the error names the first one and the reason.
    """
    if encoding == "utf8":
        return column.cast(pa.binary())
    try:
        return _hex(column) if encoding == "hex" else _base64(column)
    except ValueError as error:
        for row, text in enumerate(column.to_pylist()):
            if text is not None and (reason := why_not(text, encoding)) is not None:
                raise NotBytesError(row, reason) from error
        raise


def why_not(text: str, encoding: str) -> str | None:
    """Why a text is not in an encoding; None if it is."""
    shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
    if encoding == "utf8":
        return None
    if encoding == "hex":
        if len(text) % 2 or not all(ord(c) < 256 and _HEX[ord(c)] for c in text):
            return f"expected hex, two digits a byte, found {shown}"
        return None
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error, or characters beyond ASCII
        return f"expected base64, found {shown} ({error})"
    return None


def _hex(column: Any) -> Any:
    offsets, data = layout(column)
    codes = np.frombuffer(data, np.uint8)
    if (offsets % 2).any() or not _HEX[codes].all():
        raise ValueError("not hex")
    return _binary(offsets // 2, bytes.fromhex(bytes(data).decode("ascii")), column)


def _base64(column: Any) -> Any:
    offsets, data = layout(column)
    if (offsets % 4).any():
        raise ValueError("not whole groups")
    codes = np.frombuffer(data, np.uint8).copy()
    ends = offsets[1:][np.diff(offsets) > 0]
    last, second = codes[ends - 1] == _PAD, codes[ends - 2] == _PAD
    pads = last.astype(np.int64) + (last & second)
    if np.count_nonzero(codes == _PAD) != pads.sum():
        raise ValueError("padding inside")
    # Every text fills whole groups, so one call decodes them all; the bytes of the padding are removed afterwards.
    codes[codes == _PAD] = ord("A")
    plain = np.frombuffer(binascii.a2b_base64(codes.data, strict_mode=True), np.uint8)
    if not pads.any():
        return _binary(offsets // 4 * 3, plain, column)
    kept = np.ones(len(plain), bool)
    tails = ends // 4 * 3
    kept[tails[pads >= 1] - 1] = False
    kept[tails[pads == 2] - 2] = False
    lost = np.zeros(len(column), np.int64)
    lost[np.diff(offsets) > 0] = pads
    shortened = offsets // 4 * 3
    shortened[1:] -= np.cumsum(lost)
    return _binary(shortened, plain[kept], column)


def _binary(offsets: Any, data: Any, like: Any) -> Any:
    """A binary column from offsets and bytes, null where ``like`` is null."""
    validity = None
    if like.null_count:
        validity = pa.array(like.is_valid()).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(like), buffers)


# --- JSON lines out ----------------------------------------------------------------------------


def json_lines(
    batch: Any, *, keys: str = "base64", values: str = "base64", iso_times: bool = False, zone: str | None = None
) -> memoryview:
    """The lines of a record batch, each one object with the batch's columns in their order.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With any of kts's record columns.
    keys, values : str
        How those two columns are written, as for ``encode_column``; as ``json`` they are no strings. Header values are
        always base64.
    iso_times : bool
        Times in ISO 8601, in the ``zone``, instead of ms.

    Raises
    ------
    NotTextError
        A key or value is not in the encoding.
    """
    if not batch.num_rows:
        return memoryview(b"")
    parts: list[Any] = []
    opening = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if iso_times and pa.types.is_timestamp(column.type):
            before, text, after = "", _times_or_numbers(iso_column(column, zone)), ""
        else:
            before, text, after = _json_text(name, column, keys if name == "key" else values)
        parts += [f'{opening}"{name}":{before}', text]
        opening = f"{after},"
    parts = _folded([*parts, opening[:-1] + "}\n"])
    if len(parts) == 1:
        return memoryview(parts[0].encode() * batch.num_rows)
    return layout(pc.binary_join_element_wise(*parts, ""))[1]


def _times_or_numbers(text: Any) -> Any:
    """ISO 8601 in quotes, plain numbers as they are, null as ``null``."""
    quoted = pc.if_else(pc.match_substring(text, ":"), pc.binary_join_element_wise('"', text, '"', ""), text)
    return pc.fill_null(quoted, "null")


def _folded(parts: list[Any]) -> list[Any]:
    """The parts with neighbouring constants joined."""
    folded: list[Any] = []
    for part in parts:
        if isinstance(part, str) and folded and isinstance(folded[-1], str):
            folded[-1] += part
        else:
            folded.append(part)
    return folded


def _json_text(name: str, column: Any, encoding: str) -> tuple[str, Any, str]:
    """The text before a column, its text (one string if all rows are equal), and the text after it."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif name in NAMES:
        return _few_values(column, lambda value: json.dumps(NAMES[name].get(value, value)))
    if name == "partition" or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return _few_values(column, json.dumps)
    if pa.types.is_list(kind):
        if name == "headers":
            return "", header_text(column), ""
        return "", "null" if column.null_count == len(column) else pc.fill_null(nested_text(column), "null"), ""
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        if column.null_count == len(column):
            return "", "null", ""
        text = encode_column(column.cast(pa.binary()), encoding, name)
        if encoding == "json":
            return "", pc.fill_null(text, "null"), ""
        if encoding in ("utf8", "auto"):
            text = escaped(text)
        if not column.null_count:
            return '"', text, '"'
        return "", pc.fill_null(pc.binary_join_element_wise('"', text, '"', ""), "null"), ""
    text = column.cast(pa.string())
    return "", pc.fill_null(text, "null") if column.null_count else text, ""


def _few_values(column: Any, spell: Callable[[Any], str]) -> tuple[str, Any, str]:
    text = spelled(column, spell)
    first = text[0].as_py()
    return "", first if pc.all(pc.equal(text, first)).as_py() else text, ""


def header_text(column: Any) -> Any:
    """Headers as JSON ``[[name, base64|null], ...]``, one string per record; only ``"[]"`` if no record has headers."""
    entries = column.flatten()  # of the rows that are not null, in order
    if not len(entries):
        return "[]"
    names, contents = entries.flatten()
    pairs = pc.binary_join_element_wise("[", json_strings(names), ",", _base64_or_null(contents), "]", "")
    counts = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(counts)
    starts = pa.concat_arrays([pa.array([0], ends.type), ends])
    lists = pa.ListArray.from_arrays(starts, pairs)
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def nested_text(column: Any) -> Any:
    """Lists as JSON, with bytes in base64, one string per record; null stays null."""
    spell = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), default=_base64_of)
    return pa.array([None if value is None else spell(value) for value in column.to_pylist()], pa.string())


def _base64_of(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _base64_or_null(column: Any) -> Any:
    text = pc.binary_join_element_wise('"', base64_column(column.cast(pa.binary())), '"', "")
    return pc.fill_null(text, "null") if column.null_count else text


# --- JSON lines in -----------------------------------------------------------------------------


INT64 = range(-(2**63), 2**63)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TEXT = {"topic", "timestampType", "codec", "codecName", "key", "value"}
_FLAGS = {"transactional", "control", "hasTimestamp"}
_TYPES = {name: pa.string() if name in _TEXT else pa.bool_() if name in _FLAGS else pa.int64() for name in ALL_COLUMNS}
_TYPES |= {"topic": pa.string(), "partition": pa.int64(), "headers": pa.list_(pa.list_(pa.string()))}
_SECOND_NULL = re.compile(rb"}[ \t\r]*n")
_SCHEMA = pa.schema(list(_TYPES.items()))
_TIMES = _SCHEMA.get_field_index("timestamp")
# Times are all integers or all text; lines with both are read one by one.
_OPTIONS = [
    pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    for schema in (_SCHEMA, _SCHEMA.set(_TIMES, pa.field("timestamp", pa.string())))
]
_USED = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class BadLineError(ValueError):
    """A line that is not a valid record.

    Attributes
    ----------
    line : int
        Its number in the input, from 1.
    good : RecordBatch
        The records before it in the same piece.
    """

    def __init__(self, line: int, reason: str, good: Any) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.good = good


def pieces_of_lines(stream: BinaryIO, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a stream as (number of the first line, bytes), as soon as they arrive."""
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


def records_of(
    lines: bytes, first_line: int, *, keys: str = "base64", values: str = "base64", unit: str | None = None
) -> Any:
    """The records of lines: ``topic partition offset timestamp key value headers`` and the number of the ``line``.

    Parameters
    ----------
    first_line : int
        The number of the first line.
    keys, values : {"base64", "utf8", "hex"}
        How those two are written. Header values are always base64.
    unit : str, optional
        The unit of integer timestamps; None means ms, and refuses those that look like another unit.

    Raises
    ------
    BadLineError
        A line is not a JSON object, or has an unknown or invalid field.
    """
    if not lines.strip():
        return _columns(_SCHEMA.empty_table(), [], keys, values, "ms")
    count = lines_in(lines)
    if not are_objects(lines):
        return _one_by_one(lines, first_line, keys, values, unit)
    options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    for parse in _OPTIONS:
        try:
            table = pj.read_json(BytesIO(lines), options, parse)
            if table.num_rows == count:  # else a line has two objects
                return _columns(table, np.arange(first_line, first_line + count), keys, values, unit)
        except (pa.ArrowInvalid, NotBytesError, BadTimeError):
            pass
    return _one_by_one(lines, first_line, keys, values, unit)


def lines_in(lines: bytes) -> int:
    """How many lines these are; the last one may have no line break."""
    return lines.count(b"\n") + (not lines.endswith(b"\n"))


def are_objects(lines: bytes) -> bool:
    """Whether each line begins an object: Arrow crashes where an object is expected and null is found."""
    begun = lines.count(b"\n{") + lines.startswith(b"{")
    return begun == lines_in(lines) and not _SECOND_NULL.search(lines)


def _one_by_one(lines: bytes, first_line: int, keys: str, values: str, unit: str | None) -> Any:
    """The same as ``records_of``, line by line, to find the invalid line and the reason."""
    found: list[dict[str, Any]] = []
    numbers: list[int] = []

    def good() -> Any:
        return _columns(pa.Table.from_pylist(found, _SCHEMA), numbers, keys, values, "ms")

    for number, line in enumerate(lines.split(b"\n"), first_line):
        if not line.strip():
            continue
        record, reason = _checked(line, keys, values, unit)
        if reason is not None:
            raise BadLineError(number, reason, good())
        found.append(record)
        numbers.append(number)
    return good()


def _checked(line: bytes, keys: str, values: str, unit: str | None) -> tuple[dict[str, Any], str | None]:
    """One line as an object, and the reason if it is invalid."""
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
        if name == "timestamp" and value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                return {}, f"timestamp: expected an integer or ISO 8601 text, found {value!r}"
            try:
                record[name] = milliseconds(name, value, unit, round_up=False, how=UNIT_OPTION)
            except ValueError as error:
                return {}, str(error)
            continue
        reason = None if value is None else _wrong(name, value, keys if name == "key" else values)
        if reason is not None:
            return {}, f"{name}: {reason}"
    if record.get("timestamp") == -1 and record.get("hasTimestamp"):
        return {}, f"timestamp: {MARKED}"
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


def _columns(table: Any, numbers: Any, keys: str, values: str, unit: str | None) -> Any:
    """A table of JSON fields as record columns."""
    whole = {name: one_array(table.column(name)) for name in _USED}
    whole["timestamp"] = row_times(whole["timestamp"], unit, how=UNIT_OPTION)
    refuse_marks(whole["timestamp"], table.column("hasTimestamp"))
    whole["key"] = decode_column(whole["key"], keys)
    whole["value"] = decode_column(whole["value"], values)
    whole["headers"] = headers_of(whole["headers"])
    return pa.RecordBatch.from_pydict(whole | {"line": pa.array(numbers, pa.int64())})


def one_array(column: Any) -> Any:
    """A column without chunks."""
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def headers_of(column: Any) -> Any:
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


# --- the writers of dump -----------------------------------------------------------------------


def pieces(batch: Any, limit: int = PIECE_BYTES) -> Iterator[Any]:
    """Slices of a batch of about ``limit`` bytes."""
    parts = max(1, -(-batch.nbytes // limit))
    rows = -(-batch.num_rows // parts) or 1
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if piece.num_rows > 1 and piece.nbytes > 2 * limit:
            yield from pieces(piece, limit)
        else:
            yield piece


class Text(ABC):
    """A format of text: the pieces of a batch are converted on all cores, and written in their order.

    Notes
    -----
    All of a batch is written before the next one is read, so that the first records come at once.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._threads = ThreadPoolExecutor(cores()) if cores() > 1 else None

    def write(self, batch: Any) -> None:
        parts = list(pieces(batch))
        converted = map if self._threads is None or len(parts) == 1 else self._threads.map
        for part in converted(self._converted, parts):
            self.put(part)

    def _converted(self, piece: Any) -> Any:
        with naming_the_record(piece):
            return self.converted(piece)

    @abstractmethod
    def converted(self, piece: Any) -> Any:
        """The text of a piece, or what ``put`` makes text of."""

    def put(self, converted: Any) -> None:
        """Write what was converted."""
        self.file.write(converted)

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


class JsonLines(Text):
    """One JSON object per line."""

    def __init__(
        self, file: BinaryIO, keys: str, values: str, iso_times: bool = False, zone: str | None = None
    ) -> None:
        super().__init__(file)
        self._how: dict[str, Any] = {"keys": keys, "values": values, "iso_times": iso_times, "zone": zone}

    def converted(self, piece: Any) -> memoryview:
        return json_lines(piece, **self._how)


class Csv(Text):
    """CSV as in RFC 4180: text is always quoted, null is an empty field without quotes, times in ms, headers as JSON.

    With ``disarm``, text that a spreadsheet would run as a formula gets an apostrophe in front.
    """

    def __init__(
        self,
        file: BinaryIO,
        schema: Any,
        keys: str,
        values: str,
        disarm: bool = False,
        iso_times: bool = False,
        zone: str | None = None,
    ) -> None:
        super().__init__(file)
        self._schema, self._encodings = schema, {"key": keys, "value": values}
        self._disarm, self._iso_times, self._zone = disarm, iso_times, zone
        self._writer: Any = None

    def converted(self, piece: Any) -> Any:
        columns = {name: self._plain(name, piece[name]) for name in piece.schema.names}
        if self._disarm:
            columns = {name: disarmed(column) for name, column in columns.items()}
        return pa.record_batch(list(columns.values()), names=list(columns))

    def put(self, converted: Any) -> None:
        from pyarrow import csv

        if self._writer is None:
            self._writer = csv.CSVWriter(self.file, converted.schema)
        self._writer.write(converted)

    def close(self) -> None:
        super().close()
        if self._writer is None:  # no record: the header line alone
            nothing = [pa.nulls(0, field.type) for field in self._schema]
            self.put(self.converted(pa.record_batch(nothing, schema=self._schema)))
        self._writer.close()

    def _plain(self, name: str, column: Any) -> Any:
        if name in self._encodings:
            return encode_column(column.cast(pa.binary()), self._encodings[name], name)
        if name in NAMES:
            return spelled(column, lambda value: NAMES[name].get(value, str(value)))
        if pa.types.is_timestamp(column.type):
            return iso_column(column, self._zone) if self._iso_times else column.cast(pa.int64())
        if pa.types.is_list(column.type):
            if name != "headers":
                return nested_text(column)
            text = header_text(column)
            return pa.repeat(text, len(column)) if isinstance(text, str) else text
        return column


def disarmed(column: Any) -> Any:
    """A column with an apostrophe before text that a spreadsheet would run as a formula."""
    if not pa.types.is_string(column.type):
        return column
    import pyarrow.compute as pc

    armed = pc.match_substring_regex(column, r"\A[=+\-@\t\r]")
    return pc.if_else(armed, pc.binary_join_element_wise("'", column, ""), column)
