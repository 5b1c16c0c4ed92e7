"""Segments that overlap: every door reads each offset once, and loses no sound batch."""

from __future__ import annotations

import gzip
import random
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import golden_partitions, scaled
from support.processes.cli_runs import lines
from support.sets.log_records import NOW, batch

import kts
from kts.dataset.options import TimeRange
from kts.dataset.plan import NO_END, plan_all
from kts.dataset.reader import read_headers, read_range
from kts.offline.convert import Format, convert_segments
from kts.offline.copy import copy
from kts.segment import overlaps
from kts.segment.rebuild import IndexConfig, rebuild
from kts.store.local import File

Files = dict[int, list[bytes]]  # by base offset: the batches
TRANSACTIONAL = [(one, name) for one, name in golden_partitions() if list(one.partition_dir(name).glob("*.txnindex"))]
LONG = b"v" * 2000  # so that a few batches are more than a small log


def entry(first: int, count: int = 3, value: bytes = b"v" * 40) -> bytes:
    return batch(*range(NOW + first, NOW + first + count), base_offset=first, value=value)


def laid(folder: Path, files: Files, *, indexed: bool = False) -> Path:
    path = folder / "t-0"
    path.mkdir(parents=True)
    for base, data in files.items():
        log = path / f"{base:020d}.log"
        log.write_bytes(b"".join(data))
        if indexed:
            with File(str(log)) as file:
                made = rebuild(file, file.size(), base, IndexConfig(1000, 10**6), str(log))
            log.with_suffix(".index").write_bytes(made.offset_index)
            log.with_suffix(".timeindex").write_bytes(made.time_index)
    return path


def offsets(path: Path | str, **more: object) -> list[int]:
    found: list[int] = kts.scan(path, columns=["offset"], **more).read_all().column("offset").to_pylist()  # type: ignore[arg-type]
    return found


def opened(path: Path) -> kts.PartitionLog:
    return kts.open_partition(path)


def threes(firsts: range | list[int] | set[int]) -> list[int]:
    return [first + i for first in sorted(firsts) for i in range(3)]


def drawn(rng: random.Random, *, damage: bool, value: bytes = b"v" * 40) -> tuple[Files, set[int], bool]:
    """Segments of one log that overlap, the first offsets of the sound batches, and whether they do overlap."""
    bases = sorted({0, *rng.sample(range(3, 60, 3), rng.randrange(1, 6))})
    files, sound, seen, twice = dict[int, list[bytes]](), set[int](), set[int](), False
    for number, base in enumerate(bases):
        least = bases[number + 1] if number + 1 < len(bases) else 60
        is_last = number + 1 == len(bases)
        end = 72 if is_last else min(least + 3 * rng.choice([0, 0, 1, 2, 5]), 66)
        begin = base - 3 * (rng.random() < 0.1 and base > 3)
        files[base] = []
        for first in range(begin, end, 3):
            if rng.random() < 0.15 and first < 66:  # as the cleaner leaves gaps
                continue
            twice |= first in seen
            seen.add(first)
            data = bytearray(entry(first, value=value))
            if damage and rng.random() < 0.1:
                data[-rng.randrange(1, 40)] ^= 1 << rng.randrange(8)
            else:
                sound.add(first)
            files[base].append(bytes(data))
    return files, sound, twice


def given(log: kts.PartitionLog, rng: random.Random) -> dict[str, list[int]]:
    """The offsets that each way to read a partition gives; of batches, all that they cover."""
    edges = [0, *sorted(rng.sample(range(1, 72), rng.randrange(1, 7))), NO_END]
    of_parts, of_tasks, headers = list[int](), list[int](), list[tuple[int, int]]()
    for group in plan_all(log, list(zip(edges, edges[1:], strict=False)), range_bytes=rng.choice([None, 1, 5000])):
        for part in group:
            of_parts += [one.as_py() for rows in read_range(part, columns=["offset"]) for one in rows.column(0)]
    for group in plan_all(log, [(0, NO_END)]):
        for part in group:
            of_tasks += [one.as_py() for rows in read_range(part, columns=["offset"]) for one in rows.column(0)]
            for rows in read_headers(part, within=TimeRange()):
                headers += zip(*(rows.column(name).to_pylist() for name in ("baseOffset", "lastOffset")), strict=True)
    batches = log.batches().read_all()
    ranges = list(zip(*(batches.column(name).to_pylist() for name in ("baseOffset", "lastOffset")), strict=True))
    start, end = sorted(rng.sample(range(80), 2))
    timely = log.scan(columns=["offset"], starting_timestamp=NOW + start, ending_timestamp=NOW + end, unit="ms")
    middle = log.scan(columns=["offset"], starting_offsets=start, ending_offsets=end)
    return {
        "scan": offsets_of(log.scan(columns=["offset"])),
        "batches": [offset for first, last in ranges for offset in range(first, last + 1)],
        "headers of ranges": [offset for first, last in headers for offset in range(first, last + 1)],
        "ranges": of_parts,
        "whole range": of_tasks,
        f"times {start} {end}": offsets_of(timely),
        f"offsets {start} {end}": offsets_of(middle),
    }


