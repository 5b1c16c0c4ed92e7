"""Avro values of a column become an Arrow array, each by the schema that it was written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kts.avro._datum import NO_ID, ids_of
from kts.avro.resolution import AvroColumns, Resolved
from kts.avro.schema import AvroTypes
from kts.errors import InvalidRecordError

HEADER = 5  # bytes in front of a value whose schema is in a registry: a 0, and the id of the schema
NO_HEADER = "the value does not begin with the id of a schema"


class AvroSchema(NamedTuple):
    """The text of a schema, or its JSON, and the schemas that it refers to, each behind those it refers to itself."""

    text: Any
    references: Sequence[Any] = ()


class AvroValues(NamedTuple):
    """Values of one type, null where the bytes are null or refused; and by row why they are refused."""

    values: pa.Array
    refused: dict[int, str]


def schema_of(given: Any) -> AvroSchema:
    """A schema with its references, of any form in which one may be given."""
    return given if isinstance(given, AvroSchema) else AvroSchema(given)


def ids_by_prefix(values: pa.Array) -> np.ndarray:
    """The id of the schema in front of each value of ``pyarrow.binary()``, or ``NO_ID``; anything where it is null."""
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets or bytes(4), np.int32)[values.offset : values.offset + len(values) + 1]
    return ids_of(edges, np.frombuffer(data or b"", np.uint8))


class AvroReader:
    """The columns of a reader's schema, filled with values of any writers' schemas.

    Parameters
    ----------
    schema : AvroSchema
    nanos : bool
        As for ``AvroColumns``.

    Attributes
    ----------
    type : pyarrow.DataType

    Raises
    ------
    ValueError
        Columns cannot have the schema.
    """

    def __init__(self, schema: AvroSchema, nanos: bool = True) -> None:
        types = AvroTypes(schema.text, schema.references)
        self._columns = AvroColumns(types, nanos)
        self.type = self._columns.type
        self.own = self._columns.program(types)

    def program(self, schema: AvroSchema) -> Resolved:
        """How values of a writer's schema fill the columns.

        Raises
        ------
        ValueError
            It is not an Avro schema.
        """
        return self._columns.program(AvroTypes(schema.text, schema.references))

    def read(
        self,
        values: pa.Array,
        programs: Sequence[Resolved],
        codes: np.ndarray | None = None,
        heads: np.ndarray | None = None,
        stop: bool = False,
    ) -> AvroValues:
        """Decode an array of ``pyarrow.binary()``; of each value ``codes`` has its program, -1 for null.

        Raises
        ------
        ValueError
            A column would pass 2 GiB.
        """
        valid, offsets, data = values.buffers()
        edges = np.frombuffer(offsets or bytes(4), np.int32)[values.offset : values.offset + len(values) + 1]
        try:
            made, wrong = self._columns.shape.read(
                [one.program for one in programs],
                edges,
                np.frombuffer(b"" if data is None else data, np.uint8),
                None if valid is None else np.frombuffer(valid, np.uint8),
                values.offset,
                codes,
                heads,
                stop,
            )
        except OverflowError:
            raise ValueError("a column would pass Arrow's 2 GiB; decode fewer values at a time") from None
        return AvroValues(
            _built(0, self.type, self._columns.below, made) if not (stop and wrong) else pa.nulls(0, self.type),
            {row: _reason(programs[code], why, position, node) for row, why, position, code, node in wrong},
        )


def _reason(resolved: Resolved, why: str | None, position: int, node: int) -> str:
    path = resolved.paths[node]
    place = f" in the field {path}" if path else ""
    return f"{resolved.reasons[node] if why is None else why}, at position {position}{place}"


def _built(
    number: int, type_: pa.DataType, below: Sequence[Sequence[int]], made: Sequence[tuple[Any, ...]]
) -> pa.Array:
    rows, nulls, *buffers, twice = made[number]
    valid, data, offsets = [None if one is None else pa.py_buffer(one) for one in buffers]
    if pa.types.is_struct(type_):
        children = []
        for at, child in enumerate(below[number]):
            children.append(_built(child, type_.field(at).type, below, made))
        return pa.Array.from_buffers(type_, rows, [valid], nulls, children=children)
    if pa.types.is_map(type_):
        keys = _built(below[number][0], type_.key_type, below, made)
        items = _built(below[number][1], type_.item_type, below, made)
        entries = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
        if twice:
            entries, offsets = _last_of_twins(entries, offsets, twice)
        return pa.Array.from_buffers(type_, rows, [valid, offsets], nulls, children=[entries])
    if pa.types.is_list(type_):
        item = _built(below[number][0], type_.value_type, below, made)
        return pa.Array.from_buffers(type_, rows, [valid, offsets], nulls, children=[item])
    if offsets is None:
        return pa.Array.from_buffers(type_, rows, [valid, data], nulls)
    return pa.Array.from_buffers(type_, rows, [valid, offsets, data or pa.py_buffer(b"")], nulls)


def _last_of_twins(entries: pa.Array, offsets: pa.Buffer, rows: Sequence[int]) -> tuple[pa.Array, pa.Buffer]:
    """The entries of maps without those whose key comes again in the same map: the value is the last one's."""
    edges = np.frombuffer(offsets, np.int32)
    sizes, parts, done = np.diff(edges), list[np.ndarray](), 0
    keys = entries.field(0)
    for row in rows:
        first, end = int(edges[row]), int(edges[row + 1])
        last = dict(zip(keys.slice(first, end - first).to_pylist(), range(first, end), strict=True))
        parts += [np.arange(done, first), np.fromiter(last.values(), np.int64)]
        sizes[row], done = len(last), end
    parts.append(np.arange(done, len(entries)))
    made = np.zeros(len(edges), np.int32)
    np.cumsum(sizes, out=made[1:])
    return entries.take(pa.array(np.concatenate(parts))), pa.py_buffer(made)


