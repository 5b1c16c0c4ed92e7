"""The small files of a log directory are checked."""

from __future__ import annotations

from pathlib import Path

import kts
from kts.offline.verify import verify


def test_checkpoint_files_of_a_log_directory_are_checked(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(kts.encode({"value": [b"a"]}))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_text("0\n1\nt 0 0\n")
    assert list(verify(tmp_path)) == []
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 0\n")
    assert [one.kind for one in verify(tmp_path)] == ["checkpoint"]
