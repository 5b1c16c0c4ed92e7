"""The decoders of a scan: the topic that each reads, and the columns that it makes of a record."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kts.cluster_records import columns as cluster
from kts.cluster_records.layout import TOPIC
from kts.coordinator_records import columns as coordinators
from kts.coordinator_records.columns import Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

METADATA = "metadata"


class RecordDecoder(NamedTuple):
    """The topic whose records are decoded, the columns, and whether keys and values are shown beside them.

    Those of the metadata log hold secrets, which its columns leave out.
    """

    topic: str
    columns: tuple[str, ...]
    has_raw: bool = True


DECODERS = {name: RecordDecoder(*known) for name, known in coordinators.DECODERS.items()}
DECODERS[METADATA] = RecordDecoder(TOPIC, cluster.COLUMNS, has_raw=False)
DECODED_COLUMNS = tuple(dict.fromkeys(name for decoder in DECODERS.values() for name in decoder.columns))


@cache
def column_types() -> dict[str, pa.DataType]:
    """The Arrow type of each column."""
    return coordinators.column_types() | cluster.column_types()


def decode_records(
    decoder: str, names: Iterable[str], keys: pa.Array, values: pa.Array, control: npt.NDArray[np.bool_]
) -> tuple[dict[str, pa.Array], list[Refused]]:
    """Columns of a decoder, and the records that cannot be decoded; control records have null."""
    if decoder != METADATA:
        return coordinators.decode_records(decoder, names, keys, values, control)
    columns, refused = cluster.decode_records(names, values, control)
    return columns, [Refused(*each) for each in refused.items()]
