"""Cases of the family log, asked of kts.Log: steps on a whole partition with a clock of their own."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from support.oracle.oracle_errors import error_object
from support.oracle.oracle_segment import FILES, damage

import kts
from kts.behaviour import Behaviour
from kts.log.targets import offset_of_target
from kts.segment.log_segment import LogSegment

Answer = dict[str, Any]
# The step at which a set was first compressed again, not with gzip: other releases of a library give other bytes.
COMPRESSED_ANEW: dict[str, int] = {}
MEMORY = "/dev/shm"  # a file system on which syncing costs nothing
NAMES: dict[str, list[str]] = {}  # the files that each case left
COUNTED = re.compile(r"[0-9]{20}\.(log|index|timeindex)(\.deleted)?")


def log(case: dict[str, Any]) -> Answer:
    """Answers to the steps of one case."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as directory:
        return Run(case, Path(directory)).answer()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sha1_8(data: bytes) -> str:
    return text(hashlib.sha1(data).digest()[:8])


def entries(records: bytes) -> int:
    """How many messages and batches lie there, by their sizes alone: of unknown magic too."""
    count = position = 0
    while position < len(records):
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        count += 1
    return count


def config_of(case: dict[str, Any]) -> dict[str, str]:
    """The settings of a case as its release knows them: those of 4.3 are written as for 3.9, unless small sizes are."""
    config = dict(case["config"])
    behaviour = Behaviour.of(case["gen"])
    if not behaviour.unknown_settings:
        return config
    if "segment.bytes" in config:
        config["internal.segment.bytes"] = config.pop("segment.bytes")
    return {name: value for name, value in config.items() if name not in behaviour.unknown_settings}


class Run:
    """A partition with the shipped rules of one release, and what was asked of it.

    The recorded file times follow the clock: every `.log` file has the time of the step that last changed its size.
    """

    def __init__(self, case: dict[str, Any], directory: Path) -> None:
        self.case = case
        self.old = case["gen"] == "0.10.2"
        self.directory = directory / "t-0"
        self.now: int = case["now"]
        self.number = 0
        self.known: dict[int, tuple[int, int]] = {}
        self.log = self.opened()

    def opened(self, **known: int) -> kts.Log:
        return kts.Log(
            self.directory,
            config_of(self.case),
            release=self.case["gen"],
            shipped=True,
            clock=lambda: self.now,
            **known,
        )

    def answer(self) -> Answer:
        out: Answer = {"initial": self.state(), "answers": []}
        try:
            for number, step in enumerate(self.case["steps"]):
                self.number = number
                answer: Answer = {}
                try:
                    answer.update(getattr(self, step["do"])(step) or {})
                except kts.KtsError as error:
                    answer["error"] = self.error(error, step)
                    if step["do"] == "reopen":
                        return {**out, "answers": [*out["answers"], answer], "aborted": True}
                out["answers"].append(answer | self.state())
            names = [path.name for path in sorted(self.directory.iterdir()) if COUNTED.fullmatch(path.name)]
            NAMES[self.case["id"]] = names
            return {**out, "files": names, "final": [self.final(segment) for segment in self.log.segments]}
        finally:
            self.log.abandon()

    def state(self) -> Answer:
        for segment in self.log.segments:
            size, time = self.known.get(segment.base_offset, (-1, 0))
            if size != segment.size:
                self.known[segment.base_offset] = segment.size, (time := self.now)
            os.utime(segment.path, ns=(time * 1_000_000,) * 2)
        segments = [[one.base_offset, one.size, one.largest_timestamp_ms] for one in self.log.segments]
        return {"segments": segments, "start": self.log.log_start_offset, "end": self.log.log_end_offset}

    def final(self, segment: LogSegment) -> Answer:
        return {
            "base": segment.base_offset,
            "size": segment.size,
            "index": text(segment.offset_index.read()),
            "timeindex": text(segment.time_index.read()),
            "index_file_len": os.stat(segment.offset_index.path).st_size,
            "timeindex_file_len": os.stat(segment.time_index.path).st_size,
            "index_entries": segment.offset_index.entries,
            "timeindex_entries": segment.time_index.entries,
            "log_sha1_8": sha1_8(Path(segment.path).read_bytes()),
        }

    def error(self, error: kts.KtsError, step: Answer) -> Answer:
        name = None
        if step["do"] == "append_follower" and isinstance(error, kts.InvalidOffsetError):
            name = "IllegalArgumentException" if self.old else "OffsetsOutOfOrderException"
        return error_object(error, name)

    # --- one method a step ------------------------------------------------------------------------

    def clock(self, step: Answer) -> None:
        self.now = step["now"]
        self.log.delete_due_files()

    def append(self, step: Answer) -> Answer:
        records = base64.b64decode(step["bytes"])
        return self.appended(self.log.append(records, leader_epoch=0), records)

    def append_follower(self, step: Answer) -> Answer:
        records = base64.b64decode(step["bytes"])
        return self.appended(self.log.append_as_follower(records), records, follower=True)

    def appended(self, done: Any, records: bytes, follower: bool = False) -> Answer:
        if done.size_maybe_changed and done.target_codec not in (0, 1):
            COMPRESSED_ANEW.setdefault(self.case["id"], self.number)
        untold = follower and not self.old and done.entries and done.records[16] < 2
        return {
            "first_offset": -1 if untold else done.first_offset,
            "last_offset": done.last_offset,
            "max_timestamp": done.max_timestamp_ms,
            "offset_of_max_timestamp": done.offset_of_max_timestamp,
            "log_append_time": done.log_append_time_ms,
            "shallow_count": entries(records[: done.valid_bytes]),
            "valid_bytes": done.valid_bytes,
        }

    def retention(self, _: Answer) -> Answer:
        return {"answer": len(self.log.delete_old_segments())}

    def fetch_ts(self, step: Answer) -> Answer:
        return {"answer": [self.fetched(target) for target in step["ts"]]}

    def fetched(self, target: int) -> Any:
        try:
            found = offset_of_target(self.log, target)
        except kts.KtsError as error:
            return error_object(error)
        return None if found is None else list(found)

    def roll(self, _: Answer) -> Answer:
        return {"answer": self.log.roll()}

    def truncate(self, step: Answer) -> Answer:
        return {"answer": self.log.truncate_to(step["offset"])}

    def truncate_fully(self, step: Answer) -> None:
        self.log.truncate_fully_and_start_at(step["offset"])

    def start_offset(self, step: Answer) -> Answer:
        return {"answer": self.log.advance_log_start_offset(step["offset"])}

    def read(self, step: Answer) -> Answer:
        found = self.log.read(step["offset"], step["max"], min_one_message=step["min_one"])
        return {
            "size": len(found.records),
            "sha1_8": sha1_8(found.records),
            "first_entry_incomplete": found.first_entry_incomplete,
        }

    def reopen(self, step: Answer) -> Answer:
        last, known = self.log.segments[-1].base_offset, {"log_start_offset": self.log.log_start_offset}
        if step["clean"]:
            self.log.close()
        else:
            self.log.abandon()
            known["recovery_point"] = step["recovery_point"]
        for one in step.get("damage", ()):
            damage(str(self.directory / f"{one.get('base', last):020d}{FILES[one['file']]}"), one)
        self.log = self.opened(**known)
        return {"recovery_point": self.log.recovery_point}
