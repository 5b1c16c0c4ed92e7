"""Damage of index files at rest, and all that a directory answers: each door asked, each answer known beforehand.

What is right is computed from the records alone, which the reference decoder reads out of the undamaged ``.log`` files:
indexes only make answers quick, so no damage of theirs may change one.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.broker.asking import Asking
from support.processes import cli_runs
from support.reference import reference

import kts
from kts.broker.broker import Broker

NOW_MS = 1_700_000_000_000
MARKER = ".kafka_cleanshutdown"
Row = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value
COLUMNS = ["offset", "timestamp", "key", "value"]
ENTRY_BYTES = {".index": 8, ".timeindex": 12}


# --- damage ---------------------------------------------------------------------------------------


def flip_a_bit(rng: random.Random, data: bytearray, entry: int) -> None:
    at = rng.randrange(8 * len(data))
    data[at // 8] ^= 1 << at % 8


def flip_a_low_bit(rng: random.Random, data: bytearray, entry: int) -> None:
    """A field that is off by a little: what is most like the truth."""
    ends = (4, 8) if entry == 8 else (8, 12)
    at = rng.randrange(len(data) // entry) * entry + rng.choice(ends) - rng.choice((1, 1, 2))
    data[at] ^= 1 << rng.randrange(8)


def change_a_field(rng: random.Random, data: bytearray, entry: int) -> None:
    at = rng.randrange(len(data) // entry) * entry
    start, size = rng.choice(((0, 4), (4, 4)) if entry == 8 else ((0, 8), (8, 4)))
    old = int.from_bytes(data[at + start : at + start + size], "big")
    new = rng.choice((0, old + rng.choice((-1, 1)) * rng.choice((1, 2, 60, 1000, 10**5)), 2 ** (8 * size - 1) - 1, 1))
    data[at + start : at + start + size] = (new % 2 ** (8 * size)).to_bytes(size, "big")


def _sectors(size: int) -> Callable[[Callable[[random.Random, int], bytes]], Any]:
    def made(content: Callable[[random.Random, int], bytes]) -> Callable[[random.Random, bytearray, int], None]:
        def way(rng: random.Random, data: bytearray, entry: int) -> None:
            at = rng.randrange(0, len(data), size)
            count = min(size, len(data) - at)
            data[at : at + count] = content(rng, count)

        way.__name__ = f"{content.__name__}_{size}"
        return way

    return made


def garble(rng: random.Random, count: int) -> bytes:
    return rng.randbytes(count)


def zero(rng: random.Random, count: int) -> bytes:
    return bytes(count)


def ones(rng: random.Random, count: int) -> bytes:
    return b"\xff" * count


def swap_entries(rng: random.Random, data: bytearray, entry: int) -> None:
    count = len(data) // entry
    one = rng.randrange(count)
    other = min(one + 1, count - 1) if rng.random() < 0.5 else rng.randrange(count)
    a, b = slice(one * entry, (one + 1) * entry), slice(other * entry, (other + 1) * entry)
    data[a], data[b] = data[b], data[a]


def shift_a_field(rng: random.Random, data: bytearray, entry: int) -> None:
    """From some entry on, each has the second field of the one before: sound by itself, wrong by one."""
    count = len(data) // entry
    start = 4 if entry == 8 else 8
    first = rng.randrange(1, count) if count > 1 else 0
    for number in range(count - 1, first - 1, -1) if first else ():
        at, before = number * entry + start, (number - 1) * entry + start
        data[at : at + 4] = data[before : before + 4]


def drop_entries(rng: random.Random, data: bytearray, entry: int) -> None:
    """From the middle: what is left tells the truth."""
    count = len(data) // entry
    at = rng.randrange(count) * entry
    del data[at : at + entry * rng.choice((1, 3, 20))]


def cut_at_a_border(rng: random.Random, data: bytearray, entry: int) -> None:
    del data[rng.randrange(len(data) // entry) * entry :]


def cut_the_last_entry(rng: random.Random, data: bytearray, entry: int) -> None:
    del data[len(data) - entry :]


def cut_off_a_border(rng: random.Random, data: bytearray, entry: int) -> None:
    del data[rng.randrange(len(data) // entry) * entry + rng.randrange(1, entry) :]


def append_garbage(rng: random.Random, data: bytearray, entry: int) -> None:
    data += rng.randbytes(rng.choice((1, entry, entry * 3, 500)))


def append_zeros(rng: random.Random, data: bytearray, entry: int) -> None:
    data += bytes(rng.choice((1, entry, entry * 10)))


def append_an_entry(rng: random.Random, data: bytearray, entry: int) -> None:
    """One more that rises as the others do."""
    last = bytes(data[-entry:]) if data else bytes(entry)
    start = 4 if entry == 8 else 8
    fields = [int.from_bytes(last[:start], "big"), int.from_bytes(last[start:], "big")]
    sizes = start, entry - start
    for field, size in zip(fields, sizes, strict=True):
        more = min(field + rng.choice((1, 7, 100)), 2 ** (8 * size - 1) - 1)
        data += more.to_bytes(size, "big")


def empty(rng: random.Random, data: bytearray, entry: int) -> None:
    data.clear()


WAYS: list[Callable[[random.Random, bytearray, int], None]] = [
    flip_a_bit, flip_a_bit, flip_a_bit, flip_a_low_bit, flip_a_low_bit, change_a_field, change_a_field,
    *(_sectors(size)(what) for size in (512, 4096) for what in (garble, zero, ones)), _sectors(512)(garble),
    swap_entries, shift_a_field, drop_entries, cut_at_a_border, cut_the_last_entry, cut_off_a_border,
    append_garbage, append_zeros, append_an_entry, empty,
]  # fmt: skip


@dataclass
class Damage:
    """What was done to one index file."""

    file: str
    way: str
    before: bytes
    after: bytes | None

    def __str__(self) -> str:
        return f"{self.file}: {self.way}"

    @property
    def tells_the_truth(self) -> bool:
        """Each entry that is left was there before: only more reading finds out that others were."""
        entry = ENTRY_BYTES[self.file[20:]]
        after = (self.after or b"").rstrip(b"\0")
        left = [(self.after or b"")[at : at + entry] for at in range(0, len(after), entry)]
        before = [self.before[at : at + entry] for at in range(0, len(self.before), entry)]
        return set(left) <= set(before) and left == sorted(left)

    def touched(self, most: int) -> tuple[list[int], list[int]]:
        """Times and offsets that the entries which differ name, as they were and as they are."""
        entry = ENTRY_BYTES[self.file[20:]]
        base, after = int(self.file[:20]), self.after or b""
        times, offsets = list[int](), list[int]()
        for at in range(0, max(len(self.before), len(after)), entry):
            old, new = self.before[at : at + entry], after[at : at + entry]
            if old == new:
                continue
            for found in (old, new, self.before[at + entry : at + 2 * entry], self.before[max(at - entry, 0) : at]):
                if len(found) == 12:
                    times.append(int.from_bytes(found[:8], "big"))
                    offsets.append(base + int.from_bytes(found[8:], "big"))
                elif len(found) == 8:
                    offsets.append(base + int.from_bytes(found[:4], "big"))
            if len(offsets) > most:
                break
        return times, offsets


def damage(rng: random.Random, partition: Path, suffix: str) -> Damage | None:
    """One index file, damaged in one way; None if none of the directory has an entry."""
    names = [path for path in sorted(partition.glob(f"*{suffix}")) if path.stat().st_size >= ENTRY_BYTES[suffix]]
    for _ in range(50 if names else 0):
        path = rng.choice(names)
        before = path.read_bytes()
        if rng.random() < 0.02:
            return Damage(path.name, "missing", before, None)
        way, after = rng.choice(WAYS), bytearray(before)
        way(rng, after, ENTRY_BYTES[suffix])
        if after != before:
            return Damage(path.name, way.__name__, before, bytes(after))
    return None


# --- a sound directory, and what is right ---------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What a log of kts is made of."""

    magic: int
    codec: str
    order: str  # "rising" or "near": late ones among them
    sets: int
    interval: int
    value_bytes: int = 40

    @property
    def config(self) -> dict[str, object]:
        return {
            "segment.bytes": 2**30,
            "index.interval.bytes": self.interval,
            "message.format.version": "0.10.2" if self.magic == 1 else "3.0",
            "retention.ms": -1,
        }