def offsets_of(reader: pa.RecordBatchReader) -> list[int]:
    found: list[int] = reader.read_all().column("offset").to_pylist()
    return found


def expected(name: str, wanted: list[int]) -> list[int]:
    if not name.startswith(("times", "offsets")):
        return wanted
    start, end = map(int, name.split()[1:])
    return [one for one in wanted if start <= one < end]


@pytest.mark.filterwarnings("ignore::kts.KtsWarning")
@pytest.mark.parametrize("kind", ["small", "long", "with indexes"])
def test_every_door_gives_the_union_of_the_segments_once(kind: str, tmp_path: Path, rng: random.Random) -> None:
    for number in range(scaled(10, 50)):
        files, firsts, _ = drawn(rng, damage=False, value=b"v" * 40 if kind == "small" else LONG)
        path, wanted = laid(tmp_path / f"{number}", files, indexed=kind == "with indexes"), threes(firsts)
        log = opened(path)
        for name, found in given(log, rng).items():
            assert found == expected(name, wanted), (name, files.keys())
        target = rng.randrange(NOW, NOW + 72)
        first = next((first for first in wanted if NOW + first >= target), None)
        answer = log.offset_for_timestamp(target)
        assert (None if answer is None else answer.offset) == first
        last = log.max_timestamp()
        assert last is not None and last.offset == wanted[-1] and log.log_end_offset == wanted[-1] + 1
        list(copy(str(path), str(tmp_path / f"{number}-copy")))
        made = list(convert_segments(log, str(tmp_path / f"{number}-converted"), Format(1)))
        assert sum(one.records for one in made) == len(wanted)
        assert sum(row["records"] for row in lines("stats", path, "--json")) == len(wanted)
        assert [row["offset"] for row in lines("dump", path, "--json")] == wanted
        with kts.Log(path, clock=lambda: NOW + 100) as writer:
            left = offsets_of(writer.scan(columns=["offset"]))
            aside = [Path(one.aside).read_bytes() for one in writer.recovered if one.aside is not None]
            cut = {offset for data in aside for offset in kts.decode(data, ["offset"]).column(0).to_pylist()}
            # Batches below the name of a segment are cut and kept aside if another segment begins in its range.
            assert left == sorted(set(left)) and {*wanted} - {*left} <= cut and {*left} <= {*wanted}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert offsets(tmp_path / f"{number}-copy") == wanted
            assert offsets(tmp_path / f"{number}-converted") == wanted


