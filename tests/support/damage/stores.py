"""Damage to the objects of tiered storage, and judges that compare each answer with that of the sound store.

An answer may be the same, or an error of kts that names an object; with `on_error="skip"` also fewer rows, with a
warning. And `verify` finds something in every store in which some answer was not the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.tiered import PREFIXES, Session, names, session

import kts
from kts.errors import KtsError, KtsWarning
from kts.offline.verify import verify_partition

HTML = b"<!DOCTYPE html><html><head><title>503</title></head><body>Service Unavailable</body></html>\n"
MANIFEST, EPOCHS = ".rsm-manifest", ".leader_epoch_checkpoint"
NAMED = re.compile(r"[0-9]{20}|__remote_log_metadata")
MAY_BE_ORPHANS = "may be orphans or of a lost branch and are not read"  # as a killed broker leaves them
COLUMNS = ["offset", "timestamp", "key", "value"]
DOORS = ("store", "store and metadata", "both", "both without metadata")
NUMBERS = (
    "originalFileSize", "originalChunkSize", "transformedChunkSize", "finalTransformedChunkSize", "position", "size",
    "startOffset", "endOffset", "maxTimestampMs", "eventTimestampMs", "partition", "segmentLeaderEpochs",
)  # fmt: skip


@dataclass(frozen=True)
class Store:
    """One partition of a session: its objects, and the files of the broker beside them."""

    one: Session
    partition: str

    def __str__(self) -> str:
        return f"{self.one}/{self.partition}"

    def folders(self) -> list[Path]:
        """Where its objects are; a topic that was made again has two."""
        topic, _, number = self.partition.rpartition("-")
        found = {path.parent for path in self.one.store.rglob("*") if path.is_file()}
        prefix = self.one.remote.removeprefix(f"{self.one.store}/")
        ours = re.compile(rf"(.*/)?({prefix}{topic}-[\w-]{{22}}/{number}|"
                          rf"{self.partition}-[\w-]{{22}})")  # fmt: skip
        return sorted(folder for folder in found if ours.fullmatch(str(folder.relative_to(self.one.store))))

    def copy(self, target: Path) -> Store:
        """The same in another folder: links, which damage replaces by files."""
        for folder in self.folders():
            _linked(folder, target / "remote" / folder.relative_to(self.one.store))
        for folder in [self.one.data / self.partition, *self.one.data.glob("__remote_log_metadata-*")]:
            _linked(folder, target / "data" / folder.name)
        for path in self.one.data.iterdir():
            if path.is_file():
                _link(path, target / "data" / path.name)
        _linked(self.one.data / self.partition, target / "alone" / self.partition)
        for path in self.one.path.glob("keys/*"):
            (target / "keys").mkdir(exist_ok=True)
            _link(path, target / "keys" / path.name)
        return Store(_Placed(target, self.one.path.name), self.partition)

    def open(self, door: str) -> kts.PartitionLog:
        topic, _, number = self.partition.rpartition("-")
        key = topic, int(number)
        if door == "store":
            return self.one.store_alone()[key]
        if door == "store and metadata":
            return self.one.store_alone(metadata=self.one.data)[key]
        data = self.one.data if door == "both" else self.one.path / "alone"
        return kts.open_partition(data / self.partition, remote=self.one.remote, remote_options=self.one.options)


class _Placed(Session):
    """A session in a folder with another name."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        object.__setattr__(self, "name", name)

    @property
    def remote(self) -> str:
        return f"{self.store}/{PREFIXES.get(self.name, '')}"


