"""Partitions that grow while something else reads them."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import kts

PAUSE_S = 0.03  # between two appends
JSON_SCHEMA = (
    '{"type": "object", "properties": {"p": {"type": "integer"}, "o": {"type": "integer"}}, "required": ["p", "o"]}'
)


class Writer(threading.Thread):
    """Appends records that say where they are, as ``partition:offset``, until told to stop."""

    def __init__(self, folder: Path, rng: random.Random, config: dict[str, Any]) -> None:
        super().__init__()
        self.folder, self.rng, self.config = folder, rng, config
        self.logs: list[kts.Log] = []
        self.done = threading.Event()
        for _ in range(2):
            self.add_partition()

    def add_partition(self) -> None:
        self.logs.append(kts.Log(self.folder / f"orders-{len(self.logs)}", self.config))

    def run(self) -> None:
        while not self.done.wait(PAUSE_S):
            log = self.rng.choice(self.logs)
            self.append(log, range(log.log_end_offset, log.log_end_offset + self.rng.randrange(1, 40)))

    def append(self, log: kts.Log, offsets: range) -> None:
        log.append_rows({"value": [b"%d:%d" % (log.partition, offset) + b" " * 70 for offset in offsets]})

    def stop(self) -> list[int]:
        """The ends of the partitions, which stay what they are."""
        if self.is_alive():
            self.done.set()
            self.join()
        ends = [log.log_end_offset for log in self.logs]
        for log in self.logs:
            log.close()
        return ends


class JsonWriter(Writer):
    """The same as JSON of ``JSON_SCHEMA``, of which a tenth does not decode."""

    def append(self, log: kts.Log, offsets: range) -> None:
        values = [json.dumps({"p": log.partition, "o": offset}).encode() for offset in offsets]
        log.append_rows({"value": [value if self.rng.random() < 0.9 else b"{" + value for value in values]})
        log.checkpoint()  # readers take what lies below the last high watermark that was written
