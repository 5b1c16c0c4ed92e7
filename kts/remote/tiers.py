"""Segments in tiered storage as files: a ``Source`` whose addresses begin with ``tier+``.

Address::

    tier+<address of the objects, as s3://bucket/prefix...>/<base offset>-<segment id>[-<end>].log
    tier+file:///path/...                                     objects on this machine
    .../<first offset>-lost-<end>.log                         offsets that no live copy has: reading it raises

The file is the log as it was on the broker, decrypted and decompressed as it is read; with ``-<end>`` only the part
before that offset. If that is the base offset, what is known of the copy is contradictory: reading it raises. Beside it
are its ``.index``, ``.timeindex`` and ``.txnindex``, and the producer snapshot after it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from kts.arguments import INT64_MAX, choice
from kts.codec.layout import HEADER_BYTES
from kts.errors import CorruptIndexError, CorruptRecordError, InvalidRequestError, LogStorageError
from kts.remote import buckets
from kts.remote.chunks import Claim, Coding, RemoteLog, Unreadable
from kts.remote.keys import Key, data_key, opener
from kts.remote.layouts import (
    AIVEN,
    AUTO,
    EPOCHS,
    INDEXES,
    LAYOUTS,
    LOCAL,
    MANIFEST,
    Objects,
    PartitionObjects,
    Root,
    objects_in,
    place_of,
    places,
    stem_of,
)
from kts.remote.lineage import Epochs, Lineage, Part, best_end, parts_of
from kts.remote.manifests import MOST_BYTES, Manifest, decompressed, read_manifest
from kts.remote.metadata import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    TOPIC,
    Copy,
    History,
    MetadataTopic,
    PartitionId,
    check_copy,
)
from kts.remote.objects import LruCache
from kts.remote.services import SAME, SERVICES
from kts.segment.checkpoints import leader_epochs_of
from kts.segment.damage import header_scan
from kts.segment.names import BOTH_INDEXES, REMOTE, TOPIC_ID
from kts.segment.rereading import warn
from kts.segment.segment import Segment
from kts.segment.snapshots import open_transactions_of, snapshot_entries_of
from kts.store import addresses
from kts.store.protocol import ByteRange, BytesFile, Item, Readable, Result, Status
from kts.store.source import AheadRange, Source, Store, files, source_of

HERE = "file://"
KNOWN_S = 60.0  # how long what a store holds is taken for known
KEPT_BYTES = 2**26  # of manifests
KEPT_CUTS_BYTES = 2**24
GROUP = 64  # manifests that are read before the first of their logs
NAMED = 3  # objects that a warning names


_NAME = re.compile(rf"(?P<base>[0-9]{{20}})-(?P<id>lost|{TOPIC_ID})(-(?P<end>[0-9]{{1,19}}))?(?P<suffix>\.[a-z_]+)")


# --- what a user names ----------------------------------------------------------------------------


class Tier:
    """A store of tiered segments, as a user names it.

    Parameters
    ----------
    remote : str
        Address or path of the store, with the prefix of the keys as it is.
    source : Source
        Where its objects lie.
    options : dict, optional
        ``layout``, ``private_keys`` and ``metadata``; see ``kts.open``.
    directories : list of (str, Source)
        Log directories in which the metadata topic is looked for, if ``metadata`` does not name one.
    storage_options : dict, optional
        How that of ``metadata`` is reached, if it lies in a bucket.
    """

    def __init__(
        self,
        remote: str,
        source: Source = files,
        options: addresses.RemoteOptions = None,
        directories: Sequence[tuple[str, Source]] = (),
        storage_options: addresses.StorageOptions = None,
    ) -> None:
        given = _checked(options)
        self.remote = remote
        self.layout: str = given.get("layout", AUTO)
        self.keys: dict[str, Key] = given.get("private_keys") or {}
        self._named: str | None = given.get("metadata")
        if self._named is not None:
            place = source_of(self._named, storage_options)
            place.refresh()
            directories = [(self._named, place)]
        self.metadata = MetadataTopic(directories)
        self.check_metadata()
        self.root = Root.of(remote, source)

    def check_metadata(self) -> None:
        """Raise if the directory that should have the metadata topic has none."""
        if self._named is not None and not self.metadata.partitions():
            raise FileNotFoundError(errno.ENOENT, f"remote_options: metadata: there is no {TOPIC}-N in it", self._named)

    def partitions(self) -> list[TieredPartition]:
        """The partitions that the store holds, each of the topic id that is live."""
        histories = self.metadata.histories()
        live = [one for one in histories.values() if one.in_state(COPY_FINISHED)]
        found = {one.of: max(copy.event_ms for copy in one.in_state(COPY_FINISHED)) for one in live}
        chosen = [TieredPartition(self, of) for of in _newest(found)]
        # Another broker may have the metadata of the other partitions, or it is lost.
        named = {one.of[::2] for one in chosen}
        others = [place for place in places(self.root, self.layout) if place.of[::2] not in named]
        held = [
            TieredPartition(self, one.of, one)
            for one in others
            if _unknown_in(objects_in(one.directory, self.root.source), histories.get(one.of))
        ]
        several = Counter(one.of[::2] for one in held)
        events = {one.of: one.last_event_ms if several[one.of[::2]] > 1 else 0 for one in held}
        newest = {*_newest(events)}
        return chosen + [one for one in held if one.of in newest]


def _checked(options: addresses.RemoteOptions) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"remote_options: expected a dictionary, found {type(options).__name__}")
    given = dict(options)
    if unknown := sorted(map(str, set(given) - {"layout", "private_keys", "metadata"})):
        raise ValueError(f"remote_options: expected layout, private_keys and metadata, found {', '.join(unknown)}")
    if given.get("layout") is None:
        given["layout"] = AUTO
    choice("layout", given["layout"], LAYOUTS)
    keys = given.get("private_keys") or {}
    if not isinstance(keys, Mapping):
        raise TypeError(f"private_keys: expected a dictionary of key ids, found {type(keys).__name__}")
    for key_id, key in keys.items():
        if not isinstance(key_id, str) or not isinstance(key, (str, bytes, os.PathLike)):
            raise TypeError(f"private_keys: expected paths or PEM by key id, found {key_id!r}: {type(key).__name__}")
    given["private_keys"] = {one: key if isinstance(key, bytes) else os.fspath(key) for one, key in keys.items()}
    named = given.get("metadata")
    if named is not None:
        if not isinstance(named, (str, os.PathLike)):
            raise TypeError(f"metadata: expected the path of a log directory, found {type(named).__name__}")
        given["metadata"] = addresses.plain(os.fspath(named))
    return given


def _newest(found: Mapping[PartitionId, int]) -> list[PartitionId]:
    """Of each topic and partition the topic id with the last event."""
    chosen: dict[tuple[str, int], PartitionId] = {}
    for of, event_ms in sorted(found.items()):
        known = chosen.get((of.topic, of.partition))
        if known is None or found[known] <= event_ms:
            chosen[of.topic, of.partition] = of
    return list(chosen.values())


def _unknown_in(objects: Sequence[Objects], history: History | None) -> bool:
    """Whether there are objects of which the metadata topic says nothing."""
    return any(history is None or not history.says_of(one.segment_id) for one in objects)


# --- addresses ------------------------------------------------------------------------------------


def address(folder: str) -> str:
    """The address of objects."""
    return f"{REMOTE}{folder}" if addresses.scheme_of(folder) is not None else f"{REMOTE}{HERE}{folder}"


def objects_of(path: str) -> str:
    """The path of the objects at the address of a segment."""
    folder, _, name = path.rpartition("/")
    return f"{folder_of(folder)}/{name}"


def folder_of(directory: str) -> str:
    """The folder with the objects of a directory."""
    return directory.removeprefix(REMOTE).removeprefix(HERE)


class _Name(NamedTuple):
    """An address, taken apart."""

    directory: str
    base_offset: int
    segment_id: str
    end: int | None
    suffix: str
    stem: str

    @property
    def lost(self) -> bool:
        return self.segment_id == "lost"

    @property
    def contradictory(self) -> bool:
        return self.end == self.base_offset


def _parsed(path: str) -> _Name | None:
    directory, _, name = path.rpartition("/")
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    base, segment_id, end = int(found["base"]), found["id"], found["end"]
    stem = f"{folder_of(directory)}/{base:020d}-{segment_id}"
    return _Name(directory, base, segment_id, None if end is None else int(end), found["suffix"], stem)


def is_cut(path: str) -> bool:
    """Whether an address is of a part of a segment."""
    name = _parsed(path)
    return name is not None and name.end is not None


# --- segments as files ----------------------------------------------------------------------------


class TierFiles(Store):
    """The segments in tiered storage as files, of which nothing is known but where their objects lie.

    Parameters
    ----------
    objects : Source
        Where they lie.
    layout : str
        Whose layout they have; by itself the names tell.
    keys : dict, optional
        The private keys by the ids of their pairs.
    address : str, optional
        What a user named.
    """

    def __init__(
        self, objects: Source, layout: str = AUTO, keys: Mapping[str, Key] | None = None, address: str | None = None
    ) -> None:
        self.objects, self.keys = objects, keys or {}
        self._layout, self._address = layout, address

    def layout_in(self, folder: str) -> str:
        """The layout of the objects in a folder."""
        named = AIVEN if os.path.basename(folder).isdigit() else LOCAL
        return named if self._layout == AUTO else self._layout

    def copy_of(self, stem: str) -> Copy | None:
        """The copy with these objects, if the log has it."""
        return None

    def listed(self) -> list[Segment]:
        """The segments of the log, as they were last asked for; the local ones among them."""
        # An empty answer would hide the segments that follow, and the ends of transactions.
        message = "expected an open partition, found none in this process: open it with kts.open and remote"
        raise LogStorageError(message, path=self._address, errno=errno.EINVAL)

    def missing(self, first: int, end: int) -> list[str]:
        """Stems of objects that are not whole copies and begin at these offsets, as far as that is known."""
        return []

    def _has(self, directory: str) -> bool:
        """Whether it is a directory."""
        return self.objects.directory_exists(folder_of(directory))

    def file(self, path: str, ahead: AheadRange) -> Readable:
        """The log or an index of a segment."""
        name = _parsed(path)
        if name is None:
            raise _no_file(path)
        if name.lost:
            return self._lost(path, name.base_offset, name.end or 0)
        if name.suffix == ".snapshot":
            return BytesFile(path, self._stored_snapshot(path, name).part(".snapshot"))
        stored = self.stored_at(name)
        if name.suffix != ".log":
            if name.contradictory or stored.part_size(name.suffix) is None:
                raise _no_file(path)
            return BytesFile(path, stored.part(name.suffix))
        if name.contradictory:
            known = stored.copy.problem if stored.copy is not None else ""
            return Unreadable(path, 1, known or f"the objects {name.stem} contradict each other: kts verify says more")
        try:
            stored.size()
            return stored.log(path, self._size(name, stored), ahead)
        except CorruptRecordError as error:
            return Unreadable(path, self._size(name, stored), error.message)

    def _lost(self, path: str, first: int, end: int) -> Unreadable:
        problem = f"no live copy in tiered storage has the offsets {first} to {end - 1}"
        if left := self.missing(first, end):
            problem += f"; of {', '.join(left[:NAMED])} objects are missing, or the copy was never finished"
        return Unreadable(path, 1, problem)

    def files(self, ranges: Sequence[ByteRange]) -> Iterator[Readable]:
        """Files that are read one after another: their objects are fetched across borders."""
        for start in range(0, len(ranges), GROUP):
            group = ranges[start : start + GROUP]
            opened = list(self.side_by_side(lambda one: self.file(one.path, None), group))
            stored = [file.stored(one) for file, one in zip(opened, group, strict=True) if isinstance(file, RemoteLog)]
            objects = self.objects.in_order(stored)
            for file in opened:
                if isinstance(file, RemoteLog):
                    file.use(next(objects))
                with file:
                    yield file

    def entries(self, path: str) -> Sequence[buckets.ListedObject]:
        """The segments of the log that has a directory, the local ones among them."""
        segments = self.listed()
        paths = [segment.path for segment in segments]
        if segments and segments[-1].remote:
            with suppress(LogStorageError):  # of lost offsets there is none
                paths.append(snapshot_after(segments[-1]))
        return sorted(buckets.ListedObject(os.path.basename(one), one, Status(0, 0)) for one in paths)

    def refresh(self) -> None:
        """What was listed of the objects no longer holds."""
        self.objects.refresh()

    def exists(self, path: str) -> bool:
        """True if a file, or an object that an error names, exists."""
        return super().exists(path) if path.startswith(REMOTE) else self.objects.exists(path)

    def status(self, path: str) -> Status | None:
        """Size and time."""
        name = _parsed(path)
        if name is None:
            return Status(0, 0, is_directory=True) if self._has(path.rstrip("/")) else None
        if name.lost:
            return Status(1, 0) if name.suffix == ".log" else None
        if name.suffix == ".snapshot":
            return Status(0, 0)
        stored = self.stored_at(name)
        if name.contradictory:
            return Status(1, 0) if name.suffix == ".log" else None
        if name.suffix == ".log":
            return Status(self._size(name, stored), stored.modified_ms() * 1_000_000)
        size = stored.part_size(name.suffix)
        return None if size is None else Status(size, 0)

    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results of work, in order; many wait at once if the objects are in a bucket."""
        return self.objects.side_by_side(work, items)

    def stored_at(self, name: _Name) -> StoredSegment:
        """The objects of a segment, by its address."""
        layout = self.layout_in(os.path.dirname(name.stem))
        return StoredSegment(self.objects, name.stem, layout, self.keys, self.copy_of(name.stem))

    def _stored_snapshot(self, path: str, name: _Name) -> StoredSegment:
        """The segment that a snapshot was taken after: its name has the offset after the segment."""
        for segment in self.listed():
            found = _parsed(segment.path)
            if found is not None and found.segment_id == name.segment_id:
                return self.stored_at(found)
        raise _no_file(path)

    def _size(self, name: _Name, stored: StoredSegment) -> int:
        """Bytes of a log up to its end; a log that cannot be read has those that it should have."""
        if name.contradictory:
            return 1
        try:
            size = stored.size()
        except CorruptRecordError:
            return max(1 if stored.copy is None else stored.copy.size_bytes, 1)
        return size if name.end is None else self._cut(name, size)

    def _cut(self, name: _Name, size: int) -> int:
        """Where the first batch at or after an offset begins."""
        key = self.objects, name.stem, name.end or 0, size
        if (known := _cuts.get(key)) is not None:
            return known
        path = f"{name.directory}/{name.base_offset:020d}-{name.segment_id}.log"
        whole = Segment(path, "", 0, name.base_offset, source=self)
        found = size
        for batch in header_scan(whole, whole.start_position(name.end or 0), name.base_offset, True, 2**16):
            beyond = batch.column("base_offset") >= (name.end or 0)
            if beyond.any():  # at 0 it is of another log: its reader raises
                found = int(batch.column("position")[int(np.argmax(beyond))]) or size
                break
        _cuts.keep(key, found, 0)
        return found