def _linked(folder: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in folder.iterdir():
        _link(path, target / path.name)


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:  # another file system
        shutil.copyfile(path, target)


def stores(of: Sequence[str] | None = None) -> list[Store]:
    """Every partition with objects of every session, or of some."""
    found = [Store(session(name), partition) for name in of or names() for partition in session(name).partitions]
    return [one for one in found if one.folders()]


# --- damage ---------------------------------------------------------------------------------------


def _write(path: Path, data: bytes | None) -> None:
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def _flipped(data: bytes, rng: random.Random, count: int = 1) -> bytes:
    made = bytearray(data)
    for _ in range(count if data else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _of_version(data: bytes, suffix: str) -> bytes:
    if suffix == MANIFEST:
        return data.replace(b'"version":"1"', b'"version":"2"')
    return b"1" + data[1:] if suffix == EPOCHS else data[:-1] + bytes([data[-1] ^ 0xFF] if data else b"")


def _zeroed(data: bytes, rng: random.Random) -> bytes:
    first, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[:first] + bytes(end - first) + data[end:]


def _wrong_number(data: bytes, rng: random.Random) -> bytes:
    """One number of a manifest changed."""
    told = json.loads(data)
    places = list[tuple[dict[str, Any], str]]()

    def walk(found: dict[str, Any]) -> None:
        for key, value in found.items():
            if isinstance(value, dict):
                walk(value)
            elif isinstance(value, int) and not isinstance(value, bool) and (key in NUMBERS or key.isdigit()):
                places.append((found, key))

    walk(told)
    found, key = rng.choice(places)
    found[key] = max(found[key] + rng.choice([-1000, -40, -1, 1, 40, 1000]), 0)
    return json.dumps(told, separators=(",", ":")).encode()


def _changes(suffix: str, rng: random.Random) -> dict[str, Callable[[bytes], bytes | None]]:
    """Kinds of damage to one object."""
    found: dict[str, Callable[[bytes], bytes | None]] = {
        "deleted": lambda data: None,
        "cut": lambda data: data[: rng.randrange(len(data))] if data else None,
        "one bit": lambda data: _flipped(data, rng),
        "some bits": lambda data: _flipped(data, rng, rng.randrange(2, 20)),
        "HTML": lambda data: HTML,
        "empty": lambda data: b"",
        "version": lambda data: _of_version(data, suffix),
        "zeros": lambda data: _zeroed(data, rng),
        "longer": lambda data: data + rng.randbytes(rng.randrange(1, 200)),
    }
    if suffix == MANIFEST:
        found["number"] = lambda data: _wrong_number(data, rng)
    return found


def damage(store: Store, rng: random.Random) -> str:
    """Damage a copy of a store; what was done."""
    folder = rng.choice(store.folders())
    paths = sorted(folder.iterdir())
    suffixes = sorted({path.suffix for path in paths})
    suffix = rng.choice(suffixes)
    same = [path for path in paths if path.suffix == suffix]
    kind = rng.choice(["one", "one", "one", "one", "ends", "all", "swap", "other", "restored", "duplicate"])
    if kind in ("one", "ends", "all"):
        changes = _changes(suffix, rng)
        name = rng.choice(sorted(changes))
        chosen = same if kind == "all" else [rng.choice(same if kind == "one" else [same[0], same[-1]])]
        for path in chosen:
            _write(path, changes[name](path.read_bytes()))
        return f"{kind} {suffix}: {name}: {', '.join(path.name[:24] for path in chosen)}"
    if len(same) < 2:
        return "nothing"
    one, other = rng.sample(same, 2)
    ours, theirs = one.read_bytes(), other.read_bytes()
    if kind == "swap":
        _write(one, theirs)
        _write(other, ours)
    elif kind == "other":
        _write(one, theirs)
    elif kind == "restored":  # everything but its manifest, or everything
        kept = rng.choice(["", MANIFEST])
        for path in other.parent.glob(f"{other.stem}.*"):
            target = one.with_suffix(path.suffix)
            if path.suffix != kept:
                data = path.read_bytes()
                _write(target, data) if target.exists() else target.write_bytes(data)
    else:  # under another id, as it was, or older
        new = "".join(rng.choice("ABCDEFabcdef0123") for _ in range(22))
        renamed = rng.random() < 0.5
        cut = rng.choice([None, ".log", suffix])
        for path in one.parent.glob(f"{one.stem}.*"):
            data = path.read_bytes()
            data = data.replace(one.stem[21:].encode(), new.encode()) if renamed and path.suffix == MANIFEST else data
            data = data[: rng.randrange(len(data) + 1)] if path.suffix == cut else data
            path.with_name(f"{one.stem[:21]}{new}{path.suffix}").write_bytes(data)
        return f"duplicate of {one.stem[:24]}, renamed {renamed}, cut {cut}"
    return f"{kind} {suffix}: {one.name[:24]} {other.name[:24]}"


# --- answers --------------------------------------------------------------------------------------

Answer = Any


def queries(truth: Sequence[tuple[int, int, Any, Any]]) -> list[int]:
    times = sorted({row[1] for row in truth})
    return [0, *times[len(times) // 3 :: max(len(times) // 3, 1)], *times[-1:]]


def doors(times: Sequence[int]) -> dict[str, Callable[[kts.PartitionLog], Answer]]:
    """What is asked of a log."""
    asked: dict[str, Callable[[kts.PartitionLog], Answer]] = {
        "rows": lambda log: _rows(log),
        "skip": lambda log: _rows(log, on_error="skip"),
        "committed": lambda log: _rows(log, isolation="read_committed"),
        "committed skip": lambda log: _rows(log, isolation="read_committed", on_error="skip"),
        "start": lambda log: log.log_start_offset,
        "end": lambda log: log.log_end_offset,
        "stable": lambda log: log.last_stable_offset,
        "greatest": lambda log: log.max_timestamp(),
        "batches": lambda log: log.batches().read_all()["baseOffset"].to_pylist(),
    }
    for t in times:
        asked[f"time {t}"] = lambda log, t=t: log.offset_for_timestamp(t)
    if len(times) > 3:
        low, high = times[1], times[-1]
        asked["range"] = lambda log: _rows(log, starting_timestamp=low, ending_timestamp=high, strict_time_range=True)
    return asked


def _rows(log: kts.PartitionLog, **options: Any) -> list[tuple[Any, ...]]:
    table = log.scan(columns=COLUMNS, **options).read_all()
    return list(zip(*(table[name].cast("int64" if name == "timestamp" else table[name].type).to_pylist()
                      for name in COLUMNS), strict=True))  # fmt: skip


@dataclass
class Told:
    """An answer, an error, and warnings."""

    answer: Answer
    error: BaseException | None
    warnings: list[str]


def told(ask: Callable[[], Answer]) -> Told:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answer, error = None, None
        try:
            answer = ask()
        except KtsError as raised:
            error = raised
        said = [str(one.message) for one in found if issubclass(one.category, KtsWarning)]
    return Told(answer, error, said)


@cache
def truth(store: Store, door: str) -> tuple[dict[str, Callable[[kts.PartitionLog], Answer]], dict[str, Told], Told]:
    """What is asked of a sound store through a door, its answers, and what `verify` finds."""
    folder = Path(tempfile.mkdtemp())
    try:
        sound = store.copy(folder / "sound")
        asked = doors(queries(told(lambda: _rows(sound.open(door))).answer))
        found = {name: told(lambda ask=ask: ask(sound.open(door))) for name, ask in asked.items()}
        return asked, found, told(lambda: list(verify_partition(sound.open(door))))
    finally:
        shutil.rmtree(folder)


def judged(store: Store, damaged: Store, door: str, rng: random.Random, most: int) -> Iterator[str]:
    """What is wrong with the answers of a damaged store; that many of them."""
    asked, sound, _ = truth(store, door)
    unsure = False
    for name in rng.sample(sorted(asked), min(most, len(asked))):
        ask = asked[name]
        found, expected = told(lambda ask=ask: ask(damaged.open(door))), sound[name].answer
        said = [each for each in found.warnings if _bare(each) not in map(_bare, sound[name].warnings)]
        if found.error is not None:
            unsure = True
            if not NAMED.search(str(found.error)):
                yield f"{name}: an error without an object: {found.error}"
            continue
        if found.answer == expected:
            continue
        unsure = True
        if not said:
            yield f"{name}: SILENT {_difference(expected, found.answer)}"
        elif not any(NAMED.search(each) for each in said):
            yield f"{name}: a warning without an object: {said}"
        elif name.endswith("skip"):
            known = {row[0]: row for row in expected}
            more = [row for row in found.answer if known.get(row[0]) != row]
            if more and not any("not in order" in each for each in said):
                yield f"{name}: rows that the log has not: {more[:2]}"
        elif not any(MAY_BE_ORPHANS in each for each in said):
            yield f"{name}: WARNED {_difference(expected, found.answer)}: {said}"
    violations = told(lambda: list(verify_partition(damaged.open(door))))
    if violations.error is not None:
        yield f"verify: raised {violations.error}"
    elif unsure and not violations.answer:
        yield "verify: OK"


def _bare(message: str) -> str:
    """A warning without the folder."""
    return re.sub(r"/\S*/", "", message)


def _difference(expected: Answer, found: Answer) -> str:
    if isinstance(expected, list):
        return f"{len(expected)} became {len(found)}"
    return f"{expected} became {found}"


def attack(store: Store, folder: Path, rng: random.Random, door: str, most: int = 5) -> tuple[str, list[str]]:
    """Damage a copy of a store and judge some of its answers: what was done, and what is wrong."""
    copy = store.copy(folder)
    try:
        done = damage(copy, rng)
        return f"{store}, {door}: {done}", list(judged(store, copy, door, rng, most))
    finally:
        shutil.rmtree(folder)
