"""What a segment knows of its magics: never less than there is, whatever was appended, truncated, read or forgotten."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.golden import scaled
from support.sets.segments import START_MS, appended, made_set, walk

import kts
from kts.segment import magics
from kts.segment.log_segment import LogSegment
from kts.segment.magics import MOST_RUNS, UNREAD
from kts.store.local import FileRange

NOW = 1_600_000_000_000


def opened(path: Path, generation: str = "0.10.2") -> LogSegment:
    return LogSegment(str(path), 0, kts.LogConfig.of({}, generation=generation), now_ms=NOW)


def add(segment: LogSegment, records: bytes, magic: int = UNREAD) -> None:
    one = appended(records)
    segment.append(one.records, one.first, one.last, one.time, one.time_offset, magic=magic)


def true_magic(segment: LogSegment, start: int, end: int) -> int:
    """The newest magic of the whole entries in a range, by a plain walk over the file."""
    entries = walk(Path(segment.path).read_bytes())
    return max((one.magic for one in entries if start <= one.position and one.position + one.size <= end), default=0)


def known(segment: LogSegment, start: int, end: int, *, enough: int | None = None, above: int = UNREAD) -> int:
    """What the segment says of a range; of one that it may read up to an entry newer than ``enough``.

    ``above`` is the magic of which a newer one is enough to know.
    """
    with_descriptor = segment.lend(start, end - start)
    try:
        if enough is not None:
            segment.read_magics(with_descriptor, enough)
        return segment.newest_magic(with_descriptor, above)
    finally:
        with_descriptor.close()


def test_what_was_appended_is_known_without_reading(tmp_path: Path, rng: random.Random) -> None:
    segment, starts = opened(tmp_path), []
    for number, magic in enumerate((0, 0, 1, 1, 0)):
        starts.append(segment.size)
        add(segment, made_set(rng, magic, 3 * number, 3, START_MS), magic)
    found = [known(segment, start, end) for start, end in zip(starts, [*starts[1:], segment.size], strict=True)]
    assert found == [0, 0, 1, 1, 0]
    assert known(segment, 0, segment.size) == 1
    add(segment, made_set(rng, 0, 15, 3, START_MS))
    assert known(segment, 0, segment.size) == UNREAD
    assert known(segment, 0, starts[2]) == 0


def test_what_was_there_before_is_unread_until_a_range_of_it_is_read(tmp_path: Path, rng: random.Random) -> None:
    written, borders = opened(tmp_path), [0]
    for number, magic in enumerate((0, 1, 0, 2)):
        add(written, made_set(rng, magic, 9 * number, 9, START_MS))
        borders.append(written.size)
    written.close()
    segment = opened(tmp_path)
    assert known(segment, 0, borders[1]) == UNREAD
    assert known(segment, 0, borders[1] - 1, enough=0) == 0
    assert known(segment, 0, borders[1]) == 0, "the entry that the range cut was read to its end"
    assert known(segment, borders[1], borders[2]) == UNREAD
    assert known(segment, 0, borders[3], enough=1) == 1
    assert known(segment, borders[2], borders[3]) == 0
    add(segment, made_set(rng, 1, 36, 9, START_MS), 1)
    assert known(segment, borders[4], segment.size) == 1
    assert known(segment, 0, segment.size, enough=2) == 2


def test_a_newer_entry_that_is_known_is_enough_whatever_is_unread_after_it(tmp_path: Path, rng: random.Random) -> None:
    """Else each Fetch of an old client reads the headers before it once more."""
    written, borders = opened(tmp_path), [0]
    for number, magic in enumerate((0, 1, 2)):
        add(written, made_set(rng, magic, 9 * number, 9, START_MS))
        borders.append(written.size)
    written.close()
    segment = opened(tmp_path)
    assert known(segment, 0, borders[2], enough=0) == 1
    assert known(segment, 0, segment.size, above=0) == 1, "the rest is unread"
    assert known(segment, 0, segment.size, above=1) == UNREAD
    assert known(segment, 0, borders[1], above=0) == 0


@pytest.mark.parametrize("shipped", [False, True], ids=["default", "shipped"])
@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_a_leader_stores_one_magic_and_knows_it(tmp_path: Path, generation: str, shipped: bool) -> None:
    """Whatever the producer sends. What is refused leaves nothing."""
    rows = {"value": [b"v"], "timestamp": [NOW]}
    sets = [kts.encode(rows, magic=magic, compression=codec) for magic in (0, 1, 2) for codec in ("none", "gzip")]
    sets += [one + other for one in sets for other in sets]
    taken = 0
    for version, magic in (("0.9.0", 0), ("0.10.0", 1), ("3.0", 2)):
        for codec in ("producer", "gzip", "uncompressed"):
            if magic == 2 and generation == "0.10.2":
                continue
            settings = {"message.format.version": version, "compression.type": codec}
            with kts.Log(tmp_path / f"{codec}-{magic}", settings, generation=generation, shipped=shipped) as log:
                for one in sets:
                    with suppress(kts.KtsError):
                        log.append(one)
                        taken += 1
                assert {entry.magic for entry in walk(Path(log.segments[0].path).read_bytes())} == {magic}
                found = log.slice(0, 10**6)
                assert found.segment.newest_magic(found.records, UNREAD) == magic
    assert taken > 40


def test_a_log_that_is_loaded_again_forgets_nothing(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"message.format.version": "0.9.0"}) as log:
        log.append(kts.encode({"value": [b"v"] * 9}, magic=0))
        log.reconfigure({"message.format.version": "0.11.0"})
        assert log.generation == "3.9"
        log.append(kts.encode({"value": [b"v"] * 9, "timestamp": [NOW] * 9}))
        for offset, magic in ((0, 2), (9, 2)):
            found = log.slice(offset, 10**6)
            assert found.segment.newest_magic(found.records, UNREAD) == magic
        found = log.slice(0, 9)
        assert found.segment.newest_magic(found.records, UNREAD) == 0


def test_a_range_that_was_lent_before_the_log_was_loaded_again_is_revoked_by_a_truncation(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"value": [b"v"] * 9, "timestamp": [NOW] * 9}
    with kts.Log(tmp_path / "t-0") as log:
        log.append_as_follower(kts.encode(rows, magic=1))
        found = log.slice(0, 10**6)
        log.reconfigure({"allow.negative.timestamps": "true"})
        log.truncate_to(1)
        log.append_as_follower(kts.encode(rows, base_offset=1))
        assert isinstance(found.records, FileRange) and found.records.revoked


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_a_marker_that_is_newer_than_the_topic_is_known_as_such(tmp_path: Path, version: str) -> None:
    settings = {"message.format.version": version, "compression.type": "gzip"}
    with kts.Log(tmp_path / "t-0", settings, generation="3.9") as log:
        log.append(kts.encode({"value": [b"v"] * 9, "timestamp": [NOW] * 9}, magic=int(version > "0.9.0")))
        row: dict[str, Any] = {"timestamp": [NOW], "key": [b"\0\0\0\1"], "value": [bytes(6)]}
        marker = kts.encode(row, control=True)  # not transactional, which 3.9 refuses here
        log.append(marker, origin="coordinator")
        found = log.slice(0, 10**6)
        assert found.segment.newest_magic(found.records, UNREAD) >= 2


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_reading_stops_at_damage_and_an_entry_that_is_not_whole(tmp_path: Path, rng: random.Random, magic: int) -> None:
    written = opened(tmp_path)
    for number in range(4):
        add(written, made_set(rng, magic, number, 1, START_MS))
    written.close()
    path, entries = Path(written.path), walk(Path(written.path).read_bytes())
    whole = path.read_bytes()
    for position, byte in ((entries[2].position + 16, 3), (entries[2].position + 8, 0x7F)):
        path.write_bytes(whole[:position] + bytes([byte]) + whole[position + 1 :])
        segment = opened(tmp_path)
        assert known(segment, 0, segment.size, enough=2) == UNREAD
        assert known(segment, 0, entries[2].position) == magic
        assert known(segment, entries[3].position, segment.size, enough=2) == magic
    path.write_bytes(whole[:-1])
    segment = opened(tmp_path)
    assert known(segment, 0, segment.size, enough=2) == UNREAD
    assert known(segment, 0, entries[3].position) == magic


def test_a_range_that_was_truncated_teaches_nothing(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes were read before, and other entries are there by now."""
    written = opened(tmp_path)
    for number in range(4):
        add(written, made_set(rng, 0, number, 1, START_MS))
    written.close()
    segment = opened(tmp_path)
    borders = [entry.position for entry in walk(Path(segment.path).read_bytes())]
    kept, gone = segment.lend(0, borders[2]), segment.lend(0, segment.size)
    read = magics.read

    def truncated_meanwhile(*arguments: Any) -> Any:
        found = read(*arguments)
        segment.truncate_to(2, NOW)
        add(segment, made_set(rng, 1, 2, 1, START_MS), 1)
        return found

    monkeypatch.setattr(magics, "read", truncated_meanwhile)
    segment.read_magics(gone, 2)
    monkeypatch.undo()
    assert known(segment, borders[2], borders[2] + 1) == 1
    segment.read_magics(kept, 2)
    assert (segment.newest_magic(kept, 2), segment.newest_magic(gone, 2)) == (0, UNREAD)