class AvroDecoder:
    """Decodes columns of Avro values; made once for any number of them.

    Parameters
    ----------
    schema : str, dict, list, AvroSchema, or mapping of int to these
        The schema that the values were written with. A mapping from the ids of a registry to schemas: each value
        begins with the id of its own, as Confluent's serialisers write it (a byte 0 and four bytes of the id).
    reader_schema : str, dict, list or AvroSchema, optional
        What the array has; without it, what the values were written with. A mapping needs it.

    Attributes
    ----------
    type : pyarrow.DataType
        Of the array.

    Raises
    ------
    ValueError
        A schema is not one of Avro, or columns cannot have it.
    """

    def __init__(self, schema: Any, *, reader_schema: Any = None) -> None:
        self._made_of = schema, reader_schema
        self._registry: Mapping[int, Any] | None = None
        if isinstance(schema, Mapping) and "type" not in schema:
            self._registry = schema
            if reader_schema is None:
                raise ValueError("reader_schema: give the schema that the array gets, as values have several")
        self._reader = AvroReader(schema_of(schema if reader_schema is None else reader_schema))
        self.type = self._reader.type
        self._programs: dict[int, Resolved | str] = {}
        self._plain = self._reader.own
        if self._registry is None and reader_schema is not None:
            self._plain = self._reader.program(schema_of(schema))

    def __reduce__(self) -> tuple[Any, ...]:
        """What it was made of: a UDF takes it to other processes."""
        schema, reader_schema = self._made_of
        return partial(AvroDecoder, reader_schema=reader_schema), (schema,)

    def decode(self, column: pa.Array | pa.ChunkedArray, *, on_error: str = "raise") -> Any:
        """Decode a column; see ``decode``."""
        if on_error not in ("raise", "null"):
            raise ValueError(f"on_error: expected raise or null, found {on_error!r}")
        if not isinstance(column, pa.ChunkedArray):
            return self._decoded(column, 0, on_error)
        parts, first = [], 0
        for chunk in column.chunks:
            parts.append(self._decoded(chunk, first, on_error))
            first += len(chunk)
        return pa.chunked_array(parts, self.type)

    def _decoded(self, values: pa.Array, first: int, on_error: str) -> pa.Array:
        found = self._all(values, on_error == "raise")
        if found.refused and on_error == "raise":
            row, why = min(found.refused.items())
            error = InvalidRecordError(f"row {first + row} is not Avro of its schema: {why}")
            error.record_errors = ((first + row, why),)
            raise error
        return found.values

    def decode_all(self, column: pa.Array) -> AvroValues:
        """Decode an array: the values, null where they are refused, and by row why they are."""
        return self._all(column, False)

    def _all(self, column: pa.Array, stop: bool) -> AvroValues:
        """``stop`` ends at the first value that is refused, without values."""
        if column.type != pa.binary():
            column = column.cast(pa.binary())
        if self._registry is None:
            return self._reader.read(column, [self._plain], stop=stop)
        coded = pa.array(ids_by_prefix(column)).dictionary_encode()
        codes, unique = coded.indices.to_numpy(), coded.dictionary.to_pylist()
        programs, wrong = list[Resolved](), dict[int, str]()
        for code, one in enumerate(unique):
            found = self._program(one)
            if isinstance(found, str):
                wrong[code] = found
            programs.append(self._plain if isinstance(found, str) else found)
        refused = dict[int, str]()
        if wrong:
            rows = np.flatnonzero(np.isin(codes, [*wrong]) & column.is_valid().to_numpy(zero_copy_only=False))
            refused = {row: wrong[code] for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True)}
            codes = codes.copy()
            codes[rows] = -1
        made = self._reader.read(column, programs, codes, np.full(len(column), HEADER, np.uint8), stop)
        return AvroValues(made.values, dict(sorted((made.refused | refused).items())))

    def _program(self, number: int) -> Resolved | str:
        """The program of an id, or why values with it are refused."""
        if number == NO_ID:
            return NO_HEADER
        found = self._programs.get(number)
        if found is None:
            given = None if self._registry is None else self._registry.get(number)
            if given is None:
                return f"the registry has no schema {number}"
            try:
                found = self._reader.program(schema_of(given))
            except ValueError as error:
                found = f"the schema {number}: {error}"
            self._programs[number] = found
        return found