def _no_file(path: str) -> LogStorageError:
    return LogStorageError("there is no such file", path=path, errno=errno.ENOENT)


class HasSegments(Protocol):
    """What lists the segments of a log in both tiers; ``kts.PartitionLog`` does."""

    @property
    def whole_segments(self) -> list[Segment]: ...


# --- a partition ----------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What is wrong with an object."""

    path: str
    kind: str
    message: str


class _KnownCopies(NamedTuple):
    """The copies of a partition, and from where they are known."""

    history: History
    by_metadata: bool
    problems: tuple[Copy, ...] = ()  # of which only the place is known
    unfinished: tuple[Objects, ...] = ()  # that are not whole copies
    contradictions: tuple[str, ...] = ()  # of manifests and logs

    @property
    def knows_deletions(self) -> bool:
        """Whether it tells of each copy that was deleted."""
        return self.by_metadata and self.history.has_start


class TieredPartition(TierFiles):
    """The copies of one partition in tiered storage, and the source of their files.

    Parameters
    ----------
    tier : Tier
    of : PartitionId
        An empty topic id is the one that the store has.
    """

    def __init__(self, tier: Tier, of: PartitionId, place: PartitionObjects | None = None) -> None:
        super().__init__(tier.root.source, tier.layout, tier.keys)
        self.tier = tier
        self.of = of
        self.log: HasSegments | None = None  # lists the segments of both tiers where nobody has asked yet
        self._place = place
        self._store_source: tuple[float, _KnownCopies] | None = None
        self._completed: tuple[History, _KnownCopies] | None = None  # what the metadata topic says, and with the rest
        self._is_incomplete = False  # what it says leaves a gap
        self._made: tuple[Any, list[Segment]] | None = None
        self._told: set[str] = set()
        self.first_offset = 0  # of the segments that were listed last
        self.late_start = ""  # why that is too late, if it is
        self._doubts: list[Fault] = []  # of the lineage that was made last
        self._copies: dict[str, Copy] = {}  # by stem
        self._directories: dict[str, str] = {}  # addresses by folder

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None if self._made is None else (None, self._made[1])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._store_source is not None:
            self._store_source = time.monotonic(), self._store_source[1]  # another machine has another clock

    def taken(self) -> TieredPartition:
        """The same for a task in another process: without what was found out, which may be much."""
        made = TieredPartition(self.tier, self.of, self._place)
        made.layout = self.layout
        return made

    @property
    def topic_id(self) -> str | None:
        """The id of the topic."""
        return self.of.topic_id or None

    @cached_property
    def directory(self) -> str:
        """The address of the partition."""
        place = self._find_place()
        found = self.tier.root.key(f"{self.of.topic}-{self.of.topic_id}/{self.of.partition}")
        if place is not None:
            found = place.directory
        elif copies := self.known().history.in_state(COPY_FINISHED):
            found = os.path.dirname(self.stem(copies[0]))
        return self._directory_of(found)

    def _directory_of(self, folder: str) -> str:
        """The address of a folder with objects."""
        if folder not in self._directories:
            self._directories[folder] = address(folder)
        return self._directories[folder]

    def address_of(self, stem: str) -> str:
        """The address of objects, by their path."""
        folder, _, name = stem.rpartition("/")
        return f"{self._directory_of(folder)}/{name}"

    def _find_place(self) -> PartitionObjects | None:
        if self._place is None and self.of.topic_id:
            self._place = place_of(self.tier.root, self.of, self.tier.layout)
        elif self._place is None:
            for place in places(self.tier.root, self.tier.layout):
                if place.of[::2] == self.of[::2]:
                    self._place, self.of = place, place.of
        return self._place

    @cached_property
    def layout(self) -> str:
        """The layout of this partition's objects."""
        if self.tier.layout != AUTO:
            return self.tier.layout
        place = self._find_place()
        return AIVEN if place is None else place.layout

    def stem(self, copy: Copy) -> str:
        """The path of a copy's objects without their suffixes."""
        return stem_of(self.tier.root, copy, self.layout)

    def known(self) -> _KnownCopies:
        """What is known of the copies now: from the metadata topic, or else from the objects."""
        if self.tier.metadata.partitions():
            histories = self.tier.metadata.histories()
            if not self.of.topic_id:
                self._choose_id(histories)
            if (known := histories.get(self.of)) is not None:
                lacks = self._is_incomplete or not known.in_state(COPY_FINISHED)
                return self._with_forgotten(known) if lacks else _KnownCopies(known, True)
            place = self._find_place()
            if place is None or not objects_in(place.directory, self.objects):
                return _KnownCopies(History(self.of), True)
            self.tell(
                f"{self.of.topic}-{self.of.partition}: {TOPIC} says nothing of topic id {self.of.topic_id}, but"
                f" {place.directory} has segments: they are read as the store alone tells them"
            )
        source = self._by_store()
        for message in source.contradictions:
            self.tell(message)
        return source

    def _by_store(self) -> _KnownCopies:
        """What the objects alone tell."""
        now = time.monotonic()
        if self._store_source is None or now - self._store_source[0] > KNOWN_S:
            place = self._find_place()
            made = _KnownCopies(History(self.of), False) if place is None else _source_of_store(self, place)
            self._store_source = now, made
        return self._store_source[1]

    def _with_forgotten(self, known: History) -> _KnownCopies:
        """What a metadata topic that may have lost its start says, and of the copies before that what the store tells.

        An event precedes each upload, so objects of which the topic says nothing are of events that it has lost.
        """
        if self._completed is None or self._completed[0] is not known:
            store = self._by_store()
            lost = [copy for copy in store.history.changes if not known.says_of(copy.segment_id)]
            problems = tuple(copy for copy in store.problems if not known.says_of(copy.segment_id))
            unfinished = tuple(one for one in store.unfinished if not known.says_of(one.segment_id))
            self._completed = known, _KnownCopies(known.behind(lost), True, problems, unfinished)
            if forgotten := [self.stem(copy) for copy in (*lost, *problems)]:
                shown = ", ".join(forgotten[:NAMED]) + ", ..." * (len(forgotten) > NAMED)
                self.tell(
                    f"{self.of.topic}-{self.of.partition}: {TOPIC} has lost what it said of {len(forgotten)} copies:"
                    f" they are read as the store alone tells them: {shown}"
                )
        return self._completed[1]

    @property
    def last_event_ms(self) -> int:
        """When a copy was last made or deleted."""
        return max((copy.event_ms for copy in self.known().history.copies.values()), default=0)

    def _choose_id(self, histories: Mapping[PartitionId, History]) -> None:
        mine = {of: one for of, one in histories.items() if of[::2] == self.of[::2]}
        ends = {of: max(copy.event_ms for copy in one.copies.values()) for of, one in mine.items() if one.copies}
        for of in _newest(ends):
            self.of = of

    def lineage(self, source: _KnownCopies | None = None) -> list[tuple[int, int]]:
        """The leader epochs as the store has them: those of the copy that goes farthest in the newest epoch."""
        source = source or self.known()
        self._doubts = []
        copies = source.history.in_state(COPY_FINISHED)
        best = best_end(copies)
        if best is None:  # nothing but places is known
            return [(0, min((one.start_offset for one in source.problems), default=0))] if source.problems else []
        found, problem = self._epochs_of(best)
        of_segments = merged_epochs(copies)
        if not problem and (problem := self._disagreement(source, found, of_segments)):
            problem = f"they contradict the other copies: {problem}"
        if not problem:
            return found
        stem = self.stem(best)
        message = f"the leader epochs cannot be used, those of the segments are: {problem}"
        self._doubts = [Fault(stem + (EPOCHS if self.layout == LOCAL else INDEXES), "leader-epoch", message)]
        self.tell(f"{stem}: {message}")
        return of_segments

    def _epochs_of(self, copy: Copy) -> tuple[list[tuple[int, int]], str]:
        """The leader epochs that were stored with a copy, and what is wrong with them."""
        try:
            found = leader_epochs_of(self.stored(copy).part(EPOCHS))
        except CorruptIndexError as error:
            return [], error.message
        if not found:
            return [], "it is no checkpoint of leader epochs"
        inside = epochs_inside(found, copy.start_offset, copy.end_offset)
        told = f"expected the epochs {copy.leader_epochs} in the segment, found {inside}"
        return found, "" if inside == copy.leader_epochs else told

    def _disagreement(self, source: _KnownCopies, lineage: Lineage, of_segments: Lineage) -> str:
        """How the lineage that was stored with one copy contradicts the others; empty if it does not.

        An epoch has one start, which only the start of the log raises. Copies of a lost branch have epochs of their
        own, and other copies have their offsets.
        """
        starts = dict(lineage)
        for copy in source.history.in_state(COPY_FINISHED):
            for epoch, first in copy.leader_epochs:
                start = starts.get(epoch)
                if start is not None and first != max(start, copy.start_offset) and start > lineage[0][1]:
                    return f"epoch {epoch} begins at {start}, in {os.path.basename(self.stem(copy))} at {first}"
        here, there = (self._left_out(source, one) for one in (lineage, of_segments))
        if not there < here:
            return ""
        before = [copy for copy in source.history.in_state(COPY_FINISHED) if copy.end_offset < lineage[0][1]]
        others = sorted(source.history.in_state(COPY_FINISHED), key=lambda copy: copy.end_offset)[-2:-1]
        if not before and others and self._epochs_of(others[0])[0][:1] == list(lineage[:1]):
            return ""  # the log starts inside of the first copy, as two copies say
        return f"they leave out {here} offsets that copies have, those of the segments {there}"

    def _left_out(self, source: _KnownCopies, lineage: Lineage) -> int:
        """How many offsets copies have that a lineage leaves out."""
        spans = [(one.start, one.end) for one in self._epochs(source, lineage).pieces(lineage, 0) if one.copy]
        ends = [(one.start_offset, one.end_offset + 1) for one in source.history.in_state(COPY_FINISHED)]
        return _length([*spans, *ends]) - _length(spans)

    def stored(self, copy: Copy) -> StoredSegment:
        """The objects of a copy."""
        return StoredSegment(self.objects, self.stem(copy), self.layout, self.keys, copy)

    def segments(self, local: Sequence[Segment], start: int | None, lineage: Lineage) -> list[Segment]:
        """The segments of the log: copies up to where the local ones begin, then those.

        Parameters
        ----------
        local : list of Segment
            The segments of the log directory, if there is one.
        start : int, optional
            The log start offset, as the log directory knows it.
        lineage : list of (epoch, start offset)
            The leader epochs, as the log directory knows them.
        """
        source = self.known()
        state = source.history, len(source.history.changes), start, tuple(lineage), [one.path for one in local]
        if self._made is not None and self._made[0] == state:
            return self._made[1]
        stop = local[0].base_offset if local else INT64_MAX
        history, stated = source.history, lineage
        if history.copies or source.problems:
            lineage = lineage or self.lineage(source)
        parts = self.parts(source, start, stop, lineage)
        found = [*(self._segment(part, source.by_metadata) for part in parts), *local]
        first = self.first_offset if parts else stop
        # The epochs begin with the log, also after a crash that left an older checkpoint of its start.
        begin = max(start or 0, lineage[0][1] if lineage else 0)
        broken = self.without_manifest(begin, first)
        # Copies that retention deletes stay in the metadata.
        deleted = [copy.end_offset + 1 for copy in history.in_state(DELETE_STARTED, DELETE_FINISHED)]
        is_late = max([begin, *deleted]) + 1 < first < INT64_MAX
        if source.by_metadata and not self._is_incomplete and (is_late or any(part.copy is None for part in parts)):
            self._is_incomplete = True
            return self.segments(local, start, stated)
        self.late_start = ""
        if start is None and not source.knows_deletions and lineage and lineage[0][1] < self.first_offset:
            self.tell(
                f"{self.of.topic}-{self.of.partition}: the leader epochs begin at offset {lineage[0][1]}, the store at"
                f" {self.first_offset}: without {'the start of ' * source.by_metadata}{TOPIC} it does not say whether"
                " copies were deleted or are missing"
            )
        if is_late and (start is not None or (source.knows_deletions and lineage) or broken):
            where = f"no live copy in {TOPIC}" if parts and source.by_metadata else "nothing in the store"
            self.late_start = f"the log starts at offset {begin}, but there is {where} before {first}"
            self.late_start += f"; of {', '.join(broken[:NAMED])} objects are missing" * bool(broken)
            self.tell(f"{self.of.topic}-{self.of.partition}: {self.late_start}: copies are missing")
        self._made = state, found
        return found

    def parts(self, source: _KnownCopies, start: int | None, stop: int, lineage: Lineage) -> list[Part]:
        """The copies that the log consists of, in order."""
        self.first_offset = 0
        if not source.history.copies and not source.problems:
            return []
        epochs = self._epochs(source, lineage)
        first = max(start or 0, 0)
        if not source.by_metadata:
            self._tell_orphans(source, epochs, lineage)
        pieces = epochs.pieces(lineage, first, stop)
        self.first_offset = pieces[0].start if pieces else 0
        return parts_of(pieces, stop)

    def hidden(self, first: int, lineage: Lineage) -> list[tuple[Segment, int]]:
        """The live copies with offsets from the first local one on, each with the offset after it.

        They are whole: local segments are read instead of them, but only until retention deletes those.
        """
        source = self.known()
        lineage = lineage or self.lineage(source)
        copies = [piece.copy for piece in self._epochs(source, lineage).pieces(lineage, first)]
        return [
            (self._segment(Part(one, one.start_offset, None), source.by_metadata), one.end_offset + 1)
            for one in copies
            if one
        ]

    def _epochs(self, source: _KnownCopies, lineage: Lineage) -> Epochs:
        history = source.history
        # A sound copy of the same offsets is read instead.
        starts = [copy.start_offset for copy in (*history.in_state(COPY_FINISHED), *source.problems)]
        return Epochs([*(self._assumed(one, starts, lineage) for one in source.problems), *history.changes])

    @staticmethod
    def _assumed(problem: Copy, starts: Sequence[int], lineage: Lineage) -> Copy:
        """A copy of which only the first offset is known: as if it ended where the next one begins."""
        end = min((one for one in starts if one > problem.start_offset), default=problem.start_offset + 1) - 1
        before = [pair for pair in lineage if pair[1] <= problem.start_offset] or [(0, 0)]
        inside = [pair for pair in lineage if problem.start_offset < pair[1] <= end]
        return problem._replace(end_offset=end, leader_epochs=((before[-1][0], problem.start_offset), *inside))

    def _tell_orphans(self, source: _KnownCopies, epochs: Epochs, lineage: Lineage) -> None:
        used = {one.copy.segment_id for one in epochs.pieces(lineage, 0) if one.copy is not None}
        unused = [copy for copy in source.history.in_state(COPY_FINISHED) if copy.segment_id not in used]
        orphans = [*(one.stem for one in source.unfinished), *map(self.stem, unused)]
        if orphans:
            shown = ", ".join(orphans[:NAMED]) + ", ..." * (len(orphans) > NAMED)
            self.tell(
                f"{self.of.topic}-{self.of.partition}: without {TOPIC} the store does not say which segments are live;"
                f" {len(orphans)} may be orphans or of a lost branch and are not read: {shown}"
            )

    def _segment(self, part: Part, by_metadata: bool) -> Segment:
        topic, partition = self.of.topic, self.of.partition
        if part.copy is None:
            path = f"{self.directory}/{part.base_offset:020d}-lost-{part.end}.log"
            return Segment(path, topic, partition, part.base_offset, source=self)
        stem = self.stem(part.copy)
        self._copies[stem] = part.copy
        end = part.base_offset if part.copy.problem else part.end
        path = f"{self.address_of(stem)}{'' if end is None else f'-{end}'}.log"
        known = part.copy.max_timestamp_ms if part.end is None else None
        return Segment(
            path,
            topic,
            partition,
            part.base_offset,
            known_max_ms=known if by_metadata else None,
            claimed_max_ms=None if by_metadata else known,
            known_next_offset=part.copy.end_offset + 1 if part.end is None else part.end,
            source=self,
        )

    def layout_in(self, folder: str) -> str:
        return self.layout

    def _has(self, directory: str) -> bool:
        return directory in self._directories.values() or super()._has(directory)

    def missing(self, first: int, end: int) -> list[str]:
        return [] if self._made is None else self.without_manifest(first, end)

    def copy_of(self, stem: str) -> Copy | None:
        return self._copies.get(stem)

    def listed(self) -> list[Segment]:
        if self._made is None and self.log is not None:
            try:
                self.tier.check_metadata()
            except FileNotFoundError as error:
                message = f"{error.strerror}: each process that reads the log must see it under the same path"
                raise LogStorageError(message, path=error.filename, errno=errno.ENOENT) from error
            return self.log.whole_segments
        return self.segments([], None, []) if self._made is None else self._made[1]

    def without_manifest(self, first: int, end: int) -> list[str]:
        """Stems of objects that are not whole copies and begin at these offsets."""
        return [one.stem for one in self.known().unfinished if first <= one.base_offset < end]

    def faults(self) -> Iterator[Fault]:
        """What is wrong with the copies of which the log has no segment, and with what they say of each other."""
        source = self.known()
        yield from self._doubts
        read = {copy.segment_id for copy in self._copies.values()}
        for one in source.problems:
            if one.segment_id not in read:
                yield Fault(self.stem(one), "unreadable", one.problem)
        end = max((copy.end_offset + 1 for copy in self._copies.values()), default=0)
        for left in source.unfinished:
            if left.base_offset >= end:
                yield Fault(left.stem, "missing", "objects are missing, or the copy was never finished")

    def tell(self, message: str) -> None:
        """Warn once."""
        if message not in self._told:
            self._told.add(message)
            warn(message, self.tier.remote)


