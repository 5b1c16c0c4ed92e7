"""What must hold of a log's directory after a crash or a fault, worked out from the script that was run."""

from __future__ import annotations

import os
import struct

from support.disk.crashdisk import Tree, read_tree, write_tree
from support.disk.scripted_lives import PARTITION, Entry, Facts, Life, shallow

import kts
from kts.offline.verify import verify
from kts.segment.checkpoints import read_checkpoint
from kts.segment.names import CLEAN_SHUTDOWN


def allowed(life: Life, done: int) -> list[Facts]:
    """The facts that may hold of a disk after the first ``done`` operations: two while a call is under way."""
    for step in life.steps:
        if step.begin < done < step.end:
            return [step.before, step.after]
    finished = [step.after for step in life.steps if step.end <= done]
    return finished[-1:] or [life.steps[0].before]


def contents(log: kts.Log) -> bytes:
    """All bytes from the log start offset on, through ``Log.read``."""
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20).records)
        entries = shallow(data, offset) if data else []
        if not entries:
            break
        parts.append(data)
        offset = entries[-1].last_offset + 1
    return b"".join(parts)


def wrong_contents(log: kts.Log, facts: list[Facts]) -> str:
    """Why a log is not what one of these facts allows; empty if it is."""
    reasons = _reasons(log, facts)
    return "" if "" in reasons else "; or ".join(dict.fromkeys(reasons))


def found(log: kts.Log, facts: list[Facts]) -> Facts:
    """Which of these facts a log shows; only where ``wrong_contents`` finds nothing."""
    one = facts[_reasons(log, facts).index("")]
    end = log.log_end_offset
    entries = tuple(entry for entry in one.entries if entry.last_offset < end)
    return Facts(entries, start=log.log_start_offset, end=end)


def _reasons(log: kts.Log, facts: list[Facts]) -> list[str]:
    data = contents(log)
    return [_wrong(log, data, one, min(one.flushed for one in facts)) for one in facts]


def _wrong(log: kts.Log, data: bytes, facts: Facts, flushed: int) -> str:
    start, end = log.log_start_offset, log.log_end_offset
    if not facts.least_start <= start <= facts.start:
        return f"the log starts at {start}, expected {facts.least_start} to {facts.start}"
    if not flushed <= end <= facts.end:
        return f"the log ends at {end}, expected {flushed} (flushed) to {facts.end} (appended)"
    here = [entry for entry in facts.entries if start <= entry.last_offset < end]
    expected = b"".join(entry.data for entry in here)
    if data != expected:
        there = [entry[:2] for entry in shallow(data, start)]
        return f"{start} to {end} should hold {[entry[:2] for entry in here]}, found {there}"
    after = next((entry.first_offset for entry in facts.entries if entry.first_offset >= end), facts.end)
    if here and end not in (here[-1].last_offset + 1, after):
        return f"the log ends at {end}, its last entry at {here[-1].last_offset}"
    return ""


def rebuilt(
    entries: list[Entry], base_offset: int, interval: int, generation: str, max_bytes: int
) -> tuple[bytes, bytes]:
    """The two index files that recovery makes of a segment; full ones take no more but the closing entry."""
    offsets, times = b"", b""
    position = indexed = 0
    largest, largest_offset, last_time = -1, -1, -1
    for entry in entries:
        if entry.max_timestamp_ms > largest:
            largest, largest_offset = entry.max_timestamp_ms, entry.last_offset
        full = len(offsets) // 8 >= max_bytes // 8 or len(times) // 12 >= max_bytes // 12 - 1
        if position - indexed > interval and full:
            indexed = position
        elif position - indexed > interval:
            offset = entry.first_offset if generation == "0.10.2" else entry.last_offset
            offsets += struct.pack(">ii", offset - base_offset, position)
            if largest > last_time:
                times += struct.pack(">qi", largest, largest_offset - base_offset)
                last_time = largest
            indexed = position
        position += len(entry.data)
    if largest > last_time:
        times += struct.pack(">qi", largest, largest_offset - base_offset)
    return offsets, times


