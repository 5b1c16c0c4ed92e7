"""Records as lines of JSON: whole columns become text, then one join makes the lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .names import TYPE_NAMES
from .text import base64_column, encode_column, escaped, json_strings, layout, spelled


def json_lines(batch: Any, *, keys: str = "base64", values: str = "base64") -> memoryview:
    """The lines of a record batch, each one object with the batch's columns in their order.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With any of kts's record columns.
    keys, values : {"base64", "utf8", "hex"}
        How those two columns are written. Header values are always base64.

    Raises
    ------
    NotTextError
        ``utf8`` was asked for, and a key or value is not.
    """
    if not batch.num_rows:
        return memoryview(b"")
    parts: list[Any] = []
    opening = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        before, text, after = _json_text(name, column, keys if name == "key" else values)
        parts += [f'{opening}"{name}":{before}', text]
        opening = f"{after},"
    parts = _folded([*parts, opening[:-1] + "}\n"])
    if len(parts) == 1:
        return memoryview(parts[0].encode() * batch.num_rows)
    return layout(pc.binary_join_element_wise(*parts, ""))[1]


def _folded(parts: list[Any]) -> list[Any]:
    """The same parts with neighbouring constants made one."""
    folded: list[Any] = []
    for part in parts:
        if isinstance(part, str) and folded and isinstance(folded[-1], str):
            folded[-1] += part
        else:
            folded.append(part)
    return folded


def _json_text(name: str, column: Any, encoding: str) -> tuple[str, Any, str]:
    """What stands before a column's text, the text (one string if all rows agree), and what stands after it."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif name == "timestampType":
        return _few_values(column, lambda value: json.dumps(TYPE_NAMES.get(value, value)))
    if name == "partition" or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return _few_values(column, json.dumps)
    if pa.types.is_list(kind):
        return _headers(column)
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        if column.null_count == len(column):
            return "", "null", ""
        text = encode_column(column.cast(pa.binary()), encoding, name)
        if encoding == "utf8":
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


def _headers(column: Any) -> tuple[str, Any, str]:
    return "", header_text(column), ""


def header_text(column: Any) -> Any:
    """Headers as JSON ``[[name, base64|null], ...]``, one string a record; ``"[]"`` alone where no record has any."""
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


def _base64_or_null(column: Any) -> Any:
    text = pc.binary_join_element_wise('"', base64_column(column.cast(pa.binary())), '"', "")
    return pc.fill_null(text, "null") if column.null_count else text
