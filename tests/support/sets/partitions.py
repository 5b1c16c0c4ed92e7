"""Small partitions, and what a scan of them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kts


def log_of(tmp_path: Path, times: list[int], name: str = "t-0", per_segment: int = 3, **options: Any) -> Path:
    """A partition of single-record batches, without index files."""
    directory = tmp_path / name
    directory.mkdir(parents=True)
    for offset, ms in enumerate(times):
        with (directory / f"{offset - offset % per_segment:020}.log").open("ab") as file:
            file.write(kts.encode({"timestamp": [ms], "value": [b"%d" % offset]}, base_offset=offset, **options))
    return directory


def offsets(path: Any, **options: Any) -> list[int]:
    """The offsets that a scan gives."""
    found: list[int] = kts.scan(path, columns=["offset"], **options).read_all().column(0).to_pylist()
    return found


def flip(path: Path, position: int, value: int = 0xFF) -> None:
    """Change bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= value
    path.write_bytes(data)
