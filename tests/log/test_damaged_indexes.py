"""A damaged index file beside a sound log: every answer of `kts.Log` and `kts serve` is that of the undamaged log."""

from __future__ import annotations

import random
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import TESTS
from support.broker.asking import Asking
from support.golden import scaled
from support.sets.log_records import NOW, Clock, batch, offsets

import kts
from kts.broker.broker import Broker
from kts.offline.reindex import generation_of
from kts.segment.index_checksums import IndexChecksums
from kts.segment.rebuild import Recovered

pytestmark = pytest.mark.slow

FORMATS = {
    "none": ("none", 2, "3.0"),
    "gzip": ("gzip", 2, "3.0"),
    "v1": ("none", 1, "0.10.2"),
    "v1-gzip": ("gzip", 1, "0.10.2"),
}
EVERY = scaled(2, 1)  # of the ways to damage a log of one format, with checksums and without
RETENTION_MS = 45_000
SETTINGS = {"segment.bytes": 4000, "index.interval.bytes": 150, "segment.index.bytes": 1200, "file.delete.delay.ms": 0}
Damaging = Callable[[random.Random, bytes, int], bytes]


# --- ways to damage -------------------------------------------------------------------------------


def flipped(rng: random.Random, data: bytes, width: int) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def flipped_low(rng: random.Random, data: bytes, width: int) -> bytes:
    """A bit of the last two bytes of a field: what is wrong by a little."""
    at = rng.randrange(0, len(data), 4) + rng.choice((2, 3))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def last_flipped(rng: random.Random, data: bytes, width: int) -> bytes:
    return data[:-width] + flipped_low(rng, data[-width:], width)


def garbled(rng: random.Random, data: bytes, width: int) -> bytes:
    at = rng.randrange(len(data))
    count = min(rng.choice((1, width, 64, 512)), len(data) - at)
    return data[:at] + rng.randbytes(count) + data[at + count :]


def all_garbled(rng: random.Random, data: bytes, width: int) -> bytes:
    return rng.randbytes(len(data))


def filled(rng: random.Random, data: bytes, width: int) -> bytes:
    at = rng.randrange(len(data))
    count = min(rng.choice((width, 64, 512, len(data))), len(data) - at)
    return data[:at] + rng.choice((b"\0", b"\xff")) * count + data[at + count :]


def swapped(rng: random.Random, data: bytes, width: int) -> bytes:
    entries = [data[at : at + width] for at in range(0, len(data), width)]
    first, second = rng.randrange(len(entries)), rng.randrange(len(entries))
    entries[first], entries[second] = entries[second], entries[first]
    return b"".join(entries)


