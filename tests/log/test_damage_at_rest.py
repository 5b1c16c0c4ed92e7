"""Damaged directories: only what is damaged is lost, and what was found says file, position and bytes."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.damage import damage_at_rest
from support.damage.damage_at_rest import Damage, Files, Row, valid_prefix
from support.golden import scaled
from support.reference import reference
from support.sets import random_logs
from support.sets.random_logs import NOW_MS

import kts
from kts.offline.verify import Violation, verify

PARTS = 10  # for several processes
SOURCES = scaled(2, 10)  # sound logs of a part
DAMAGED = scaled(10, 50)  # directories of each: 200 in all, or 5,000


def sound_log(rng: random.Random, path: Path) -> tuple[random_logs.Shape, Files]:
    """A small sound log of a few segments with all its index files."""
    while True:
        shape = replace(random_logs.shape(rng, sets=(6, 18)), roll=0.2, tail="", indexes="all")
        if shape.order != "negative":
            break
    random_logs.write(rng, path, shape)
    return shape, {file.name: file.read_bytes() for file in path.iterdir()}


def put(path: Path, files: Files) -> None:
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / name).write_bytes(data)


def damage_some(rng: random.Random, files: Files) -> tuple[Files, list[Damage]]:
    """One or two damaged files, at least one of them a ``.log`` in most cases."""
    damaged, done = dict(files), list[Damage]()
    logs = sorted(name for name in files if name.endswith(".log"))
    others = sorted(name for name in files if not name.endswith(".log"))
    while not done:
        for group in ([logs], [logs], [logs, others], [others], [others, others])[rng.randrange(5)]:
            name = rng.choice(group)
            if damaged.get(name) != files[name]:
                continue
            one = damage_at_rest.removed(name, files[name]) if rng.random() < 0.08 else None
            one = one or damage_at_rest.edited(rng, name, files[name])
            if one is None:
                continue
            done.append(one)
            damaged.pop(name)
            if one.after is not None:
                damaged[name] = one.after
    return damaged, done


def scanned(path: Path, **options: object) -> list[Row]:
    """Records that a scan over damage gives."""
    columns = ["offset", "timestamp", "key", "value"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = kts.scan(path, columns=columns, include_control=True, on_error="skip", **options).read_all()  # type: ignore[arg-type]
    values = [table.column(0), table.column(1).cast(pa.int64()), table.column(2), table.column(3)]
    return list(zip(*(value.to_pylist() for value in values), strict=True))


def untouched_rows(files: Files, damages: list[Damage]) -> list[Row]:
    """Records of the entries that no damage touches."""
    found: list[Row] = []
    by_file = {one.file: one for one in damages}
    for name in sorted(name for name in files if name.endswith(".log")):
        touched = by_file[name].touched if name in by_file else []
        found += [row for entry in damage_at_rest.entries(files[name]) if entry not in touched for row in entry.rows]
    return found


def check_skipping(path: Path, files: Files, damages: list[Damage]) -> None:
    """A scan that skips loses the damaged entries and nothing else.

    More than that may come back: messages in a damaged wrapper that did not compress them, and an entry with a damaged
    offset, which no CRC covers, at that offset.
    """
    rows, expected = scanned(path), untouched_rows(files, damages)
    touched = {row[1:] for one in damages for entry in one.touched for row in entry.rows}
    missing = [row for row in expected if row not in rows]
    surplus = [row for row in rows if row not in expected]
    assert missing == [] and all(row[1:] in touched for row in surplus), (missing, surplus)
    if not surplus and rows:
        assert rows == expected
        first, last = rows[len(rows) // 3][0], rows[-1][0]
        assert scanned(path, starting_offsets=first, ending_offsets=last) == [r for r in rows if first <= r[0] < last]


def check_verify(path: Path, damages: list[Damage]) -> None:
    """Each damaged ``.log`` file is named, with the position where what is wrong begins."""
    found: list[Violation] = list(verify(path, deep=True))
    for one in damages:
        if one.after is not None and one.entries:
            named = [violation for violation in found if violation.path == str(path / one.file)]
            sound = len(damage_at_rest.valid_prefix(one.after))
            assert sound == len(one.after) or sound in [violation.position for violation in named], (sound, named)


def on_disk(path: Path) -> dict[int, bytes]:
    """The live ``.log`` files by base offset."""
    return damage_at_rest.logs_of({file.name: file.read_bytes() for file in path.glob("*.log")})


def end_of(logs: Mapping[int, bytes]) -> int:
    """The offset behind the last entry of the last segment."""
    base, data = max(logs.items())
    return max([header["lastOffset"] + 1 for header in reference.scan_batches(data)] or [base])


def open_damaged(path: Path, shape: random_logs.Shape, recovery_point: int, clean: bool) -> kts.Log:
    """A log over damaged files, with what a broker would have left beside them."""
    lines = f"0\n1\n{path.name[0]} 0 {recovery_point}\n"
    (path.parent / "recovery-point-offset-checkpoint").write_text(lines)
    if clean:
        (path.parent / ".kafka_cleanshutdown").write_bytes(b"")
    config = {"segment.index.bytes": 4800, "index.interval.bytes": shape.interval}
    return kts.Log(path, config, generation=shape.generation, clock=lambda: NOW_MS)


def possible(before: dict[int, bytes], point: int, clean: bool, damages: list[Damage]) -> list[dict[int, bytes]]:
    """What Kafka's rule may leave.

    After an unclean end all from the recovery point on is recovered. Else, and below it, a segment may be whose index
    files are damaged; and the active one, because what is appended behind a damaged tail could not be read.
    """
    rebuilt = {int(one.file[:20]) for one in damages if not one.file.endswith(".log")} & set(before)
    if clean and before:
        rebuilt.add(max(before))
    found = []
    for chosen in itertools.chain.from_iterable(itertools.combinations(rebuilt, n) for n in range(len(rebuilt) + 1)):
        if clean:
            found.append({base: valid_prefix(data) if base in chosen else data for base, data in before.items()})
        else:
            found.append(damage_at_rest.recovered(before, point, chosen))
    return [left or {0: b""} for left in found]


def check_report(path: Path, before: dict[int, bytes], after: dict[int, bytes], log: kts.Log) -> None:
    """All that was cut or removed is in the report, with file, position and bytes; and nothing else is."""
    said = {(one.path, one.position, one.bytes_cut) for one in log.recovered if one.path.endswith(".log")}
    lost = set()
    for base, data in before.items():
        kept = after.get(base, b"")
        left = len(kept)
        if left < len(data) or base not in after:
            is_front = not data.startswith(kept) and data.endswith(kept)  # entries below the segment's name
            lost.add((str(path / f"{base:020}.log"), 0 if is_front else left, len(data) - left))
    assert {one for one in said if one[2]} == {one for one in lost if one[2]}, (log.recovered, lost)
    assert all(one.reason for one in log.recovered)


def check_opening(
    path: Path, shape: random_logs.Shape, files: Files, damages: list[Damage], rng: random.Random
) -> None:
    """Opening keeps all that Kafka's rule keeps, says what it lost, and leaves a log that goes on."""
    before = on_disk(path)
    clean, point = rng.random() < 0.25, rng.choice([0, *before, *(base + 1 for base in before), 2**62])
    log = open_damaged(path, shape, point, clean)
    after = on_disk(path)
    if not any(one.disguised for one in damages):
        assert after in possible(before, point, clean, damages), (clean, point, log.recovered)
        if not clean or all(valid_prefix(data) == data for data in after.values()):
            assert log.log_end_offset == end_of(after)
    kept = [row for data in after.values() for row in damage_at_rest.rows_of(valid_prefix(data))]
    original = {row for data in damage_at_rest.logs_of(files).values() for row in damage_at_rest.rows_of(data)}
    elsewhere = {row[1:] for one in damages for entry in one.disguised for row in entry.rows}
    assert all(row in original or row[1:] in elsewhere for row in kept), "a record that was never appended"
    check_report(path, before, after, log)
    first = max((base for base in before if base <= point), default=0)
    passed_by = [one for one in damages if clean or one.after is None or one.disguised or int(one.file[:20]) < first]
    twice = len({one.file[:20] for one in damages}) < len(damages)  # what is cut on loading leaves what lies behind it
    # Where all that is lost is whole entries, recovery sees nothing wrong, as Kafka's; verify names what is missing.
    unseen = [one for one in damages if one.entries and one.after is not None and valid_prefix(one.after) == one.after]
    if not passed_by and not twice:
        assert [found for found in verify(path) if not (unseen and found.kind == "gap")] == []
    end = log.log_end_offset
    data = kts.encode({"timestamp": [NOW_MS], "value": [b"more"]}, magic=log.config.magic)
    assert log.append(data).first_offset == end
    if not elsewhere:
        assert kts.decode(log.read(end, 1000).records, ["offset"]).column(0).to_pylist() == [end]
    log.close()
    with open_damaged(path, shape, end, True) as again:
        assert again.log_end_offset == end + 1
        # Where the end of a closed segment is missing, each opening says so: the index that knows it is kept.
        still = {
            Path(one.path).name for one in again.recovered if "the end of the segment is missing" in str(one.reason)
        }
        assert still == {Path(one.path).name for one in again.recovered} <= {one.file for one in damages}