def _source_of_store(view: TieredPartition, place: PartitionObjects) -> _KnownCopies:
    """The copies of a partition as its objects alone tell them."""
    objects = objects_in(place.directory, view.objects)
    whole = [one for one in objects if one.is_whole(place.layout)]
    unfinished = tuple(one for one in objects if not one.is_whole(place.layout))
    bases = sorted({one.base_offset for one in whole})
    following = dict(zip(bases, bases[1:], strict=False))
    items = [(one, following.get(one.base_offset)) for one in whole]
    told = list(view.objects.side_by_side(partial(_copy_of, view, place), items))
    found = [copy for copy, _ in told]
    if not found and unfinished:  # a store without any whole copy is no empty one
        problem = "objects of the copy {} are missing, or it was never finished: it has {} alone"
        nothing = Copy(place.of, "", 0, 0, (), 1, None, 0, COPY_FINISHED)
        for one in unfinished:
            said = problem.format(one.stem, ", ".join(sorted(one.suffixes)))
            at = one.base_offset
            found.append(nothing._replace(segment_id=one.segment_id, start_offset=at, end_offset=at, problem=said))
        unfinished = ()
    history = History(place.of)
    known = [copy for copy in found if not copy.problem]
    for copy in sorted(known, key=lambda one: (one.leader_epochs[-1][0], one.event_ms, one.end_offset)):
        history.add(copy)
    problems = tuple(copy for copy in found if copy.problem)
    return _KnownCopies(history, False, problems, unfinished, tuple(message for _, message in told if message))


