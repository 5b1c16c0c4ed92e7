"""What was decoded with all columns is encoded again to the same batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import data_root, golden_logs

import kts

LOGS = [log for log in golden_logs() if log.stat().st_size]
every_log = pytest.mark.parametrize("log", LOGS, ids=[str(log.relative_to(data_root() / "golden")) for log in LOGS])

# What a different compressor may change; everything else has to come back.
PLACE = {"position"}


def again(data: bytes) -> bytes:
    return kts.encode(kts.decode(data, kts.ALL_COLUMNS), preserve_batches=True)


def comparable(decoded: pa.RecordBatch) -> list[dict[str, object]]:
    wide = pa.Table.from_batches([decoded]).drop_columns(list(PLACE))
    for name in ("timestamp", "createTimestamp"):
        wide = wide.set_column(wide.schema.get_field_index(name), name, wide.column(name).cast(pa.int64()))
    return wide.to_pylist()


def is_plain(log: Path) -> bool:
    """Neither compressed nor with an empty batch, which leaves no row to come back from."""
    batches = kts.scan_batches(log.read_bytes())
    codecs, counts = batches.column("codec").to_pylist(), batches.column("count").to_pylist()
    return not any(codecs) and all(counts)


@pytest.mark.slow
@every_log
def test_plain_files_come_back_byte_for_byte_and_others_record_for_record(log: Path) -> None:
    data = log.read_bytes()
    if is_plain(log):
        assert again(data) == data
    else:
        assert comparable(kts.decode(again(data), kts.ALL_COLUMNS)) == comparable(kts.decode(data, kts.ALL_COLUMNS))


def test_the_golden_files_have_plain_ones_of_every_magic() -> None:
    magics = [set(kts.scan_batches(log.read_bytes()).column("magic").to_pylist()) for log in LOGS if is_plain(log)]
    counts = {magic: sum(magic in found for found in magics) for magic in (0, 1, 2)}
    print(f"{len(magics)} of {len(LOGS)} files compared byte for byte; with magic 0, 1, 2: {counts}")
    assert min(counts.values()) >= 5