@pytest.mark.parametrize("part", range(PARTS))
def test_only_what_is_damaged_is_lost(part: int, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"{seed} {part}")
    for number in range(SOURCES):
        shape, files = sound_log(rng, tmp_path / f"sound-{number}")
        for one in range(DAMAGED):
            damaged, damages = damage_some(rng, files)
            path = tmp_path / f"{number}-{one}" / "t-0"
            put(path, damaged)
            try:
                check_skipping(path, files, damages)
                check_verify(path, damages)
                check_opening(path, shape, files, damages, rng)
            except BaseException as error:
                error.add_note(damage_at_rest.described(damages, path=path, shape=shape))
                raise


def lone_batch(offset: int, **options: str) -> bytes:
    return kts.encode({"timestamp": [offset, offset], "value": [b"v", b"w"]}, base_offset=offset, **options)  # type: ignore[arg-type]


def test_a_wrong_offset_at_the_end_of_a_segment_costs_no_record_of_the_next_ones(tmp_path: Path) -> None:
    for number, last in enumerate((lone_batch(2**30), lone_batch(20))):
        files = {f"{0:020}.log": lone_batch(0) + last, f"{4:020}.log": lone_batch(4), f"{6:020}.log": lone_batch(6)}
        put(tmp_path / f"t-{number}", files)
        assert [row[0] for row in scanned(tmp_path / f"t-{number}") if row[0] < 8] == [0, 1, 4, 5, 6, 7]


