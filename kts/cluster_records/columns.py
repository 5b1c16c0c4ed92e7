"""Records of ``__cluster_metadata`` as Arrow columns.

Each different value is read once per batch, so that a million equal ones (NoOp) cost no more than one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.cluster_records.layout import DecodedRecord, read_record, record_types
from kts.cluster_records.names import ACL_RESOURCE_TYPES, RESOURCE_TYPES, named
from kts.cluster_records.secrets import without_secrets
from kts.errors import InvalidRequestError, KtsError
from kts.model import uuid_text
from kts.protocol.fields import Field

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

COLUMNS = (
    "recordType",
    "apiKey",
    "recordVersion",
    "name",
    "topicId",
    "partitionId",
    "brokerId",
    "resourceType",
    "resourceName",
    "configKey",
    "configValue",
    "fields",
    "unknown",
)


@cache
def column_types() -> dict[str, pa.DataType]:
    """The Arrow type of each column."""
    import pyarrow as pa

    numbers = {"apiKey": pa.int16(), "recordVersion": pa.int16(), "partitionId": pa.int32(), "brokerId": pa.int32()}
    return {name: numbers.get(name, pa.string()) for name in COLUMNS}


def decode_records(
    names: Iterable[str], values: pa.Array, control: npt.NDArray[np.bool_] | None = None
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Columns, and for each row that cannot be decoded, and is null, why.

    Parameters
    ----------
    names : iterable of str
        Of ``COLUMNS``.
    values : pyarrow.Array
        Binary or binary views.
    control : array of bool, optional
        Control records, whose columns are null.
    """
    import pyarrow as pa

    coded = values.cast(pa.binary()).dictionary_encode(null_encoding="encode")
    places = coded.indices.to_numpy(zero_copy_only=False)
    data = np.ones(len(values), bool) if control is None else ~control
    wanted = np.zeros(len(coded.dictionary), bool)
    wanted[places[data]] = True
    rows: list[Mapping[str, Any]] = []
    reasons: dict[int, str] = {}
    names = tuple(names)
    for number, value in enumerate(coded.dictionary.to_pylist()):
        row: Mapping[str, Any] = {}
        if wanted[number]:
            try:
                row = _row(_read(value), "fields" in names)
            except KtsError as error:
                reasons[number] = error.message
        rows.append(row)
    refused = np.flatnonzero(data & np.isin(places, list(reasons))).tolist() if reasons else ()
    taken = pa.array(places, mask=~data)
    types = column_types()
    columns = {name: pa.array([row.get(name) for row in rows], types[name]).take(taken) for name in names}
    return columns, {row: reasons[int(places[row])] for row in refused}


def _read(value: bytes | None) -> DecodedRecord:
    if value is None:
        raise InvalidRequestError("value: expected a record, found null")
    return read_record(value)


# The columns that a type's fields fill, where their names differ.
_COLUMNS = {
    "AccessControlEntry": {"resourceName": "resourceName"},
    "ClearElr": {"topicName": "name"},
    "Config": {"resourceName": "resourceName", "name": "configKey", "value": "configValue"},
    "FenceBroker": {"id": "brokerId"},
    "UnfenceBroker": {"id": "brokerId"},
}
_RESOURCES = {"Config": RESOURCE_TYPES, "AccessControlEntry": ACL_RESOURCE_TYPES}
_SAME = {name: name for name in ("name", "topicId", "partitionId", "brokerId")}


def _row(found: DecodedRecord, as_json: bool) -> dict[str, Any]:
    """The columns of a record."""
    row: dict[str, Any] = {
        "recordType": found.name,
        "apiKey": found.api_key,
        "recordVersion": found.version,
        "unknown": found.unknown,
    }
    if found.fields is None or found.name is None:
        return row
    fields = without_secrets(found.name, found.fields)
    for field, column in (_SAME | _COLUMNS.get(found.name, {})).items():
        if field in fields:
            row[column] = uuid_text(fields[field]) if field == "topicId" else fields[field]
    if found.name in _RESOURCES:
        row["resourceType"] = named(_RESOURCES[found.name], fields["resourceType"])
    if as_json:
        shown = _as_json(record_types()[found.api_key].fields, found.version, fields)
        row["fields"] = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return row


def _as_json(fields: Iterable[Field], version: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a version as Kafka's converters to JSON write them: without tagged fields that have their default.

    Source: MetadataJsonConverters.
    """
    return {
        field.name: _json_value(field, version, found[field.name])
        for field in fields
        if version in field.versions and (field.tag is None or found[field.name] != field.default)
    }


def _json_value(field: Field, version: int, value: Any) -> Any:
    if isinstance(value, list):
        one = field._replace(is_array=False)
        return [_json_value(one, version, each) for each in value]
    if isinstance(value, dict):
        return _as_json(field.fields, version, value)
    if isinstance(value, bytes):
        return uuid_text(value) if field.type == "uuid" else base64.b64encode(value).decode()
    return value
