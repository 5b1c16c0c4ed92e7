"""Damaged indexes beside sound logs: whatever they say, readers answer as the log does."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.reference import reference
from support.sets import random_logs
from support.sets.random_logs import Written

import kts
from kts.cli.app import cli
from kts.dataset.plan import plan
from kts.dataset.reader import read_range
from kts.errors import CorruptRecordError
from kts.offline.verify import verify
from kts.segment import segment as segment_module
from kts.segment.index_checksums import IndexChecksums, Sealed

pytestmark = pytest.mark.slow

ENTRY = {".index": 8, ".timeindex": 12}
ORDERS = ("rising", "near", "wild", "equal", "few", "mostly none", "falling")
Row = tuple[int, int]
ROUNDS = 1


def sound_log(rng: random.Random, path: Path, order: str, magics: tuple[int, ...]) -> Written:
    """Several segments whose indexes have many entries, and no log start offset behind the first base."""
    shape = random_logs.shape(rng, sets=(20, 40))
    shape = replace(
        shape, magics=magics, order=order, indexes="all", tail="", roll=0.1, interval=rng.choice((0, 100, 1000)),
        per_batch=2 in magics or shape.per_batch,
    )  # fmt: skip
    written = random_logs.write(rng, path, shape)
    return replace(written, log_start_offset=0, records=random_logs.read_reference(path))


def damaged(rng: random.Random, data: bytes, entry: int) -> Iterator[tuple[str, bytes | None]]:
    """An index file damaged in every kind of way; None is a missing file."""
    if not data:
        return
    count, size = len(data) // entry, len(data)
    some = bytearray(data)
    some[rng.randrange(size)] ^= 1 << rng.randrange(8)
    yield "bit", bytes(some)
    at, few = rng.randrange(count), entry - 4
    number = int.from_bytes(data[at * entry + few : (at + 1) * entry], "big") + rng.choice((-30, -1, 1, 2, 10, 100))
    yield "number", data[: at * entry + few] + (number % 2**32).to_bytes(4, "big") + data[(at + 1) * entry :]
    first = int.from_bytes(data[at * entry : at * entry + few], "big") + rng.choice((-30, -1, 1, 2, 10, 100))
    changed = (first % 256**few).to_bytes(few, "big")
    yield "first number", data[: at * entry] + changed + data[at * entry + few :]
    start = rng.randrange(size)
    stop = min(start + rng.choice((1, 4, entry, 40, 512)), size)
    yield "block", data[:start] + rng.randbytes(stop - start) + data[stop:]
    yield "zeros", data[:start] + bytes(stop - start) + data[stop:]
    yield "ones", data[:start] + b"\xff" * (stop - start) + data[stop:]
    if count > 1:
        a, b = sorted(rng.sample(range(count), 2))
        parts = [data[i * entry : (i + 1) * entry] for i in range(count)]
        parts[a], parts[b] = parts[b], parts[a]
        yield "swapped", b"".join(parts)
        left, right = parts[a], parts[b]
        parts[a], parts[b] = right[:few] + left[few:], left[:few] + right[few:]
        yield "crossed", b"".join(parts)
        yield "thinned", b"".join(data[i * entry : (i + 1) * entry] for i in range(count) if i != at)
    yield "cut", data[: rng.randrange(count) * entry]
    yield "cut anywhere", data[: rng.randrange(size)]
    yield "longer", data + rng.randbytes(entry)
    yield "gone", None


def tells_less(before: bytes, after: bytes | None, entry: int) -> bool:
    """True if what is left tells the truth, but not all of it."""
    if not after or len(after) % entry:
        return False
    had = {before[at : at + entry] for at in range(0, len(before), entry)}
    return {after[at : at + entry] for at in range(0, len(after), entry)} <= had | {bytes(entry)}


def seal(path: Path) -> None:
    """What ``kts.Log`` notes of the indexes that it closes."""
    sealed = {}
    for log in sorted(path.glob("*.log")):
        index, times = (log.with_suffix(suffix).read_bytes() for suffix in ENTRY)
        base, last = int(log.stem), (-1, int(log.stem))
        if times:
            last = int.from_bytes(times[-12:-4], "big", signed=True), base + int.from_bytes(times[-4:], "big")
        sealed[base] = Sealed.of(log.stat().st_size, index, times, last)
    checksums = IndexChecksums(str(path.parent))
    checksums.replace("t", 0, sealed)
    checksums.write()


def first_at(rows: list[Row], time: int) -> Row | None:
    return next((row for row in rows if row[1] >= time), None)


def scanned(path: Path, **options: object) -> list[Row]:
    table = kts.scan(path, columns=["offset", "timestamp"], include_control=True, **options).read_all()  # type: ignore[arg-type]
    return list(zip(table.column(0).to_pylist(), table.column(1).cast(pa.int64()).to_pylist(), strict=True))


def check_answers(rng: random.Random, path: Path, rows: list[Row]) -> None:
    """All that readers ask of indexes, by what the reference decoder read from the logs."""
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    assert log.log_end_offset == rows[-1][0] + 1
    times = sorted({time for _, time in rows if time >= 0})
    asked = [0, 2**62, *rng.sample(times, min(len(times), 5))]
    for time in [*asked, *(time + 1 for time in asked)]:
        found, expected = log.offset_for_timestamp(time), first_at(rows, time)
        assert (found and (found.offset, found.timestamp_ms)) == expected, f"time {time}"
    greatest = max(rows, key=lambda row: (row[1], -row[0]))
    found = log.max_timestamp()
    assert found is not None and (found.offset, found.timestamp_ms) == greatest
    low, high = sorted(rng.choice(asked[2:] or asked) + rng.choice((0, 0, 1)) for _ in range(2))
    since = first_at(rows, low)
    strict = [row for row in rows if since and row[0] >= since[0] and low <= row[1] < high]
    assert scanned(path, starting_timestamp=low, ending_timestamp=high, unit="ms", allowed_lateness=None) == strict
    until = first_at(rows, high)
    usual = [row for row in rows if since and row[0] >= since[0] and (until is None or row[0] < until[0])]
    assert scanned(path, starting_timestamp=low, ending_timestamp=high, unit="ms", strict_time_range=False) == usual
    for _ in range(3):
        start, end = sorted(rng.choice(rows)[0] + rng.choice((0, 1)) for _ in range(2))
        within = [row[0] for row in rows if start <= row[0] < end]
        assert [row[0] for row in scanned(path, starting_offsets=start, ending_offsets=end)] == within
        parts = plan(log, start, end, range_bytes=rng.choice((100, 1000)))
        read = [batch for part in parts for batch in read_range(part, columns=["offset"], include_control=True)]
        assert [offset for batch in read for offset in batch.column(0).to_pylist()] == within


def refused(path: Path) -> bool:
    """True if an entry of an index is not confirmed by its log."""
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    for one in map(segment_module.Lookups, log.segments):
        places, times = range(len(one.places)), range(len(one.times))
        if any(one.confirmed(k) is None for k in places) or any(one.time(k) is None for k in times):
            return True
    return False


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "brokers"])
@pytest.mark.parametrize("magics", [(0, 1), (1,), (2,), (1, 2)], ids=str)
def test_readers_answer_as_the_log_does(
    rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magics: tuple[int, ...], sealed: bool
) -> None:
    """Every kind of damage to three indexes: about a second each."""
    monkeypatch.setattr(segment_module, "SMALL_BYTES", 0)  # small logs are read without their indexes
    for number, order in enumerate(rng.sample(ORDERS, ROUNDS)):
        path = tmp_path / str(number) / "t-0"
        written = sound_log(rng, path, order, magics)
        if sealed:
            seal(path)
        check_answers(rng, path, written.records)
        every = sorted(file for file in path.iterdir() if file.suffix in ENTRY)
        for file in rng.sample(every, min(len(every), 3)):
            before, entry = file.read_bytes(), ENTRY[file.suffix]
            for kind, after in damaged(rng, before, entry):
                # What remains believed: nothing says that the closing entries of a time index are gone, where what lies
                # behind the last entry of the offset index is not as late, or of magic 0 and without any time.
                blind = not sealed and (order not in ("rising", "equal") or 0 in magics)
                if blind and file.suffix == ".timeindex" and tells_less(before, after, entry):
                    continue
                file.unlink()
                if after is not None:
                    file.write_bytes(after)
                # A wrapper's header does not say its first offset: verify takes one that the cleaner removed for it.
                assert written.shape.gaps or not refused(path) or any(verify(path)), (
                    f"{written.shape}: {file.name}: {kind}: verify says nothing"
                )
                try:
                    check_answers(rng, path, written.records)
                except Exception as error:
                    changed = f"{before.hex(' ', entry)} -> {(after or b'').hex(' ', entry)}"
                    raise AssertionError(f"{file.name} of {written.shape}: {kind}: {changed}") from error
                file.unlink(missing_ok=True)
                file.write_bytes(before)
        shutil.rmtree(path.parent)


# --- what a sound neighbour contradicts -----------------------------------------------------------


def three_segments(path: Path, count: int = 40) -> list[Path]:
    """A log of three closed segments and an active one, of many batches, no offset missing."""
    with kts.Log(path, {"index.interval.bytes": 200}, clock=lambda: 0) as log:
        for number in range(4 * count):
            time = 1_700_000_000_000 + number
            log.append(kts.encode({"timestamp": [time, time], "value": [b"a%d" % number, bytes(30)]}))
            if number % count == count - 1 and number < 3 * count:
                log.roll()
    return sorted(path.glob("*.log"))


def cut_log(log: Path, batches: int) -> int:
    """Cut so many batches off the end of a segment; the first offset that is gone."""
    headers = reference.scan_batches(log.read_bytes())
    data = log.read_bytes()[: headers[len(headers) - batches]["position"]]
    log.write_bytes(data)
    first: int = headers[len(headers) - batches]["baseOffset"]
    return first


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("kept", ["both", ".index", ".timeindex"])
@pytest.mark.parametrize("batches", [1, 15, 40])
def test_a_log_that_ends_below_what_its_own_index_knows_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, kept: str, small: bool
) -> None:
    """A closed segment that was cut between two batches, or to nothing: every reader says so, or skips when told to."""
    monkeypatch.setattr(segment_module, "SMALL_BYTES", 2**14 if small else 0)
    path = tmp_path / "t-0"
    logs = three_segments(path)
    first, following = cut_log(logs[1], batches), int(logs[2].stem)
    for suffix in ENTRY:
        if kept not in ("both", suffix):
            logs[1].with_suffix(suffix).unlink()
    if kept == ".index" and batches == 1:
        return  # the last batch has no entry of its own there: nothing contradicts
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    everything, gone = range(4 * 80), range(first, following)
    asks: list[Callable[[], object]] = [
        lambda: kts.scan(path).read_all(),
        lambda: kts.scan(path, starting_offsets=first).read_all(),
        lambda: kts.scan(path, starting_timestamp=1_700_000_000_000 + first // 2, columns=["offset"]).read_all(),
        lambda: kts.scan(path, ending_offsets=following).read_all(),
        lambda: log.offset_for_timestamp(1_700_000_000_000 + first // 2),
        lambda: log.batches().read_all(),
    ]
    for ask in asks:
        with pytest.raises(
            CorruptRecordError, match=f"expected entries up to offset .* base offset {following}"
        ) as said:
            ask()
        assert said.value.path == str(logs[1]) and said.value.position == logs[1].stat().st_size
    with pytest.raises(CorruptRecordError):
        log.max_timestamp()
    assert kts.scan(path, ending_offsets=first).read_all().num_rows == first
    with pytest.warns(UserWarning, match="the end of the segment is missing"):
        table = kts.scan(path, columns=["offset"], on_error="skip").read_all()
    assert table.column(0).to_pylist() == [offset for offset in everything if offset not in gone]
    assert any(Path(one.path).stem == logs[1].stem for one in verify(path))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("batches", [1, 15, 40])
def test_a_log_that_is_opened_says_that_an_end_is_missing_and_keeps_what_knows_it(
    tmp_path: Path, batches: int, sealed: bool
) -> None:
    """Each time it is opened, or used: indexes made anew would hide the loss from all who read afterwards."""
    path = tmp_path / "t-0"
    logs = three_segments(path)
    first, following = cut_log(logs[1], batches), int(logs[2].stem)
    if not sealed:
        (tmp_path / "kts-index-checksum-checkpoint").unlink()
    for _ in range(2):
        with warnings.catch_warnings(), kts.Log(path) as log:
            warnings.simplefilter("ignore")
            if sealed or batches > 1:  # else the time index alone knows it, which is not read yet
                assert len(log.recovered) == 1
            log.offset_for_timestamp(1_700_000_000_000 + first - 1)
            assert log.read(first, 100, min_one_message=True).base_offset == following
            assert log.log_end_offset == 4 * 80
            log.max_timestamp()
            recovered = log.recovered
        assert [(one.path, one.position, one.bytes_cut) for one in recovered] == [
            (str(logs[1]), logs[1].stat().st_size, 0)
        ]
        assert "the end of the segment is missing" in str(recovered[0])
        with pytest.raises(CorruptRecordError, match="the end of the segment is missing"):
            kts.scan(path).read_all()


def test_an_end_below_the_recovery_point_of_a_clean_stop_is_told(tmp_path: Path) -> None:
    """Nothing follows the active segment that could contradict it."""
    path = tmp_path / "t-0"
    last = three_segments(path)[-1]
    end = cut_log(last, 5)
    with kts.Log(path) as log:
        assert (log.log_end_offset, log.clean_start) == (end, True)
        told = [one for one in log.recovered if "the end of the log is missing" in str(one)]
        assert [(one.path, one.position) for one in told] == [(str(last), last.stat().st_size)]
        assert f"offsets up to {4 * 80}," in str(told[0])
    with kts.Log(path) as log:
        assert (log.log_end_offset, log.recovered) == (end, [])


def test_room_that_was_never_used_is_no_entry_of_a_closed_index(tmp_path: Path) -> None:
    """Look-ups would end in the zeros, at position 0, and every read would walk through the segment."""
    path = tmp_path / "t-0"
    three_segments(path)
    (tmp_path / "kts-index-checksum-checkpoint").unlink()
    indexes = {index: index.read_bytes() for index in path.glob("*.index")}
    for index, entries in indexes.items():
        os.truncate(index, len(entries) + 8000)
    with kts.Log(path, {"index.interval.bytes": 200}) as log:
        assert len(log.recovered) == len(indexes)
    assert {index: index.read_bytes() for index in path.glob("*.index")} == indexes


def test_a_damaged_index_is_no_damage_of_its_log(rng: random.Random, tmp_path: Path) -> None:
    """An entry that is off in one number only is none that a log contradicts, also where the cleaner left gaps."""
    path = tmp_path / "t-0"
    logs = three_segments(path)
    first = cut_log(logs[1], 5) - int(logs[1].stem)
    for suffix, entry in ENTRY.items():
        file = logs[1].with_suffix(suffix)
        entries = [file.read_bytes()[at : at + entry] for at in range(0, file.stat().st_size, entry)]
        number = slice(0, 4) if suffix == ".index" else slice(8, 12)
        file.write_bytes(b"".join(one for one in entries if int.from_bytes(one[number], "big") < first))
    rows = random_logs.read_reference(path)
    for suffix, entry in ENTRY.items():
        file = logs[1].with_suffix(suffix)
        before = file.read_bytes()
        for at in (len(before) - entry, len(before) - 2 * entry):
            for bit in range(8 * entry):
                some = bytearray(before)
                some[at + bit // 8] ^= 1 << bit % 8
                file.write_bytes(some)
                log = kts.open(path)
                assert isinstance(log, kts.PartitionLog) and log.offset_for_timestamp(2**60) is None
                assert scanned(path) == rows
        file.write_bytes(before)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_that_kts_closed_are_compared_with_what_they_were(tmp_path: Path, suffix: str) -> None:
    """An index that lacks an entry tells the truth, but not all of it: that is found, and over once it is rebuilt."""
    log = three_segments(tmp_path / "t-0")[1]
    assert not list(verify(tmp_path))
    file = log.with_suffix(suffix)
    data, at = file.read_bytes(), 10 * ENTRY[suffix]
    file.write_bytes(data[:at] + data[at + ENTRY[suffix] :])
    assert [(one.kind, one.path) for one in verify(tmp_path)] == [("index-checksum", str(file))]
    assert {one.kind for one in verify(tmp_path / "t-0")} == {"index-checksum"}
    runner = CliRunner()
    assert runner.invoke(cli, ["reindex", str(tmp_path / "t-0"), "--dry-run"]).exit_code == 1
    assert runner.invoke(cli, ["reindex", str(tmp_path / "t-0"), "--in-place"]).exit_code == 0
    assert not list(verify(tmp_path)) and file.read_bytes() != data[:at] + data[at + ENTRY[suffix] :]
    note = tmp_path / "kts-index-checksum-checkpoint"
    note.write_bytes(note.read_bytes()[:-1])
    assert [(one.kind, one.path) for one in verify(tmp_path)] == [("checkpoint", str(note))]
    assert scanned(tmp_path / "t-0") == random_logs.read_reference(tmp_path / "t-0")