def test_a_wrong_offset_before_damage_does_not_hide_what_follows_it(tmp_path: Path) -> None:
    files = {f"{0:020}.log": lone_batch(0) + lone_batch(2**30) + bytes(50) + lone_batch(4) + lone_batch(6)}
    put(tmp_path / "t-0", files)
    assert [row[0] for row in scanned(tmp_path / "t-0")] == [0, 1, 2**30, 2**30 + 1, 4, 5, 6, 7]
    log = next(iter((tmp_path / "t-0").iterdir()))
    more = log.read_bytes() + bytes(60) + lone_batch(8)
    log.write_bytes(more)
    zeros = [2 * len(lone_batch(0)), 4 * len(lone_batch(0)) + 50]
    assert [v.position for v in verify(log) if v.kind == "batch"] == zeros


def test_an_index_entry_for_a_wrapper_message_is_believed_only_if_its_offset_is_inside(tmp_path: Path) -> None:
    parts = [lone_batch(offset, magic=1, compression="gzip") for offset in range(0, 20, 2)]  # type: ignore[arg-type]
    for offset in range(20):
        path = tmp_path / f"t-{offset}"
        entry = offset.to_bytes(4, "big") + sum(map(len, parts[:7])).to_bytes(4, "big")
        put(path, {f"{0:020}.log": b"".join(parts), f"{0:020}.index": entry, f"{0:020}.timeindex": b""})
        for first in (0, 5, 13, 15):
            assert [row[0] for row in scanned(path, starting_offsets=first)] == list(range(first, 20))