def _copy_of(view: TieredPartition, place: PartitionObjects, item: tuple[Objects, int | None]) -> tuple[Copy, str]:
    """The copy that some objects are, and how its manifest and its log contradict each other.

    A manifest is believed about its end if the next copy begins there; otherwise the log itself has the last word.
    """
    one, following = item
    stored = StoredSegment(view.objects, one.stem, place.layout, view.keys, None)
    nothing = Copy(place.of, one.segment_id, one.base_offset, one.base_offset, (), 1, None, 0, COPY_FINISHED)
    try:
        told = stored.manifest().copy if place.layout == AIVEN else None
        if told is None:
            return _measured(view, stored, nothing), ""
        if told[:3] != (place.of, one.segment_id, one.base_offset):
            raise CorruptRecordError(f"the manifest {stored.stem}{MANIFEST} is of another segment: {told[:3]}")
        if told.end_offset + 1 == following or (last := _last_of(view, stored, told, False)) is None:
            return told, ""
        if last.offset == told.end_offset:
            return told, ""
        message = (
            f"the manifest {stored.stem}{MANIFEST} contradicts its log, which is believed: expected the end offset"
            f" {last.offset}, found {told.end_offset}"
        )
        return _measured(view, stored, told), message
    except (CorruptRecordError, CorruptIndexError, InvalidRequestError) as error:
        return nothing._replace(problem=error.message), ""