def copied(rng: random.Random, data: bytes, width: int) -> bytes:
    """A piece of the file lies where another one was."""
    count = rng.randrange(1, len(data) // width + 1) * width
    source, target = (rng.randrange(0, len(data) - count + 1, width) for _ in range(2))
    return data[:target] + data[source : source + count] + data[target + count :]


def cut_at_an_entry(rng: random.Random, data: bytes, width: int) -> bytes:
    return data[: rng.randrange(0, len(data), width)]


def cut(rng: random.Random, data: bytes, width: int) -> bytes:
    return data[: rng.randrange(len(data))]


def a_hole(rng: random.Random, data: bytes, width: int) -> bytes:
    at = rng.randrange(0, len(data), width)
    return data[:at] + data[at + width :]


def longer(rng: random.Random, data: bytes, width: int) -> bytes:
    return data + rng.choice((bytes(width), rng.randbytes(width), data[-width:], b"\xff" * 5))


WAYS: list[Damaging] = [
    flipped, flipped_low, last_flipped, garbled, all_garbled, filled, swapped, copied, cut_at_an_entry, cut, a_hole,
    longer,
]  # fmt: skip
MISSING_ENTRIES: list[Damaging] = [cut_at_an_entry, cut, a_hole]  # true, but not all


# --- logs and their answers -----------------------------------------------------------------------


class Answers(NamedTuple):
    """What a log says; two of them are equal if the records are the same at the same places."""

    end: int
    reads: dict[int, tuple[bytes, int, int]]
    times: dict[int, tuple[int, int] | None]
    latest: tuple[int, int] | None
    deleted: list[Any]
    appended: tuple[int, int]


def settings(name: str) -> dict[str, object]:
    return {**SETTINGS, "message.format.version": FORMATS[name][2], "retention.ms": RETENTION_MS}


def sets(rng: random.Random, name: str) -> Iterator[bytes]:
    """Sets whose times rise in the large, stand still, and go back."""
    codec, magic, _ = FORMATS[name]
    time = NOW - 60_000
    for _ in range(120):
        time += rng.choice((0, 0, 1, 300, 900))
        times = [time - rng.choice((0, 0, 0, 5, 2000)) for _ in range(rng.randrange(1, 4))]
        yield batch(*times, value=rng.randbytes(rng.randrange(10, 90)), magic=magic, compression=codec)


def made(rng: random.Random, path: Path, name: str) -> None:
    with kts.Log(path / "t-0", settings(name), clock=Clock()) as log:
        for one in sets(rng, name):
            log.append(one)
        assert len(log.segments) >= 3 and all(one.time_index.entries > 3 for one in log.segments[:-1])


def answers(path: Path, name: str, step: int) -> tuple[Answers, list[Recovered]]:
    """All that a log is asked, the first question being another one each time."""
    codec, magic, _ = FORMATS[name]
    with warnings.catch_warnings(), kts.Log(path / "t-0", settings(name), clock=Clock()) as log:
        warnings.simplefilter("ignore")
        end = log.log_end_offset
        reads = {}
        for offset in range(step % 3, end, 3):
            found = log.read(offset, 400, min_one_message=True)
            assert bytes(log.slice(offset, 400, min_one_message=True).records.read()) == found.records
            reads[offset] = (found.records, found.base_offset, found.position)
        times = {time: log.offset_for_timestamp(time) for time in range(NOW - 63_000 + step, NOW, 391)}
        latest = log.max_timestamp()
        deleted = log.delete_old_segments()
        assert deleted and log.log_start_offset < end
        first = log.append(batch(NOW + 1, NOW + 2, magic=magic, compression=codec)).first_offset
        [at] = kts.decode(log.read(first, 10**6).records, ["offset"]).slice(0, 1).column(0).to_pylist()
        assert log.offset_for_timestamp(NOW + 2) == (NOW + 2, end + 1)
        return Answers(end, reads, times, latest, deleted, (first, at)), log.recovered


def damaged(rng: random.Random, path: Path, way: Damaging, suffix: str) -> str:
    """Damage one index; returns the name of its log."""
    while True:
        index = rng.choice(sorted((path / "t-0").glob(f"*{suffix}")))
        data = index.read_bytes()
        after = way(rng, data, 8 if suffix == ".index" else 12) if data else data
        if after != data:
            index.write_bytes(after)
            return index.with_suffix(".log").name


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[random.Random, str], Path]:
    """A log of each format that was closed; made once."""
    known: dict[str, Path] = {}

    def get(rng: random.Random, name: str) -> Path:
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name)
            made(rng, known[name], name)
        return known[name]

    return get


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_answer_is_that_of_the_undamaged_log(
    rng: random.Random, tmp_path: Path, sound: Callable[[random.Random, str], Path], name: str, suffix: str
) -> None:
    """Every way to damage, in the middle and at the end, with checksums beside it and without: half of them for each
    format in a short run, the other half for the next format."""
    source = sound(rng, name)
    expected = [answers(shutil.copytree(source, tmp_path / f"expected-{step}"), name, step)[0] for step in range(3)]
    for number, way in enumerate(WAYS):
        for sealed in (True, False):
            if (number + sealed + list(FORMATS).index(name)) % EVERY:
                continue
            path = shutil.copytree(source, tmp_path / f"{number}-{sealed}")
            if not sealed:
                (path / IndexChecksums.file).unlink()
            segment = damaged(rng, path, way, suffix)
            if not sealed and suffix == ".timeindex" and way in MISSING_ENTRIES:
                continue  # only the checksums tell what is missing
            found, recovered = answers(path, name, number % 3)
            what = (name, suffix, way.__name__, sealed, segment, path)
            for field in Answers._fields:
                assert getattr(found, field) == getattr(expected[number % 3], field), (field, what)
            paths = {Path(one.path).name for one in recovered}
            assert paths <= {segment} and (paths == {segment} or not sealed), (what, recovered)
            with kts.Log(path / "t-0", settings(name), clock=Clock()) as log:
                end = log.log_end_offset
                assert (log.recovered, end) == ([], found.end + 2), what
                assert offsets(log) == list(range(log.log_start_offset, end)), what
            shutil.rmtree(path)


def test_a_sound_log_is_found_sound(
    rng: random.Random, tmp_path: Path, sound: Callable[[random.Random, str], Path]
) -> None:
    for name in FORMATS:
        for sealed in (True, False):
            path = shutil.copytree(sound(rng, name), tmp_path / f"{name}-{sealed}")
            if not sealed:
                (path / IndexChecksums.file).unlink()
            assert answers(path, name, 0)[1] == []


@pytest.mark.parametrize("name", ["none", "v1-gzip"])
def test_a_truncated_log_goes_on_as_over_undamaged_indexes(
    rng: random.Random, tmp_path: Path, sound: Callable[[random.Random, str], Path], name: str
) -> None:
    """About a second: each damage, cut back to a random offset, and appended to."""
    source = sound(rng, name)

    def truncated(path: Path, offset: int) -> list[Any]:
        with warnings.catch_warnings(), kts.Log(path / "t-0", settings(name), clock=Clock()) as log:
            warnings.simplefilter("ignore")
            log.truncate_to(offset)
            for one in islice(sets(random.Random(7), name), 15):
                log.append(one)
            end = log.log_end_offset
            reads = [log.read(at, 300, min_one_message=True) for at in range(0, end, 7)]
            return [
                end,
                reads,
                log.max_timestamp(),
                [log.offset_for_timestamp(NOW - at) for at in range(0, 63_000, 997)],
            ]

    for number, way in enumerate(WAYS):
        expected, path = tmp_path / f"expected-{number}", tmp_path / str(number)
        offset = rng.randrange(10, 230)
        damaged(rng, shutil.copytree(source, path), way, rng.choice((".index", ".timeindex")))
        assert truncated(path, offset) == truncated(shutil.copytree(source, expected), offset), (way.__name__, path)


