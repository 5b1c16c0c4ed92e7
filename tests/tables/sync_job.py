"""A program that synchronises again and again, to be killed.

Usage: sync_job.py LOG_DIRECTORY WORK_DIRECTORY ARGUMENTS. The arguments of ``kts.tables.sync`` are JSON. It prints a
line for each commit. Once WORK_DIRECTORY/finish exists, it reads what is left and ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kts.tables import sync


def main(logs: Path, work: Path, asked: dict[str, Any]) -> None:
    last = False
    while not last:
        last = (work / "finish").exists()
        often = {} if last else {"commit_bytes": 2000}
        done = sync(logs, fail_on_data_loss=False, **often, **asked)
        for added in done.tables:
            print("commit\n" * added.commits, end="", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