def merged_epochs(copies: Sequence[Copy]) -> list[tuple[int, int]]:
    """The lineage that the epochs inside of all copies make."""
    starts: dict[int, int] = {}
    for copy in copies:
        for epoch, first in copy.leader_epochs:
            starts[epoch] = min(starts.get(epoch, first), first)
    lineage: list[tuple[int, int]] = []
    for epoch, first in sorted(starts.items(), reverse=True):
        if not lineage or first < lineage[-1][1]:
            lineage.append((epoch, first))
    return lineage[::-1]


def _length(spans: list[tuple[int, int]]) -> int:
    """The number of offsets in spans that may overlap."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return total


class _End(NamedTuple):
    """The last offset of a log, and the leader epoch of the batch with it."""

    offset: int
    leader_epoch: int


def _last_of(view: TieredPartition, stored: StoredSegment, known: Copy, skip_damage: bool) -> _End | None:
    """The end of a log, from its last batches; None if it is damaged there and damage is not skipped."""
    path = f"{view.address_of(stored.stem)}.log"
    segment = Segment(path, known.of.topic, known.of.partition, known.start_offset, source=view)
    last = _End(known.start_offset - 1, -1)
    try:
        for batch in header_scan(segment, segment.tail_position(), known.start_offset, skip_damage):
            lasts, epochs = batch.column("last_offset"), batch.column("leader_epoch")
            if (at := int(lasts.argmax())) >= 0 and lasts[at] > last.offset:
                last = _End(int(lasts[at]), int(epochs[at]))
    except CorruptRecordError:
        if skip_damage:
            raise
        return None
    return last


def _measured(view: TieredPartition, stored: StoredSegment, known: Copy) -> Copy:
    """A copy whose end and epochs are found in its log and its epochs' index."""
    with view.open_file(f"{view.address_of(stored.stem)}.log") as file:
        file.read(0, HEADER_BYTES)  # raises if it is another log
    last = _last_of(view, stored, known, True) or _End(known.start_offset - 1, -1)
    epochs = leader_epochs_of(stored.part(EPOCHS))
    if epochs is None:
        raise CorruptIndexError(f"{stored.stem}{EPOCHS} is no checkpoint of leader epochs")
    inside = epochs_inside(epochs, known.start_offset, last.offset)
    copy = known._replace(end_offset=last.offset, leader_epochs=inside, size_bytes=stored.size(), measured=True)
    check_copy(copy)
    if last.leader_epoch not in (-1, inside[-1][0]):
        message = f"{stored.stem}: its last batch has leader epoch {last.leader_epoch}, its epochs say {inside[-1][0]}"
        raise CorruptIndexError(message)
    return copy