@pytest.mark.parametrize("sealed", [True, False])
def test_readers_and_appends_go_on_while_indexes_are_made_anew(
    rng: random.Random, tmp_path: Path, sound: Callable[[random.Random, str], Path], sealed: bool
) -> None:
    path = shutil.copytree(sound(rng, "none"), tmp_path / "log")
    if not sealed:
        (path / IndexChecksums.file).unlink()
    for index in (path / "t-0").glob("*.index"):
        data = index.read_bytes()
        if len(data) > 8:  # the active segment may have one entry, or none
            index.write_bytes(flipped_low(rng, data[:-8], 8) + data[-8:])
    with warnings.catch_warnings(), kts.Log(path / "t-0", settings("none"), clock=Clock()) as log:
        warnings.simplefilter("ignore")
        end, more = log.log_end_offset, list(sets(rng, "none"))

        def read(seed: int) -> int:
            order = list(range(end))
            random.Random(seed).shuffle(order)
            for offset in order:
                records = log.read(offset, 300, min_one_message=True).records
                first, last = (kts.scan_batches(records)[name][0].as_py() for name in ("baseOffset", "lastOffset"))
                assert first <= offset <= last
            return len(order)

        with ThreadPoolExecutor(4) as threads:
            appended = threads.submit(lambda: [log.append(one).first_offset for one in more])
            assert list(threads.map(read, range(3))) == [end] * 3
            assert appended.result() == sorted(appended.result())
        assert log.recovered and not any(segment.trust.corrupt for segment in log.segments)
        assert offsets(log) == list(range(log.log_end_offset))


def test_no_golden_directory_is_found_unsound(tmp_path: Path) -> None:
    """Three seconds: every entry of the indexes that real brokers wrote is looked up."""
    logs = sorted((TESTS / "data" / "golden").rglob("0*.log"))
    seen = 0
    for number, directory in enumerate(dict.fromkeys(log.parent for log in logs)):
        if not re.fullmatch(r"[^.].*-\d+", directory.name):
            continue
        path = shutil.copytree(directory, tmp_path / str(number) / directory.name)
        (path.parent / ".kafka_cleanshutdown").touch()
        partition = kts.open(path)
        with warnings.catch_warnings(), kts.Log(path, generation=generation_of(partition)) as log:
            warnings.simplefilter("error")
            for segment in log.segments:
                seen += segment.offset_index.entries + segment.time_index.entries
                assert segment.max_timestamp_so_far.timestamp_ms >= -1
                for slot in range(segment.offset_index.entries):
                    segment.trust.place(segment.offset_index.entry(slot)[0])
                for slot in range(segment.time_index.entries):
                    log.offset_for_timestamp(segment.time_index.entry(slot)[0], unit="ms")
                assert segment.trust.corrupt is None, (directory, segment, segment.trust.corrupt)
    assert seen > 1000


# --- the broker -----------------------------------------------------------------------------------


def broker_answers(path: Path, end: int) -> list[Any]:
    with Asking(Broker(path, clock=Clock())) as asking:
        found: list[Any] = [asking.list_offsets("t", time) for time in (-1, -2, -3)]
        for offset in range(0, end, 2):
            row = asking.fetch("t", offset, partition_max_bytes=300)
            found.append((row["error_code"], row["high_watermark"], bytes(row["records"])))
        found += [asking.list_offsets("t", time) for time in range(NOW - 63_000, NOW, 391)]
        row = asking.produce("t", batch(NOW + 1))
        return [*found, row["error_code"], row["base_offset"]]


def test_the_broker_answers_as_over_undamaged_indexes(
    rng: random.Random, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two seconds: each damage with a broker that is started over it."""
    source = tmp_path / "source"
    with Broker(source, clock=Clock()) as broker:
        configs = {key: str(value) for key, value in SETTINGS.items()}
        partition = broker.topics.create("t", 1, configs).partitions[0]
        for one in sets(rng, "none"):
            partition.append(one)
        end = partition.log.log_end_offset
    expected = broker_answers(shutil.copytree(source, tmp_path / "expected"), end)
    for number, way in enumerate(WAYS):
        path = shutil.copytree(source, tmp_path / str(number))
        caplog.clear()
        suffix = rng.choice((".index", ".timeindex"))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            log = damaged(rng, path, way, suffix)
            found = broker_answers(path, end)
        assert found == expected, (way.__name__, log, path)
        if suffix == ".index":  # every offset is fetched; no time may lead into a segment that others are later than
            lines = [*caplog.messages, *(str(one.message) for one in told)]
            assert any(log in line for line in lines), (way.__name__, log)