@pytest.mark.parametrize("tail", [b"", b"\0" * 70, b"torn", lone_batch(4)[:-5]])
def test_what_is_appended_behind_a_damaged_tail_can_be_read_also_with_the_marker(tail: bytes, tmp_path: Path) -> None:
    shape = random_logs.shape(random.Random(5))
    put(tmp_path / "t-0", {f"{0:020}.log": lone_batch(0) + lone_batch(2) + tail, f"{0:020}.index": b""})
    with open_damaged(tmp_path / "t-0", replace(shape, per_batch=True), 0, clean=True) as log:
        said = [(one.path, one.position, one.bytes_cut) for one in log.recovered if one.bytes_cut]
        assert said == [(str(tmp_path / "t-0" / f"{0:020}.log"), 2 * len(lone_batch(0)), len(tail))] * bool(tail)
        assert log.append(lone_batch(0)).first_offset == 4
    assert [row[0] for row in scanned(tmp_path / "t-0")] == [0, 1, 2, 3, 4, 5]
    assert list(verify(tmp_path / "t-0")) == []


def test_what_a_start_cuts_is_kept_aside(tmp_path: Path) -> None:
    """What is sound behind the damage can still be taken from there, also after a kill."""
    whole = b"".join(lone_batch(offset) for offset in range(0, 20, 2))
    at = 6 * len(lone_batch(0)) + 8
    damaged = whole[:at] + b"\x7f" + whole[at + 1 :]
    shape = replace(random_logs.shape(random.Random(5)), per_batch=True)
    for clean in (True, False):
        path = tmp_path / str(clean) / "t-0"
        put(path, {f"{0:020}.log": damaged, f"{0:020}.index": b"", f"{0:020}.timeindex": b""})
        with open_damaged(path, shape, 0, clean) as log:
            [cut] = [one for one in log.recovered if one.bytes_cut]
        kept = [file for file in path.iterdir() if ".aside-" in file.name]
        assert [str(file) for file in kept] == [cut.aside] and cut.position == at - 8
        assert (path / f"{0:020}.log").read_bytes() + kept[0].read_bytes() == damaged
        assert [row[0] for row in scanned(kept[0])] == list(range(14, 20))


def test_damage_at_the_front_of_the_active_segment_refuses_no_append(tmp_path: Path) -> None:
    whole = b"".join(lone_batch(offset) for offset in range(0, 20, 2))
    last = len(whole) - len(lone_batch(18))
    index = (19).to_bytes(4, "big") + last.to_bytes(4, "big")
    put(tmp_path / "t-0", {f"{0:020}.log": bytes(40) + whole[40:], f"{0:020}.index": index, f"{0:020}.timeindex": b""})
    shape = random_logs.shape(random.Random(5))
    with open_damaged(tmp_path / "t-0", replace(shape, per_batch=True), 0, clean=True) as log:
        assert (log.recovered, log.log_end_offset) == ([], 20)
        assert log.append(lone_batch(0)).first_offset == 20
    assert [violation.position for violation in verify(tmp_path / "t-0") if violation.kind == "batch"] == [0]


@pytest.mark.parametrize("indexed", [0, 3])
def test_an_offset_of_a_damaged_header_gets_into_no_index(tmp_path: Path, indexed: int) -> None:
    """It would lie beyond the log's end: the next start would cut the sound batches behind the damage as a bad tail."""
    parts = [lone_batch(offset) for offset in range(0, 20, 2)]
    at = 5 * len(parts[0])
    damaged = bytearray(b"".join(parts))
    damaged[at + 23 : at + 27] = (2**24).to_bytes(4, "big")  # the last offset delta
    damaged[at + 35 : at + 43] = (NOW_MS - 1).to_bytes(8, "big")  # the greatest timestamp
    places = b"".join((2 * n + 1).to_bytes(4, "big") + (n * len(parts[0])).to_bytes(4, "big") for n in (3, 9))
    times = (indexed * 2 + 1).to_bytes(8, "big") + (indexed * 2 + 1).to_bytes(4, "big") if indexed else b""
    put(tmp_path / "t-0", {f"{0:020}.log": damaged, f"{0:020}.index": places, f"{0:020}.timeindex": times})
    shape = replace(random_logs.shape(random.Random(5)), per_batch=True)
    for end in (20, 22, 24):
        with open_damaged(tmp_path / "t-0", shape, end, clean=True) as log:
            assert (log.recovered, log.log_end_offset) == ([], end)
            assert log.append(lone_batch(0)).first_offset == end
            assert all(one.time_index.last_offset < end for one in log.segments)