def write(rng: random.Random, path: Path, shape: Shape) -> None:
    """Write a log of four segments into a partition directory, and close it."""
    path.parent.mkdir(parents=True)
    rolls = {shape.sets // 4, shape.sets // 2, shape.sets * 3 // 4}
    now = NOW_MS
    with kts.Log(path, shape.config, clock=lambda: NOW_MS) as log:
        for number in range(shape.sets):
            if number in rolls:
                log.roll()
            count = rng.choice((1, 1, 2, 4))
            stamps = []
            for _ in range(count):
                now += rng.randrange(1, 2000)
                late = shape.order == "near" and rng.random() < 0.3
                stamps.append(now - rng.choice((500, 20_000, 400_000)) if late else now)
            values = [rng.randbytes(rng.choice((5, shape.value_bytes))) for _ in stamps]
            columns = {"timestamp": stamps, "key": [b"k%d" % number] * count, "value": values}
            log.append(kts.encode(columns, magic=shape.magic, compression=shape.codec))


class Right:
    """The records of a partition, and the right answer to each question."""

    def __init__(self, partition: Path, rows: list[Row] | None = None) -> None:
        self.hot_times: list[int] = []  # those that damage is likely to show at
        self.hot_offsets: list[int] = []
        self.rows: list[Row] = rows if rows is not None else [
            (row["offset"], row["timestamp"], row["key"], row["value"])
            for path in sorted(partition.glob("*.log"))
            for row in reference.decode(path.read_bytes())
        ]  # fmt: skip

    @cached_property
    def end(self) -> int:
        return self.rows[-1][0] + 1

    def first_at(self, t_ms: int) -> Row | None:
        """The first record at or after a time."""
        return next((row for row in self.rows if row[1] >= t_ms), None)

    @cached_property
    def largest(self) -> tuple[int, int]:
        """The greatest timestamp, and the first offset that has it."""
        time = max(row[1] for row in self.rows)
        return time, next(row[0] for row in self.rows if row[1] == time)

    def from_offset(self, offset: int) -> Row | None:
        """The record that a read at an offset begins with."""
        return next((row for row in self.rows if row[0] >= offset), None)

    def between(self, first: int, end: int) -> list[Row]:
        return [row for row in self.rows if first <= row[0] < end]

    def range(self, start_ms: int, end_ms: int) -> list[Row]:
        """From the first record at or after a time to the first at or after another."""
        first, behind = self.first_at(start_ms), self.first_at(end_ms)
        if first is None:
            return []
        return self.between(first[0], self.end if behind is None else behind[0])

    def strictly(self, start_ms: int, end_ms: int) -> list[Row]:
        return [row for row in self.rows if start_ms <= row[1] < end_ms]

    def look_at(self, one: Damage) -> Right:
        """The same answers, asked for where that damage lies."""
        found = Right(Path(), self.rows)
        times, offsets = one.touched(60)
        time_of = {row[0]: row[1] for row in self.rows}  # the cleaner leaves gaps
        found.hot_offsets = [offset for o in offsets for offset in (o - 1, o, o + 1) if offset in time_of]
        times += [time_of[offset] for offset in found.hot_offsets]
        found.hot_times = [time for t in times for time in (t - 1, t, t + 1) if 0 <= time < 2**62]
        return found

    def some_offsets(self, rng: random.Random, count: int) -> list[int]:
        offsets = [row[0] for row in self.rows]
        hot = rng.sample(self.hot_offsets, min(count, len(self.hot_offsets)))
        return sorted({offsets[0], offsets[-1], *hot, *rng.sample(offsets, min(count, len(offsets)))})

    def some_times(self, rng: random.Random, count: int) -> list[int]:
        """A few, as many again where the damage lies."""
        times = sorted({row[1] for row in self.rows})
        chosen = [max(time + rng.choice((-1, 0, 0, 1)), 0) for time in rng.sample(times, min(count, len(times)))]
        hot = rng.sample(self.hot_times, min(count, len(self.hot_times)))
        return [max(times[0] - 5, 0), times[-1], times[-1] + 1, *chosen, *hot]

    def a_range(self, rng: random.Random) -> tuple[int, int]:
        """Two times, the first of them where the damage lies."""
        times = self.some_times(rng, 8)
        start = rng.choice(self.hot_times or times)
        later = [time for time in times if time > start]
        return (start, rng.choice(later)) if later else (min(times), start)


# --- the doors ------------------------------------------------------------------------------------

Wrong = tuple[str, object, object]  # question, expected, found


def table_rows(table: pa.Table | pa.RecordBatch) -> list[Row]:
    columns = [table.column("offset"), table.column("timestamp").cast(pa.int64())]
    columns += [table.column("key"), table.column("value")]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


class Asked:
    """Questions whose answers were wrong."""

    def __init__(self) -> None:
        self.wrong: list[Wrong] = []
        self.asked = 0

    def compare(self, question: str, expected: object, answer: Callable[[], object]) -> None:
        self.asked += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = answer()
        except Exception as error:
            self.wrong.append((question, _short(expected), f"{type(error).__name__}: {error}"))
            return
        if found != expected:
            self.wrong.append((question, _short(expected), _short(found)))


def _short(answer: object) -> str:
    if isinstance(answer, list):
        return f"{len(answer)} rows from {answer[0][:2] if answer else None} to {answer[-1][:2] if answer else None}"
    return repr(answer)[:200]


def first_row(records: bytes | bytearray | memoryview, offset: int) -> Row | None:
    """The first record from an offset on."""
    found = table_rows(kts.decode(records, COLUMNS)) if len(records) else []
    return next((row for row in found if row[0] >= offset), None)


def ask_readers(asked: Asked, partition: Path, right: Right, rng: random.Random, share: float = 1) -> None:
    """kts.open and kts.scan."""
    log = kts.open(partition)
    asked.compare("open: log_end_offset", right.end, lambda: log.log_end_offset)
    asked.compare("open: max_timestamp", right.largest, lambda: _pair(log.max_timestamp()))
    for time in right.some_times(rng, int(30 * share)):
        first = right.first_at(time)
        expected = None if first is None else (first[1], first[0])
        asked.compare(
            f"open: offset_for_timestamp {time}", expected, lambda time=time: _pair(log.offset_for_timestamp(time))
        )
    offsets = [*right.some_offsets(rng, int(14 * share)), right.end]
    for first in offsets:
        end = min(first + rng.choice((1, 5, 60)), right.end)
        options = {"starting_offsets": first, "ending_offsets": end, "columns": COLUMNS}
        asked.compare(
            f"scan: offsets {first} to {end}",
            right.between(first, end),
            lambda options=options: table_rows(kts.scan(partition, **options).read_all()),
        )
    for _ in range(int(10 * share) + 1):
        start, stop = right.a_range(rng)
        times = {"starting_timestamp": start, "ending_timestamp": stop, "unit": "ms", "allowed_lateness": None}
        for strict in (False, True):
            asked.compare(
                f"scan: times {start} to {stop}{' strictly' * strict}",
                right.strictly(start, stop) if strict else right.range(start, stop),
                lambda times=times, strict=strict: table_rows(
                    kts.scan(partition, strict_time_range=strict, columns=COLUMNS, **times).read_all()
                ),
            )
    start = right.a_range(rng)[0]
    asked.compare(
        f"scan: times from {start} on, strictly",
        right.strictly(start, 2**62),
        lambda: table_rows(
            kts.scan(partition, starting_timestamp=start, unit="ms", strict_time_range=True, columns=COLUMNS).read_all()
        ),
    )


def ask_commands(asked: Asked, partition: Path, right: Right, rng: random.Random) -> None:
    """`kts dump`, `offset-for`, `stats`."""
    start, stop = right.a_range(rng)
    if stop >= 2 * NOW_MS:  # the command takes such a number for another unit
        start, stop = right.rows[0][1], right.largest[0]
    dump = ("dump", partition, "--format", "jsonl", "--values", "hex", "--columns", "offset,timestamp")
    for strict in (False, True):
        expected = right.strictly(start, stop) if strict else right.range(start, stop)
        how = ("--allowed-lateness", "unlimited") if strict else ("--no-strict",)
        asked.compare(
            f"kts dump --from {start} --to {stop}{'' if strict else ' --no-strict'}",
            [row[:2] for row in expected],
            lambda how=how: [
                (line["offset"], line["timestamp"])
                for line in cli_runs.lines(*dump, "--from", start, "--to", stop, *how)
            ],
        )
    first = rng.choice(right.rows)[0]
    end = min(first + 20, right.end)
    asked.compare(
        f"kts dump --offsets {first}:{end}",
        [row[:2] for row in right.between(first, end)],
        lambda: [(line["offset"], line["timestamp"]) for line in cli_runs.lines(*dump, "--offsets", f"{first}:{end}")],
    )
    time = rng.choice(right.rows)[1]
    found = right.first_at(time)
    asked.compare(
        f"kts offset-for --time {time}",
        None if found is None else found[:2],
        lambda: _told(cli_runs.lines("offset-for", partition, "--time", time, "--json")),
    )
    asked.compare(
        "kts stats",
        len(right.rows),
        lambda: sum(one["records"] for one in cli_runs.lines("stats", partition, "--by", "1h", "--json")),
    )


def _told(lines: list[dict[str, Any]]) -> tuple[int, int]:
    [one] = lines
    return one["offset"], one["timestamp"]


def ask_log(asked: Asked, partition: Path, right: Right, rng: random.Random, config: dict[str, object]) -> list[Any]:
    """kts.Log, which may write: what it answers at once, after an append, and after the next clean start."""
    end = right.end

    def opened() -> kts.Log:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kts.Log(partition, config, clock=lambda: NOW_MS)

    try:
        log = opened()
    except Exception as error:
        asked.wrong.append(("Log: opening", None, f"{type(error).__name__}: {error}"))
        return []
    recovered = list(log.recovered)
    with log:
        _ask_open_log(asked, log, right, rng, "Log")
        data = kts.encode({"timestamp": [NOW_MS], "value": [b"more"]}, magic=log.config.magic)
        asked.compare("Log: append", end, lambda: log.append(data).first_offset)
        asked.compare(
            "Log: read of the appended",
            (end, NOW_MS, None, b"more"),
            lambda: _read(log, end),
        )
    with opened() as log:
        asked.compare("Log: log_end_offset of the next start", end + 1, lambda: log.log_end_offset)
        lost = [one for one in log.recovered if one.bytes_cut and one.path.endswith(".log")]
        asked.compare("Log: the next start cuts nothing", [], lambda: lost)
        grown = Right(partition, [*right.rows, (end, NOW_MS, None, b"more")])
        grown.hot_times, grown.hot_offsets = right.hot_times, right.hot_offsets
        _ask_open_log(asked, log, grown, rng, "Log, next start", 0.3)
    held = [
        (row["offset"], row["timestamp"], row["key"], row["value"])
        for path in sorted(partition.glob("*.log"))
        for row in reference.decode(path.read_bytes())
    ]
    asked.compare("Log: the records in the files", grown.rows, lambda: held)
    return recovered


def _read(log: kts.Log, offset: int) -> Row | None:
    return first_row(log.read(offset, 1, min_one_message=True).records, offset)


def _ask_open_log(asked: Asked, log: kts.Log, right: Right, rng: random.Random, name: str, share: float = 1) -> None:
    asked.compare(f"{name}: log_end_offset", right.end, lambda: log.log_end_offset)
    asked.compare(f"{name}: max_timestamp", right.largest, lambda: _pair(log.max_timestamp()))
    times = right.some_times(rng, int(60 * share))
    reads = right.some_offsets(rng, int(10_000 * share) if share == 1 else 40)
    questions = [(True, time) for time in times] + [(False, offset) for offset in reads]
    rng.shuffle(questions)
    for is_time, value in questions:
        if is_time:
            first = right.first_at(value)
            expected = None if first is None else (first[1], first[0])
            asked.compare(
                f"{name}: offset_for_timestamp {value}",
                expected,
                lambda value=value: _pair(log.offset_for_timestamp(value)),
            )
        else:
            asked.compare(f"{name}: read {value}", right.from_offset(value), partial(_read, log, value))


def ask_server(asked: Asked, root: Path, topic: str, right: Right, rng: random.Random) -> None:
    """A broker over the directory: Fetch, ListOffsets, Produce, and the same after a restart."""
    rows = right.rows
    data = kts.encode({"timestamp": [NOW_MS], "value": [b"more"]}, magic=2)
    for start in ("broker", "broker, next start"):
        now = Right(root, rows)
        now.hot_times, now.hot_offsets = right.hot_times, right.hot_offsets
        more = (now.end, NOW_MS, None, b"more")
        with Asking(Broker(root, {"log.retention.ms": "-1"}, clock=lambda: NOW_MS)) as client:
            for offset in now.some_offsets(rng, 40):
                asked.compare(
                    f"{start}: Fetch {offset}", now.from_offset(offset), partial(_fetched, client, topic, offset)
                )
            for time in now.some_times(rng, 20):
                first = now.first_at(time)
                expected = (-1, -1) if first is None else (first[1], first[0])
                asked.compare(f"{start}: ListOffsets {time}", expected, partial(_listed, client, topic, time))
            asked.compare(f"{start}: ListOffsets -1", (-1, now.end), partial(_listed, client, topic, -1))
            asked.compare(f"{start}: ListOffsets -3", now.largest, partial(_listed, client, topic, -3))
            asked.compare(f"{start}: Produce", (0, now.end), lambda: _produced(client.produce(topic, data)))
            asked.compare(f"{start}: Fetch {now.end}", more, partial(_fetched, client, topic, now.end))
        rows = [*rows, more]


def _fetched(client: Asking, topic: str, offset: int) -> Row | None:
    answer = client.fetch(topic, offset, version=11, partition_max_bytes=1)
    assert answer["error_code"] == 0, f"error {answer['error_code']}"
    return first_row(answer["records"] or b"", offset)


def _produced(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["error_code"], answer["base_offset"]


def _listed(client: Asking, topic: str, time: int) -> tuple[int, int]:
    found = client.list_offsets(topic, time)
    assert found["error_code"] == 0, f"error {found['error_code']}"
    return found["timestamp"], found["offset"]


def _pair(found: Any) -> tuple[int, int] | None:
    return None if found is None else (found.timestamp_ms if hasattr(found, "timestamp_ms") else found[0], found.offset)


# --- all of it ------------------------------------------------------------------------------------


@dataclass
class Source:
    """A sound log directory of one partition, closed cleanly."""

    root: Path
    partition: str
    right: Right
    config: dict[str, object]

    @property
    def topic(self) -> str:
        return self.partition.rpartition("-")[0]


def copied(source: Source, to: Path, one: Damage) -> Path:
    """The directory again, damaged; the partition's path."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(source.root, to)
    path = to / source.partition / one.file
    path.unlink() if one.after is None else path.write_bytes(one.after)
    return to / source.partition


DOORS = ("readers", "alone", "commands", "log", "server")


def check(
    source: Source, one: Damage, folder: Path, rng: random.Random, doors: tuple[str, ...] = DOORS
) -> dict[str, list[Wrong]]:
    """Ask every door about a damaged directory, each of its own copy where it writes; the wrong answers by door."""
    found: dict[str, list[Wrong]] = {}
    partition, right = copied(source, folder, one), source.right.look_at(one)
    for door in doors:
        asked = Asked()
        if door == "readers":
            ask_readers(asked, partition, right, rng)
        elif door == "commands":
            ask_commands(asked, partition, right, rng)
        elif door == "alone":  # nothing of the log directory but the partition
            alone = folder.with_name(folder.name + "-alone") / source.partition
            if alone.parent.exists():
                shutil.rmtree(alone.parent)
            shutil.copytree(partition, alone)
            ask_readers(asked, alone, right, rng, 0.5)
        elif door == "log":
            ask_log(asked, copied(source, folder, one), right, rng, source.config)
        else:
            ask_server(asked, copied(source, folder, one).parent, source.topic, right, rng)
        if asked.wrong:
            found[door] = asked.wrong
    return found
