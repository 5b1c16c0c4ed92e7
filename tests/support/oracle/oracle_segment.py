"""Cases of the family segment, asked of kts.segment.log_segment: steps on one segment in a directory of its own."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from support.oracle.oracle_errors import error_object

import kts
from kts.segment.log_segment import LogSegment

QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # nothing is asked of the disk
FILES = {"log": ".log", "index": ".index", "timeindex": ".timeindex"}
Answer = dict[str, Any]


def segment(case: dict[str, Any]) -> Answer:
    """Answers to the steps of one case."""
    with tempfile.TemporaryDirectory(dir=QUICK) as directory:
        run = Run(case, directory)
        return {"answers": [run.step(step) for step in case["steps"]]}


class Run:
    """A segment with the shipped rules of one release, and what was asked of it."""

    def __init__(self, case: dict[str, Any], directory: str) -> None:
        self.case, self.directory = case, directory
        self.gen: str = case["gen"]
        self.segment = self.opened()

    def opened(self) -> LogSegment:
        config = kts.LogConfig.of(
            {
                "index.interval.bytes": self.case["index_interval_bytes"],
                "segment.index.bytes": self.case["segment_index_bytes"],
            },
            release=self.gen,
        )
        behaviour = config.behaviour(shipped=True)
        return LogSegment(self.directory, self.case["base"], config, behaviour, now_ms=self.case["now"])

    def step(self, step: dict[str, Any]) -> Answer:
        answer: Answer = {}
        try:
            found = getattr(self, step["do"])(step)
            if found is not None:
                answer.update(found)
        except kts.KtsError as error:
            answer["error"] = self.error(error)
            if self.gen == "0.10.2" and step["do"] == "append" and not self.segment.fits(step["largest_offset"]):
                answer["error"]["class"] = "IllegalArgumentException"
            if step["do"] not in ("append", "inactive"):
                return answer
        return answer | self.state(step["do"])

    def state(self, do: str) -> Answer:
        if do in ("lookup_ts", "lookup_offset", "find", "waited", "next_offset", "largest_ts", "damage"):
            return {}
        one = self.segment
        entries = {"index_entries": one.offset_index.entries, "timeindex_entries": one.time_index.entries}
        if do == "append":
            return {"size": one.size, **entries}
        return {
            "size": one.size,
            **entries,
            "index": base64.b64encode(one.offset_index.read()).decode(),
            "timeindex": base64.b64encode(one.time_index.read()).decode(),
            "index_file_len": os.stat(one.offset_index.path).st_size,
            "timeindex_file_len": os.stat(one.time_index.path).st_size,
        }

    def error(self, error: kts.KtsError) -> Answer:
        runtime = isinstance(error, kts.CorruptIndexError) and self.gen == "0.10.2"
        return error_object(error, "IllegalArgumentException" if runtime else None)

    def attempt(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except kts.KtsError as error:
            return self.error(error)

    # --- one method a step ------------------------------------------------------------------------

    def append(self, step: Answer) -> None:
        self.segment.append(
            base64.b64decode(step["bytes"]),
            step["first_offset"],
            step["largest_offset"],
            step["largest_ts"],
            step["offset_of_largest_ts"],
        )

    def lookup_ts(self, step: Answer) -> Answer:
        return {"answer": [list(self.segment.time_index.lookup(one)) for one in step["ts"]]}

    def lookup_offset(self, step: Answer) -> Answer:
        return {"answer": [list(self.segment.offset_index.lookup(one)) for one in step["offsets"]]}

    def find(self, step: Answer) -> Answer:
        start = step.get("starting_offset")
        return {"answer": list(self.finds(step["ts"], start))}

    def finds(self, timestamps: Iterable[int], start: int | None) -> Iterable[Any]:
        for one in timestamps:
            found = self.attempt(lambda one=one: self.segment.find_offset_by_timestamp(one, start))
            yield list(found) if isinstance(found, tuple) else found

    def waited(self, step: Answer) -> Answer:
        return {"answer": self.segment.time_waited_for_roll(step["now"], step["ts"])}

    def truncate(self, step: Answer) -> Answer:
        return {"answer": self.segment.truncate_to(step["offset"], self.case["now"])}

    def inactive(self, _: Answer) -> None:
        if self.gen == "0.10.2":  # its log trims the indexes
            self.segment.append_closing_entry()
        else:
            self.segment.on_become_inactive_segment()

    def next_offset(self, _: Answer) -> Answer:
        return {"answer": self.segment.next_offset()}

    def largest_ts(self, _: Answer) -> Answer:
        return {"answer": self.segment.time_index.last_entry[0]}

    def close(self, _: Answer) -> Answer:
        self.segment.close()
        return {"log_file_len": os.stat(self.segment.path).st_size}

    def open(self, _: Answer) -> Answer:
        self.segment = self.opened()
        answers = {
            "index_sanity": self.attempt(self.segment.offset_index.sanity_check),
            "timeindex_sanity": self.attempt(self.segment.time_index.sanity_check),
        }
        return {name: error for name, error in answers.items() if error is not None}

    def damage(self, step: Answer) -> None:
        stem = self.segment.path.removesuffix(".log")
        for one in step["damage"]:
            damage(stem + FILES[one["file"]], one)

    def recover(self, _: Answer) -> Answer:
        return {"answer": self.segment.recover().bytes_cut}

    def resize(self, _: Answer) -> None:
        self.segment.resize_indexes()

    def dump(self, _: Answer) -> None:
        """Only the state is asked for."""


def damage(path: str, how: dict[str, Any]) -> None:
    """Change a closed file."""
    if how["op"] == "delete":
        if os.path.exists(path):  # 3.9 makes indexes when it is first asked for them
            os.remove(path)
        return
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if how["op"] == "cut":
        del data[max(len(data) - how["n"], 0) :]
    elif how["op"] == "append":
        data += base64.b64decode(how["data"])
    elif how["op"] == "zeros":
        data += bytes(how["n"])
    elif how["op"] == "flip" and data:
        data[how["at"] % len(data)] ^= how["mask"]
    with open(path, "wb") as file:
        file.write(data)