@pytest.mark.parametrize("kind", ["compressed", "its end takes long to find"])
def test_a_segment_whose_end_is_not_looked_up_ends_where_the_next_one_begins(
    kind: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each offset is given once there, too, and what is left out is told."""
    monkeypatch.setattr(overlaps, "MOST_BYTES", 10_000)
    for number in range(scaled(10, 50)):
        files, firsts, _ = drawn(rng, damage=False, value=LONG)
        path = laid(tmp_path / f"{number}", files)
        bases, own = sorted(files), list[int]()
        for place, base in enumerate(bases):
            low, high = base if place else 0, bases[place + 1] if place + 1 < len(bases) else 99
            with_it = offsets(path / f"{base:020d}.log")
            own += [offset for offset in with_it if low <= offset < high]
        if kind == "compressed":
            for log in path.glob("*.log"):
                log.with_suffix(".log.gz").write_bytes(gzip.compress(log.read_bytes(), 1))
                log.unlink()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            read = given(opened(path), rng)
        found = read["scan"]
        assert set(own) <= set(found) <= {*threes(firsts)} and found == sorted(set(found))
        if kind == "compressed":
            assert found == own
        for name, each in read.items():
            assert each == expected(name, found), name
        target = rng.randrange(72)
        answer = opened(path).offset_for_timestamp(NOW + target, unit="ms")
        assert (answer and answer.offset) == next((offset for offset in found if offset >= target), None)
        if len(found) < 3 * len(firsts):
            assert any("of this segment only the offsets" in str(one.message) for one in told)


@pytest.mark.filterwarnings("ignore::kts.KtsWarning")
def test_a_batch_that_is_damaged_in_one_segment_is_read_from_another(tmp_path: Path, rng: random.Random) -> None:
    for number in range(scaled(25, 100)):
        files, firsts, _ = drawn(rng, damage=True)
        path = laid(tmp_path / f"{number}", files)
        assert offsets(path, on_error="skip") == threes(firsts)


def test_an_overlap_is_told_once(tmp_path: Path) -> None:
    path = laid(tmp_path, {0: [entry(0), entry(3), entry(6)], 3: [entry(3), entry(6), entry(9)], 12: [entry(12)]})
    log = opened(path)
    with pytest.warns(
        kts.KtsWarning, match=r"03\.log: the segment starts at offset 3, but the one before it ends with 8"
    ) as told:
        assert log.scan(columns=["offset"]).read_all().num_rows == 15
        assert log.batches().read_all().num_rows == 5
        assert log.log_end_offset == 15
    assert len(told) == 1


def test_a_batch_that_reaches_over_a_border_is_cut_there(tmp_path: Path) -> None:
    path = laid(tmp_path, {0: [entry(0, 9)], 3: [entry(3), entry(6, 6)], 5: [entry(5)], 12: [entry(12)]})
    with pytest.warns(kts.KtsWarning, match="each offset is read once"):
        assert offsets(path) == list(range(15))


def test_an_offset_that_damage_made_is_no_overlap(tmp_path: Path) -> None:
    """No CRC covers it: the records stay where they are, and a later segment loses nothing."""
    moved = bytearray(entry(6))
    moved[7] = 21
    path = laid(tmp_path, {0: [entry(0), entry(3), bytes(moved)], 9: [entry(first) for first in range(9, 30, 3)]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sorted(offsets(path)) == sorted([*range(6), 21, 22, 23, *range(9, 30)])


@pytest.mark.filterwarnings("ignore::kts.KtsWarning")
def test_a_wrapper_message_has_only_the_offsets_of_its_messages(tmp_path: Path) -> None:
    """Its header lacks the first one: behind a gap it does not hide what another segment has there."""
    made = {
        first: batch(*range(NOW + first, NOW + first + 3), base_offset=first, magic=1, compression="gzip")
        for first in range(0, 18, 3)
    }
    path = laid(
        tmp_path, {0: [made[one] for one in (0, 3, 6, 9)], 3: [made[one] for one in (3, 9, 12)], 15: [made[15]]}
    )
    assert offsets(path) == list(range(18))
    below = laid(tmp_path / "below", {0: [made[0]], 3: [made[3]], 6: [made[3], made[6]], 9: [made[9]]})
    assert offsets(below) == list(range(12))


@pytest.mark.filterwarnings("ignore::kts.KtsWarning")
def test_transactions_end_where_they_do_in_segments_that_overlap(tmp_path: Path, rng: random.Random) -> None:
    """A broker's batches, in other segments: the same ones are aborted, by their markers."""
    for number, (scenario, name) in enumerate(TRANSACTIONAL):
        whole, source = b"", scenario.partition_dir(name)
        for log in sorted(source.glob("*.log")):
            whole += log.read_bytes()
        headers = kts.scan_batches(whole).to_pylist()
        data = [whole[one["position"] : one["position"] + one["sizeInBytes"]] for one in headers]
        wanted = offsets(source, isolation="read_committed", log_start_offset=0)
        for attempt in range(scaled(3, 12)):
            cuts = sorted({0, *rng.sample(range(len(data)), min(6, len(data)))})
            path = tmp_path / f"{number}-{attempt}" / "t-0"
            path.mkdir(parents=True)
            reach = 0
            for first, behind in zip(cuts, [*cuts[1:], len(data)], strict=True):
                stop = min(behind + rng.choice([0, 1, 3, 20]), len(data))
                if reach >= behind:  # an earlier one has the rest
                    stop = rng.randrange(first + 1, stop + 1)
                reach = max(reach, stop)
                (path / f"{headers[first]['baseOffset']:020d}.log").write_bytes(b"".join(data[first:stop]))
            assert offsets(path, isolation="read_committed", log_start_offset=0) == wanted
            edges = [0, *sorted(rng.sample(range(1, 40), 3)), NO_END]
            found = list[int]()
            for group in plan_all(opened(path), list(zip(edges, edges[1:], strict=False)), isolation="read_committed"):
                for part in group:
                    rows = read_range(part, columns=["offset"], isolation="read_committed")
                    found += [one for each in rows for one in each.column(0).to_pylist()]
            assert found == wanted