def epochs_inside(lineage: Lineage, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a lineage with offsets from start to end, both included, each with the first of these."""
    found = []
    for number, (epoch, first) in enumerate(lineage):
        following = lineage[number + 1][1] if number + 1 < len(lineage) else INT64_MAX
        if max(first, start) < following and max(first, start) <= end:
            found.append((epoch, max(first, start)))
    return tuple(found)


# --- the objects of a segment ---------------------------------------------------------------------

_manifests = LruCache[tuple[Hashable, float, Manifest]](KEPT_BYTES)
_cuts = LruCache[int](KEPT_CUTS_BYTES)


class StoredSegment:
    """The objects of one copy, read as the files that they were.

    Parameters
    ----------
    source : Source
        Where they lie.
    stem : str
        Their path without suffixes.
    copy : Copy or None
        What the metadata topic or the manifest says of it.
    """

    def __init__(self, source: Source, stem: str, layout: str, keys: Mapping[str, Key], copy: Copy | None) -> None:
        self.source = source
        self.stem = stem
        self.layout = layout
        self.keys = keys
        self.copy = copy

    def manifest(self) -> Manifest:
        """The manifest.

        Raises
        ------
        CorruptRecordError
            It is missing or damaged.
        """
        return self._manifest()[0]

    def _manifest(self) -> tuple[Manifest, Hashable]:
        """The manifest, and a value that changes when it is read again."""
        path = self.stem + MANIFEST
        version, now = self.source.identity(path) if self.source.is_here else None, time.monotonic()
        known = _manifests.get((self.source, path))
        if known is not None and known[0] == version and (version is not None or now - known[1] < KNOWN_S):
            return known[2], known[1]
        try:
            with self.source.open_file(path) as file:
                if file.size() > MOST_BYTES:
                    message = f"expected a manifest of at most {MOST_BYTES} bytes, found {file.size()} in {path}"
                    raise CorruptRecordError(message, path=path)
                data = file.read(0, file.size())
                found = read_manifest(data, path)
        except LogStorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            message = f"the manifest {path} is missing; a segment in Iceberg's format has none and is not read"
            raise CorruptRecordError(message, path=path) from error
        _manifests.keep((self.source, path), (version, now, found), len(data) + found.chunks.memory_bytes)
        return found, now

    def size(self) -> int:
        """Bytes of the log."""
        stated = None if self.copy is None or self.copy.problem else self.copy.size_bytes
        if self.layout == LOCAL:
            return self._stored_bytes() if stated is None else stated
        manifest = self.manifest()
        found = manifest.chunks.size
        if manifest.copy is not None and not self.stem.endswith(f"-{manifest.copy.segment_id}"):
            message = f"the manifest {self.stem}{MANIFEST} is damaged: it is of segment {manifest.copy.segment_id}"
            raise CorruptRecordError(message, path=self.stem + MANIFEST)
        if stated not in (None, found):
            message = f"the manifest {self.stem}{MANIFEST} is damaged: expected a log of {stated} bytes, found {found}"
            raise CorruptRecordError(message, path=self.stem + MANIFEST)
        return found

    def _stored_bytes(self) -> int:
        """Bytes of the object of the log."""
        path = f"{self.stem}.log"
        try:
            return self.source.size_of(path)
        except LogStorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise CorruptRecordError(f"the object {path} is missing", path=path) from error

    def _claim(self) -> Claim | None:
        """What is said of the log; None if nothing but its place is known."""
        copy = self.copy
        if copy is not None and copy.problem:
            return None
        base = int(os.path.basename(self.stem)[:20])
        if self.layout == LOCAL:
            stored = None if copy is None or copy.measured else copy.size_bytes
        else:
            manifest = self.manifest()
            copy, stored = copy or manifest.copy, manifest.chunks.stored_bytes
        return Claim(base, INT64_MAX if copy is None else copy.end_offset, stored)

    def _decode(self, manifest: Manifest) -> Callable[[bytes, int], bytes] | None:
        """How a chunk is made of stored bytes; None if it is them."""
        open_chunk = self._opener(manifest)
        if not manifest.compressed:
            if open_chunk is None:
                return None

            def of_length(data: bytes, size: int) -> bytes:
                found = open_chunk(data)
                if len(found) != size:
                    raise ValueError(f"expected {size} bytes, found {len(found)}")
                return found

            return of_length
        return lambda data, size: decompressed(data if open_chunk is None else open_chunk(data), size, size)

    def _opener(self, manifest: Manifest) -> Callable[[bytes], bytes] | None:
        if manifest.encryption is None:
            return None
        key_id, wrapped, aad = manifest.encryption
        try:
            return opener(data_key(key_id, wrapped, self.keys), aad)
        except LogStorageError as error:
            raise LogStorageError(error.message, path=self.stem + MANIFEST, errno=error.errno) from error
        except ValueError as error:
            message = f"the manifest {self.stem}{MANIFEST} or the key is wrong: {error}"
            raise CorruptRecordError(message, path=self.stem + MANIFEST) from error

    def log(self, path: str, size: int, ahead: tuple[int, int | None] | None) -> RemoteLog:
        """The log as a file of a size; raises as ``manifest`` does."""
        coding, version = self.coding()
        name = f"{self.stem}.log"

        def opening(wanted: AheadRange) -> Readable:
            return self.source.open_file(name, ahead=wanted)

        return RemoteLog(path, name, size, coding, opening, version, ahead, self._claim())

    def coding(self) -> tuple[Coding, Hashable]:
        """How the log is stored, and the version of its chunks."""
        if self.layout == LOCAL:
            return Coding(), None
        manifest, read_at = self._manifest()
        decode = self._decode(manifest)
        name = f"{self.stem}.log"
        here = self.source.identity(name) if decode is not None and self.source.is_here else None
        version = (self.source, read_at, here, *sorted(self.keys.items()))
        return Coding(manifest.chunks, decode), version if decode else None

    def part(self, suffix: str) -> bytes:
        """An index, by the suffix that its file had.

        Raises
        ------
        CorruptIndexError
            It is missing or damaged.
        """
        path = self.stem + (suffix if self.layout == LOCAL else INDEXES)
        try:
            if self.layout == LOCAL:
                return self.source.read_bytes(path)
            manifest = self.manifest()
            start, size = manifest.indexes[suffix]
            if not size:
                return b""
            with self.source.open_file(path) as file:
                stored = file.size()
                data = file.read(start, size) if start + size <= stored else b""
            if len(data) < size:
                message = f"expected {start + size} bytes at least, found {stored}"
                raise CorruptIndexError(message, path=path, position=start)
            open_part = self._opener(manifest)
            return data if open_part is None else open_part(data)
        except LogStorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise CorruptIndexError(f"the object {path} is missing", path=path) from error
        except CorruptRecordError as error:
            raise CorruptIndexError(error.message, path=path) from error
        except KeyError as error:
            raise CorruptIndexError(f"the segment has no {suffix}", path=path) from error
        except ValueError as error:
            raise CorruptIndexError(f"the index {suffix} in {path} is damaged: {error}", path=path) from error

    def part_size(self, suffix: str) -> int | None:
        """Bytes that an index has at least; None if the segment has none."""
        if self.layout == LOCAL:
            found = self.source.size_of(self.stem + suffix) if self.source.exists(self.stem + suffix) else None
            return 0 if found is None and suffix in BOTH_INDEXES else found
        try:
            place = self.manifest().indexes.get(suffix)
        except CorruptRecordError:
            return 0
        return None if place is None else place[1]

    def modified_ms(self) -> int:
        """When it was copied."""
        if self.copy is not None and self.copy.event_ms:
            return self.copy.event_ms
        try:
            told = self.manifest().copy if self.layout == AIVEN else None
        except CorruptRecordError:
            told = None
        return self.source.modified_ms(f"{self.stem}.log") if told is None else told.event_ms


# --- what verification and copies ask ---------------------------------------------------------------


def _source(segment: Segment) -> TierFiles:
    """The source of a segment in tiered storage."""
    if not isinstance(segment.source, TierFiles):
        raise TypeError(f"expected a segment in tiered storage, found {segment.path}")
    return segment.source


def faults(segment: Segment) -> Iterator[Fault]:
    """What is wrong with the objects of a segment, apart from the bytes of its log.

    Raises
    ------
    LogStorageError
        An object cannot be read, or its key is not given.
    """
    name = _parsed(segment.path)
    if name is None or name.lost:
        return
    stored = _source(segment).stored_at(name)
    told = None if name.contradictory else stored.copy
    expected = None if told is None else told.size_bytes
    suffixes = [*BOTH_INDEXES, ".snapshot", EPOCHS]
    if stored.layout == AIVEN:
        try:
            manifest = stored.manifest()
            stored.size()
            stored.coding()
        except CorruptRecordError as error:
            yield Fault(stored.stem + MANIFEST, "manifest", error.message)
            return
        expected = manifest.chunks.stored_bytes
        yield from _contradictions(stored, name, manifest)
        suffixes = list(manifest.indexes)
        stored_end = max(start + size for start, size in manifest.indexes.values())
        yield from _of_size(stored, INDEXES, stored_end, "index-file")
    if expected is not None:
        yield from _of_size(stored, ".log", expected, "batch")
    for suffix in suffixes:
        place = stored.stem + (suffix if stored.layout == LOCAL else INDEXES)
        try:
            data = stored.part(suffix)
            if suffix == ".snapshot":
                snapshot_entries_of(data, place)
        except CorruptIndexError as error:
            yield Fault(place, "snapshot" if suffix == ".snapshot" else "index-file", error.message)
            continue
        if suffix == EPOCHS and (epochs := leader_epochs_of(data)) is None:
            yield Fault(place, "leader-epoch", "expected `0`, a count, and lines `<epoch> <offset>`")
        elif suffix == EPOCHS and told is not None and told.leader_epochs:
            inside = epochs_inside(epochs or [], told.start_offset, told.end_offset)
            if inside != told.leader_epochs:
                message = f"expected the epochs {told.leader_epochs} in the segment, found {inside}"
                yield Fault(place, "leader-epoch", message)


def stated_max_ms(segment: Segment) -> int | None:
    """The greatest timestamp that is stated of a whole copy."""
    name = _parsed(segment.path)
    copy = None if name is None or name.end is not None else _source(segment).copy_of(name.stem)
    return None if copy is None else copy.max_timestamp_ms


def snapshot_after(segment: Segment) -> str:
    """The address of the producer snapshot after a segment."""
    name = _parsed(segment.path)
    copy = None if name is None or name.contradictory else _source(segment).copy_of(name.stem)
    if name is None or copy is None:
        raise _no_file(segment.path)
    return f"{name.directory}/{copy.end_offset + 1:020d}-{copy.segment_id}.snapshot"


def open_after(segment: Segment) -> tuple[str, dict[int, int]]:
    """The object with the producer snapshot after a segment, and the transactions open there: first offset by producer.

    Raises
    ------
    CorruptIndexError
        It is missing or damaged.
    """
    name = _parsed(segment.path)
    if name is None:
        raise _no_file(segment.path)
    stored = _source(segment).stored_at(name)
    place = stored.stem + (".snapshot" if stored.layout == LOCAL else INDEXES)
    return place, open_transactions_of(stored.part(".snapshot"), place)


def _contradictions(stored: StoredSegment, name: _Name, manifest: Manifest) -> Iterator[Fault]:
    """What a manifest says otherwise than the metadata topic, or its own name."""
    said = manifest.copy
    if said is None:
        return
    told = stored.copy or said._replace(segment_id=name.segment_id, start_offset=name.base_offset)
    for field in ("of", "segment_id", "start_offset", "end_offset", "leader_epochs", "max_timestamp_ms"):
        if getattr(said, field) != getattr(told, field):
            message = f"{field}: expected {getattr(told, field)}, found {getattr(said, field)}"
            yield Fault(stored.stem + MANIFEST, "manifest", message)


def _of_size(stored: StoredSegment, suffix: str, expected: int, kind: str) -> Iterator[Fault]:
    path = stored.stem + suffix
    found = stored.source.size_of(path) if stored.source.exists(path) else None
    if found is None:
        yield Fault(path, "missing", "the object is missing")
    elif found != expected:
        yield Fault(path, kind, f"expected an object of {expected} bytes, found {found}")


def _of_address(path: str, options: addresses.StorageOptions) -> TierFiles:
    """The source of a segment that a user names by its address: as much as that tells."""
    return TierFiles(source_of(folder_of(path), options), address=path)


addresses.serve_schemes([f"{REMOTE}{one}" for one in ("file", *SERVICES, *SAME)], _of_address)
