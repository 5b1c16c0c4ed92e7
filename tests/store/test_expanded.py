"""Compressed logs: what is decompressed, where it lies, and how much it may be."""

from __future__ import annotations

import gzip
import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from support.sets.biglog import write_log
from support.sets.compressed import compress_logs

import kts
from kts.store import expanded


@pytest.mark.slow
def test_a_bomb_takes_neither_memory_nor_more_disk_than_the_largest_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expanded, "LARGEST_LOG_BYTES", 2**26)
    zeros = b"\0" * 2**24
    bombs = {".gz": gzip.compress(zeros) * 64, ".zst": zstandard.compress(zeros) * 64}
    for suffix, bomb in bombs.items():
        path = tmp_path / f"{0:020}.log{suffix}"
        path.write_bytes(bomb)
        tracemalloc.start()
        with pytest.raises(kts.CorruptRecordError, match=r"larger than 67108864 bytes") as error:
            kts.scan(path).read_all()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert error.value.position is not None and error.value.position <= 2**26
        assert peak < 2**26, f"{suffix}: {peak}"


def test_only_some_temporary_files_stay_and_none_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(expanded, "_KEPT_EXPANSIONS", 2)
    (tmp_path / "tmp").mkdir()
    write_log(tmp_path / "t-0", 5, 100)
    expected = kts.scan(tmp_path / "t-0").read_all()
    compress_logs(tmp_path / "t-0")
    for _ in range(2):
        assert kts.scan(tmp_path / "t-0").read_all() == expected
    assert len([one for one in expanded._expansions.values() if one.file is not None]) <= 2
    assert os.listdir(tmp_path / "tmp") == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    (tmp_path / f"{0:020}.log.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(kts.LogStorageError, match="making a temporary file in .*none failed"):
        kts.scan(tmp_path / f"{0:020}.log.gz").read_all()