def wrong_indexes(tree: Tree, life: Life, least_base: int = 0) -> str:
    """Which index file of a segment from ``least_base`` on is not what a rebuild makes; empty if all are."""
    config = life.config()
    interval, most = config["index.interval.bytes"], config["segment.index.bytes"]
    for path in sorted(path for path in tree if path.endswith(".log")):
        base = int(os.path.basename(path)[:20])
        entries = [
            entry._replace(first_offset=life.first_offsets.get(entry.data, entry.first_offset))
            for entry in shallow(tree[path] or b"", base)
        ]
        if base < least_base:
            continue
        expected = rebuilt(entries, base, interval, life.kind.generation, most)
        for suffix, content in zip((".index", ".timeindex"), expected, strict=True):
            name = path.removesuffix(".log") + suffix
            if tree.get(name) != content:
                return f"{name}: expected {content.hex(' ', 4)}, found {(tree.get(name) or b'').hex(' ', 4)}"
    return ""


# --- starting from a state -----------------------------------------------------------------------------


def recovered_from(where: str, tree: Tree) -> int:
    """The base offset of the first segment that a start-up recovers; one beyond all after a clean shutdown."""
    if CLEAN_SHUTDOWN in tree:
        return 2**63
    known = read_checkpoint(os.path.join(where, "recovery-point-offset-checkpoint")) or {}
    point = known.get(("t", 0), 0)
    bases = [int(os.path.basename(path)[:20]) for path in tree if path.endswith(".log")]
    return max((base for base in bases if base <= point), default=0)


def differing(one: Tree, other: Tree) -> list[str]:
    return [path for path in sorted(one.keys() | other.keys()) if one.get(path, "") != other.get(path, "")]


def start(where: str, life: Life) -> kts.Log:
    path = os.path.join(where, PARTITION)
    return kts.Log(path, life.config(), generation=life.kind.generation, clock=life.clock)


def sound(directory: str, life: Life) -> str:
    """What ``kts verify`` finds. Where a truncation left a hole and a segment begins behind it, it misses a segment."""
    findings = [one for one in verify(directory) if not (life.holed and one.kind == "gap")]
    return "; ".join(map(str, findings))


def what_is_wrong(where: str, tree: Tree, life: Life, facts: list[Facts], *, exact: bool) -> str:
    """Start the log from a state and use it; what it got wrong, or nothing."""
    write_tree(where, tree)
    rebuilt_from = 0 if exact else recovered_from(where, tree)

    log = start(where, life)
    wrong = wrong_contents(log, facts)
    if CLEAN_SHUTDOWN in tree and not wrong:  # nothing was recovered, so that this start shows what the marker is worth
        wrong = wrong_append(log, life)
    data, end = contents(log), log.log_end_offset
    log.abandon()
    if wrong:
        return wrong
    once = read_tree(where)
    log = start(where, life)
    twice = read_tree(where)
    if CLEAN_SHUTDOWN not in tree and once != twice:
        return f"recovering again changes {differing(once, twice)}"
    if (contents(log), log.log_end_offset) != (data, end):
        return "the second start finds something else than the first"
    log.close()
    findings = sound(where, life)
    wrong = wrong_indexes(read_tree(where), life, rebuilt_from)
    if findings or wrong:
        return f"{findings}{wrong}"
    log = start(where, life)
    wrong = wrong_append(log, life)
    log.close()
    return wrong or sound(where, life)


def wrong_append(log: kts.Log, life: Life) -> str:
    """Append a set, and see that it is what comes behind the others."""
    data, life.facts = contents(log), Facts(end=log.log_end_offset)
    sent, stored = life.message_set(2, 100, "none" if life.kind.magic == 2 else "gzip")
    life.first_offsets |= {entry.data: entry.first_offset for entry in shallow(stored, life.facts.end)}
    log.append(sent)
    return "" if contents(log) == data + stored else "the next append is not what comes back"
