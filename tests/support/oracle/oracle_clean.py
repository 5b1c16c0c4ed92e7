"""Cases of the families clean and view, asked of kts.Log: a compacted partition, passes, what consumers see."""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.oracle.oracle_errors import error_object
from support.oracle.oracle_log import MEMORY, config_of, text

import kts
from kts.codec.layout import Entries
from kts.log import cleaner
from kts.log import log as opened_log
from kts.log.cleaner import CleaningPass
from kts.segment.log_segment import LogSegment
from kts.segment.names import CLEANER_OFFSETS
from kts.segment.transactions import read_aborted

Answer = dict[str, Any]
SLOT_BYTES = 24
COUNTED = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)(\.[a-z]+)?")
STATS = {
    "bytesRead": "bytes_read",
    "bytesWritten": "bytes_written",
    "mapMessagesRead": "mapped_records",
    "messagesRead": "records_read",
    "invalidMessagesRead": "without_key",
    "messagesWritten": "records_written",
}


def clean(case: dict[str, Any], *, shipped: bool = True) -> Answer:
    """Answers to the steps of one case of either family."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as directory:
        return Run(case, Path(directory), shipped).answer()


view = clean


def softened(expected: Answer, answer: Answer) -> tuple[Answer, Answer]:
    """Both without what depends on a compressor, where a pass compressed a batch anew."""
    expected, answer = copy.deepcopy(expected), copy.deepcopy(answer)
    for theirs, ours in zip(expected["answers"], answer["answers"], strict=False):
        before = theirs.pop("exact_bytes", True)
        exact = [one.pop("exact", True) for one in theirs.get("segments", ())]
        for said in (theirs, ours):
            if not before:
                for name in ("clean_bytes", "cleanable_bytes"):
                    said.pop(name, None)
                said["before"] = [one[0] for one in said["before"]]
                said.get("stats", {}).pop("bytesRead", None)
            if not (before and all(exact)):
                said.get("stats", {}).pop("bytesWritten", None)
            for is_exact, segment in zip(exact, said.get("segments", ()), strict=False):
                if not is_exact:
                    _soften_segment(segment)
    return expected, answer


def _soften_segment(segment: Answer) -> None:
    for name in ("size", "sha1", "index", "timeindex"):
        segment.pop(name, None)
    for batch in segment.get("batches", ()):
        del batch["pos"], batch["size"]


class Run:
    """A compacted partition with the rules of one release, and what was asked of it."""

    def __init__(self, case: dict[str, Any], directory: Path, shipped: bool) -> None:
        self.case = case
        self.is_view = any(step["do"] == "view" for step in case["steps"])
        self.directory = directory / "t-0"
        self.now: int = case["now"]
        self.config = dict(case["config"])
        self.known: dict[int, int] = {}  # size of each segment
        self.batches: set[bytes] = set()  # all that were in the log before the last pass
        expires = (
            {"producer_id_expiration_ms": case["producer_id_expiration_ms"]}
            if ("producer_id_expiration_ms" in case)
            else {}
        )
        self.log = kts.Log(
            self.directory,
            self.settings(),
            release=case["gen"],
            shipped=shipped,
            clock=lambda: self.now,
            high_watermark=0,
            **expires,
        )

    def settings(self) -> dict[str, str]:
        return config_of({**self.case, "config": self.config})

    def answer(self) -> Answer:
        answers = []
        try:
            for step in self.case["steps"]:
                answer: Answer = {}
                try:
                    answer.update(getattr(self, "config_step" if step["do"] == "config" else step["do"])(step) or {})
                except kts.KtsError as error:
                    answer["error"] = error_object(error)
                self.stamp(cleaned=step["do"] == "clean")
                if step["do"] == "append":
                    answer["segment"] = self.log.segments[-1].base_offset
                answers.append(answer)
            return {"answers": answers}
        finally:
            self.log.abandon()

    def stamp(self, cleaned: bool) -> None:
        """The recorded file times follow the clock; a cleaned segment has that of the last one it was made of."""
        for segment in self.log.segments:
            if self.known.get(segment.base_offset) != segment.size:
                self.known[segment.base_offset] = segment.size
                if not cleaned:
                    os.utime(segment.path, ns=(self.now * 1_000_000,) * 2)

    # --- one method a step ------------------------------------------------------------------------

    def clock(self, step: Answer) -> None:
        self.now = step["now"]
        self.log.delete_due_files()

    def append(self, step: Answer) -> Answer:
        if "stored" not in step:
            origin = "coordinator" if step.get("marker") else "client"
            sent = base64.b64decode(step["sent"])
            self.log.append(sent, leader_epoch=step["leader_epoch"], origin=origin)
            return {}
        stored = base64.b64decode(step["stored"])
        self.log.append_as_follower(stored, segment_base=step["segment"])
        if not step.get("keep_hw"):
            self.log.advance_high_watermark(self.log.log_end_offset)
        offsets = kts.decode(stored, ["offset"]).column(0)
        return {"first_offset": offsets[0].as_py(), "last_offset": offsets[-1].as_py()}

    def roll(self, _: Answer) -> Answer:
        return {"answer": self.log.roll()}

    def config_step(self, step: Answer) -> None:
        self.config |= step["set"]
        self.log.reconfigure(self.settings())

    def checkpoint(self, step: Answer) -> None:
        self.log._entry.write_checkpoint(CLEANER_OFFSETS, step["offset"])

    def start_offset(self, step: Answer) -> Answer:
        return {"answer": self.log.advance_log_start_offset(step["offset"])}

    def expire_producers(self, _: Answer) -> None:
        self.log.remove_expired_producers()

    # --- a pass -----------------------------------------------------------------------------------

    def clean(self, step: Answer) -> Answer:
        for name in os.listdir(self.directory):
            if name.endswith(".deleted"):
                os.remove(self.directory / name)
        log = self.log
        plan = log._cleanable(self.now)
        selected = log.config.compacted and plan.why_not(log.config) is None
        begins = log.config.compacted and (selected or bool(step.get("force") and plan.cleanable_bytes))
        if self.is_view:
            answer: Answer = {"cleaned": begins}
        else:
            answer = self.before() | {
                "first_dirty": plan.first_dirty_offset,
                "first_uncleanable": plan.first_uncleanable_offset,
                "force_checkpoint": plan.resets_checkpoint,
                "compaction_delay": plan.overdue_ms,
                "uncleanable_segment": plan.end_offset,
                "clean_bytes": plan.clean_bytes,
                "cleanable_bytes": plan.cleanable_bytes,
                "selected": selected,
                "cleaned": begins,
            }
        logs = {segment.base_offset: Path(segment.path).read_bytes() for segment in log.segments}
        self.batches = {batch for data in logs.values() for batch in batches_of(data)}
        with watched(self.case["io_buffer"]) as passes:
            try:
                done = log.clean(
                    force=step.get("force", False),
                    dedupe_buffer_bytes=SLOT_BYTES * self.case["map_slots"],
                    load_factor=self.case["load_factor"],
                )
            except kts.KtsError as error:
                answer["error"] = error_object(error)
            else:
                if begins:
                    answer["checkpoint"] = done.next_dirty_offset
        if not begins or self.is_view:
            return answer
        run = passes[0]
        counts = run.cleaner.counts()
        answer |= {
            "map_size": run.cleaner.keys,
            "groups": run.seen,
            "segments": [self.segment(segment, logs.get(segment.base_offset)) for segment in log.segments],
            "files": self.files(),
        }
        if "error" not in answer:
            answer["stats"] = {theirs: counts[ours] for theirs, ours in STATS.items()}
        return answer

    def before(self) -> Answer:
        log = self.log
        return {
            "before": [[segment.base_offset, segment.size] for segment in log.segments],
            "hw": log.high_watermark,
            "lso": log.last_stable_offset,
            "leo": log.log_end_offset,
            "start": log.log_start_offset,
            "producers": {
                str(one.producer_id): [one.epoch, one.last.last_offset if one.batches else None]
                for one in log.producers()
            },
        }

    def segment(self, segment: LogSegment, before: bytes | None) -> Answer:
        data = Path(segment.path).read_bytes()
        found: Answer = {"base": segment.base_offset, "size": segment.size, "sha1": hashlib.sha1(data).hexdigest()}
        if data == before:
            return found
        aborted = read_aborted(segment.txn_index_path) if os.path.exists(segment.txn_index_path) else []
        return found | {
            "largest_ts": segment.largest_timestamp_ms,
            "index": [list(segment.offset_index.entry(slot)) for slot in range(segment.offset_index.entries)],
            "timeindex": [list(segment.time_index.entry(slot)) for slot in range(segment.time_index.entries)],
            "txnindex": [list(one) for one in aborted],
            "batches": [self.batch(data, entry) for entry in Entries(data)],
        }

    def batch(self, data: bytes, entry: Any) -> Answer:
        own = data[entry.position : entry.end]
        records = kts.decode(own, ["offset", "timestamp", "key", "value", "headers"])
        rows = [columns_of(row) for row in records.to_pylist()]
        found: Answer = {
            "pos": entry.position,
            "size": entry.size,
            "base": entry.base_offset if entry.base_offset >= 0 else rows[0][0],
            "last": entry.last_offset,
            "attrs": entry.attributes,
            "max_ts": entry.max_timestamp,
            "copied": own in self.batches,
            "records": rows,
        }
        if entry.magic < 2:
            return found | {"magic": entry.magic}
        if entry.attributes & 0x40:
            found["delete_horizon"] = entry.base_timestamp
        return found | {
            "count": entry.count,
            "base_ts": entry.base_timestamp,
            "pid": entry.producer_id,
            "epoch": entry.producer_epoch,
            "seq": entry.base_sequence,
            "leader_epoch": entry.leader_epoch,
        }

    def files(self) -> list[str]:
        active = f"{self.log.segments[-1].base_offset:020d}"
        names = sorted(os.listdir(self.directory))
        return [name for name in names if (found := COUNTED.fullmatch(name)) is not None and found[1] != active]

    # --- what consumers see -----------------------------------------------------------------------

    def view(self, step: Answer) -> Answer:
        log = self.log
        start = log.log_start_offset
        columns = ["offset", "timestamp", "key", "value", "headers"]
        uncommitted, position = self.consumed(step["max"], "high_watermark", committed=False)
        committed, stable = self.consumed(step["max"], "last_stable", committed=True)
        end = min(log.high_watermark, log.last_stable_offset)
        latest = kts.latest(log.path, as_of=end, columns=["key", "offset"]).read_all().to_pylist()
        assert columns == list(uncommitted[0]) if uncommitted else True
        return {
            "start": start,
            "hw": log.high_watermark,
            "lso": log.last_stable_offset,
            "leo": log.log_end_offset,
            "uncommitted": [columns_of(row) for row in uncommitted],
            "uncommitted_position": position,
            "committed": [row["offset"] for row in committed],
            "committed_position": stable,
            "latest": [[text(row["key"]), row["offset"]] for row in latest],
        }

    def consumed(self, most: int, up_to: str, *, committed: bool) -> tuple[list[dict[str, Any]], int]:
        """The records of fetch after fetch, and the position at the end."""
        log, position = self.log, self.log.log_start_offset
        start, read = position, b""
        while True:
            found = log.read(position, most, min_one_message=True, up_to=up_to).records
            whole = Entries(found, until_damage=True)
            if not len(whole):
                break
            read += found[: whole.end]
            position = whole[len(whole) - 1].last_offset + 1
        columns = ["offset", "timestamp", "key", "value", "headers"]
        rows = kts.decode(read, [*columns, "producerId", "control", "transactional"]).to_pylist()
        dropped = self.aborted() if committed else []
        kept = [
            {name: row[name] for name in columns}
            for row in rows
            if row["offset"] >= start
            and not row["control"]
            and not any(
                row["transactional"] and row["producerId"] == producer and first <= row["offset"] <= last
                for producer, first, last in dropped
            )
        ]
        return kept, position

    def aborted(self) -> list[tuple[int, int, int]]:
        paths = [one.txn_index_path for one in self.log.segments if os.path.exists(one.txn_index_path)]
        return [tuple(one[:3]) for path in paths for one in read_aborted(path)]  # type: ignore[misc]


class Watched(CleaningPass):
    """A pass that tells its groups."""

    seen: list[list[int]]

    def groups(self) -> list[list[LogSegment]]:
        found = super().groups()
        self.seen = [[segment.base_offset for segment in group] for group in found]
        return found


@contextmanager
def watched(io_buffer: int) -> Iterator[list[Watched]]:
    """The passes that begin inside; they read, and so write, in pieces of that size."""
    passes: list[Watched] = []

    def begin(*arguments: Any) -> Watched:
        passes.append(Watched(*arguments))
        passes[-1].memory = memoryview(bytearray(io_buffer))
        return passes[-1]

    opened_log.CleaningPass = begin  # type: ignore[assignment, misc]
    try:
        yield passes
    finally:
        opened_log.CleaningPass = cleaner.CleaningPass  # type: ignore[misc]


def batches_of(data: bytes) -> Iterator[bytes]:
    """The bytes of each entry."""
    for entry in Entries(data):
        yield data[entry.position : entry.end]


def columns_of(row: dict[str, Any]) -> list[Any]:
    """A record as the verdicts have it."""
    found: list[Any] = [row["offset"], milliseconds(row["timestamp"])]
    found += [None if row[name] is None else text(row[name]) for name in ("key", "value")]
    if row["headers"]:
        found.append([[one["key"], None if one["value"] is None else text(one["value"])] for one in row["headers"]])
    return found


def milliseconds(time: Any) -> int:
    """A decoded timestamp in ms; -1 if there is none."""
    return -1 if time is None else round(time.timestamp() * 1000)