def test_a_failed_append_leaves_no_knowledge_that_is_wrong(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = opened(tmp_path)
    add(segment, made_set(rng, 0, 0, 1, START_MS), 0)
    before = segment.size

    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(segment, "_index_set", fails)
    for magic in (1, 0):
        with pytest.raises(MemoryError):
            add(segment, made_set(rng, magic, 1, 1, START_MS), magic)
    with pytest.raises(MemoryError):
        add(segment, made_set(rng, 0, 1, 1, START_MS), 0)
    monkeypatch.undo()
    add(segment, made_set(rng, 1, 1, 1, START_MS), 1)
    assert (known(segment, 0, before), known(segment, before, segment.size)) == (0, 1)


def test_it_never_says_less_than_there_is(tmp_path: Path, rng: random.Random) -> None:
    for number in range(scaled(10, 200)):
        folder = tmp_path / str(number)
        folder.mkdir()
        segment, offset = opened(folder, rng.choice(["0.10.2", "3.9"])), 0
        for _ in range(60):
            match rng.randrange(8):
                case 0 if offset:
                    segment.truncate_to(offset := rng.randrange(offset + 1), NOW)
                    offset = segment.next_offset()
                case 1:
                    segment.close()
                    segment = opened(folder, segment.behaviour.release)
                case _:
                    chosen = [rng.randrange(3)] * rng.randrange(1, 4) + [rng.randrange(3)] * rng.randrange(2)
                    records = b""
                    for magic in chosen:
                        count = rng.randrange(1, 4)
                        codec = rng.choice(["none", "gzip"])
                        records += made_set(rng, magic, offset, count, START_MS, compression=codec)
                        offset += count
                    add(segment, records, rng.choice([max(chosen), UNREAD]))
            entries = walk(Path(segment.path).read_bytes())
            for _ in range(4 if entries else 0):
                start = rng.choice(entries).position
                end = rng.choice([segment.size, rng.randrange(start, segment.size) + 1])
                true, enough = true_magic(segment, start, end), rng.randrange(3)
                assert known(segment, start, end) >= true
                told = known(segment, start, end, enough=enough)
                assert told >= true
                assert told < UNREAD or true > enough
            assert len(segment._magics) <= MOST_RUNS
        segment.close()


@pytest.mark.parametrize("how", ["appended", "read"])
def test_magics_that_alternate_take_little_memory(tmp_path: Path, rng: random.Random, how: str) -> None:
    """As only a hostile leader sends them, or a file from elsewhere. Long sets of one magic beside them stay known."""
    segment = opened(tmp_path)
    add(segment, made_set(rng, 0, 0, 5, START_MS), 0)
    first = segment.size
    for number in range(5, 1000):
        magic = number % 2
        add(segment, made_set(rng, magic, number, 1, START_MS), magic)
    if how == "read":
        segment.close()
        segment = opened(tmp_path)
        for entry in walk(Path(segment.path).read_bytes()):
            assert known(segment, entry.position, entry.position + entry.size, enough=1) == entry.magic
    assert len(segment._magics) <= MOST_RUNS
    assert known(segment, 0, segment.size, enough=1) == 1
    assert len(segment._magics) <= MOST_RUNS
    assert known(segment, 0, first, enough=1) == 0


def test_large_and_many_entries_are_read_in_pieces(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magics, "READ_BYTES", 500)
    segment = opened(tmp_path)
    offset = 0
    for magic, count in ((0, 40), (2, 40), (1, 3), (0, 30)):
        add(segment, made_set(rng, magic, offset, count, START_MS))
        offset += count
    entries = walk(Path(segment.path).read_bytes())
    assert max(entry.size for entry in entries) > 2000
    for enough in (0, 1, 2):
        assert known(segment, 0, segment.size, enough=enough) >= min(2, enough + 1)
    for entry in entries:
        assert known(segment, entry.position, entry.position + entry.size) == entry.magic