def decode(
    column: pa.Array | pa.ChunkedArray, schema: Any, *, reader_schema: Any = None, on_error: str = "raise"
) -> Any:
    """Decode Avro values, one in each entry of a binary column, into an Arrow array.

    Parameters
    ----------
    column : pyarrow.Array or ChunkedArray
        Of binary values; null stays null.
    schema : str, dict, list, AvroSchema, or mapping of int to these
        The schema that the values were written with. A mapping from the ids of a registry to schemas: each value
        begins with the id of its own, as Confluent's serialisers write it (a byte 0 and four bytes of the id).
    reader_schema : str, dict, list or AvroSchema, optional
        What the array has; without it, what the values were written with. A mapping needs it.
    on_error : {"raise", "null"}
        What a value gets that does not decode.

    Returns
    -------
    pyarrow.Array or ChunkedArray

    Raises
    ------
    InvalidRecordError
        A value does not decode: the words have its row, the field, and the position in the value; ``record_errors``
        has the row.
    ValueError
        A schema is not one of Avro, columns cannot have it, or a column would pass 2 GiB.

    Notes
    -----
    The work is done in compiled code without the interpreter's lock, and within bounds: a value has at most 500
    levels, and no count or length in it is believed beyond its bytes. ``AvroDecoder`` keeps what was made of the
    schemas. A record is a struct, an enum text, a union of null and one type that type, and a union of several a
    struct with a member for each. Of two equal keys of a map the last counts.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import kts.avro
    >>> schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
    >>> kts.avro.decode(pa.array([b"\\x02", None]), schema).to_pylist()
    [{'a': 1}, None]
    """
    return AvroDecoder(schema, reader_schema=reader_schema).decode(column, on_error=on_error)
