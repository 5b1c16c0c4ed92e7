"""Log directories that are copied, and what their copies must be."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path
from typing import Any

import kts
from kts.offline.copy import CopiedSegment
from kts.offline.verify import verify
from kts.segment.names import CLEAN_SHUTDOWN

T = 1_700_000_000_000
TOPIC_ID = "AAAAAAAAQACAAAAAAAAAAA"
WHOLE: dict[str, Any] = {"columns": list(kts.ALL_COLUMNS), "include_control": True}
SMALL = {"segment.bytes": 1000, "index.interval.bytes": 100}


def write(folder: Path, batches: int = 24, *, name: str = "t-0", start_ms: int = T, **named: Any) -> Path:
    """A log directory with a partition of some segments, a batch for each second: three records, the last one late."""
    with kts.Log(folder / name, SMALL, topic_id=TOPIC_ID, **named) as log:
        first = log.log_end_offset // 3
        for n in range(first, first + batches):
            times = [start_ms + 1000 * n + late for late in (0, 1, -1500)]
            log.append_rows({"timestamp": times, "value": [b"%d" % n, b"x" * 60, b"y"]})
    return folder


def records(path: Path | str, **named: Any) -> Any:
    return kts.scan(path, **(WHOLE | named)).read_all()


def states(done: list[CopiedSegment]) -> list[str]:
    return [one.state for one in done]


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*/*.log"))


def check_equal(source: Path, target: Path) -> None:
    """The copy is as after a clean stop, and says what the source says."""
    assert records(target) == records(source)
    assert list(map(str, verify(target, deep=True))) == []
    assert (target / CLEAN_SHUTDOWN).exists()
    assert [name for name in os.listdir(target) if name.startswith("kts-copy")] == []
    theirs = kts.open_log_dirs(source)
    for key, log in kts.open_log_dirs(target).items():
        assert (log.topic_id, log.leader_epochs) == (theirs[key].topic_id, theirs[key].leader_epochs)
        assert (log.log_start_offset, log.log_end_offset) == (
            theirs[key].log_start_offset,
            theirs[key].log_end_offset,
        )


def same_files(one: Path, other: Path) -> int:
    """The number of files in two trees, which are equal."""
    found = [sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file()) for root in (one, other)]
    assert found[0] == found[1]
    assert filecmp.cmpfiles(one, other, found[0], shallow=False)[1:] == ([], [])
    return len(found[0])
