"""What a disk may hold after a crash: a recorded trace of operations, replayed with parts of what was never synced.

The rules are POSIX's, the hard ones::

    a write, a change of size     is on the disk for certain after an fsync of its file; until then each of its sectors
                                  may be there or not, whatever was written later or earlier, there or elsewhere
    a name made, moved, removed   is there for certain after an fsync of its directory (one of the two, for a move);
                                  until then it happened or not, whatever happened to other names
    a sector of 512 bytes         is written whole or not at all
    an fsync that failed          promises nothing, and no later fsync makes good for it
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

SECTOR = 512
Tree = dict[str, bytes | None]  # path below the root -> content, or None for a directory


class Op(NamedTuple):
    """One mutating operation. Files and directories are numbers, the root is 0.

    ========  ==========================================================================
    write     ``data`` at ``position`` of file ``node``
    truncate  file ``node`` is ``position`` bytes long from now on
    extend    the same where it is shorter (a part of a write whose data never came)
    sync      file ``node``, or of a directory all its names
    failsync  the same, but it raised
    names     each (directory, name, node or -1 for none) of ``names``, all at once
    other     nothing that bytes or names show: a time, a lock
    ========  ==========================================================================
    """

    kind: str
    node: int = -1
    position: int = 0
    data: bytes = b""
    names: tuple[tuple[int, str, int], ...] = ()
    made: int = -1  # the directory that comes to be with its name
    call: str = ""  # what was called, for messages


class State(NamedTuple):
    """Something a disk may hold."""

    label: str
    tree: Tree

    def digest(self) -> int:
        """The same for the same tree, within one process."""
        return hash(frozenset(self.tree.items()))


class _Waiting:
    """An operation that is not certain yet, or must wait for one that is not."""

    __slots__ = ("certain", "doomed", "op")

    def __init__(self, op: Op) -> None:
        self.op, self.certain, self.doomed = op, False, False


def _touches(op: Op, node: int) -> bool:
    return op.node == node or any(directory == node for directory, _, _ in op.names)


class Disk:
    """What is certainly there, and what may be there, after some operations."""

    def __init__(self, contents: dict[int, bytes], directories: dict[int, dict[str, int]]) -> None:
        self._contents = dict(contents)
        self._directories = {node: dict(names) for node, names in directories.items()}
        self._waiting: list[_Waiting] = []

    @property
    def uncertain(self) -> list[Op]:
        """The operations that may or may not have reached the disk, in the order they were made."""
        return [one.op for one in self._waiting if not one.certain]

    def step(self, op: Op) -> None:
        """One more operation of the trace."""
        if op.kind in ("sync", "failsync"):
            for one in self._waiting:
                if _touches(one.op, op.node):
                    one.doomed |= op.kind == "failsync"
                    one.certain |= op.kind == "sync" and not one.doomed
            self._settle()
        elif op.kind != "other":
            self._waiting.append(_Waiting(op))

    def _settle(self) -> None:
        """Apply for good what is certain and waits for nothing that is not."""
        held: set[int] = set()
        left = []
        for one in self._waiting:
            nodes = {one.op.node, *(directory for directory, _, _ in one.op.names)} - {-1}
            if one.certain and not nodes & held:
                _apply(one.op, self._contents, self._directories)
            else:
                held |= nodes
                left.append(one)
        self._waiting = left

    def tree(self, chosen: Callable[[int, Op], list[Op]]) -> Tree:
        """What the disk holds if ``chosen(i, op)`` is what reached it of the i-th uncertain operation."""
        contents, directories = dict(self._contents), {n: dict(names) for n, names in self._directories.items()}
        i = 0
        for one in self._waiting:
            parts = [one.op]
            if not one.certain:
                parts, i = chosen(i, one.op), i + 1
            for part in parts:
                _apply(part, contents, directories)
        found: Tree = {}
        _walk(0, "", contents, directories, found)
        return found

    def kept(self) -> Tree:
        """What the disk holds if everything reached it: what a running program sees."""
        return self.tree(lambda _, op: [op])

    def states(self, rng: random.Random, *, count: int) -> Iterator[State]:
        """Different things the disk may hold now: the telling ones first, then random ones, ``count`` at most."""
        seen: set[int] = set()
        for label, choice in _choices(self.uncertain, rng, count):
            state = State(label, self.tree(choice))
            if (digest := state.digest()) not in seen:
                seen.add(digest)
                yield state
                if len(seen) == count:
                    return


def _apply(op: Op, contents: dict[int, bytes], directories: dict[int, dict[str, int]]) -> None:
    if op.kind == "names":
        if op.made >= 0:
            directories.setdefault(op.made, {})
        for directory, name, node in op.names:
            if node == -1:
                directories.setdefault(directory, {}).pop(name, None)
            else:
                directories.setdefault(directory, {})[name] = node
        return
    held = contents.get(op.node, b"")
    if op.kind == "truncate":
        contents[op.node] = held[: op.position].ljust(op.position, b"\0")
    elif op.kind == "extend":
        contents[op.node] = held.ljust(op.position, b"\0")
    else:
        held = held.ljust(op.position, b"\0")
        contents[op.node] = held[: op.position] + op.data + held[op.position + len(op.data) :]


def _walk(
    node: int, prefix: str, contents: dict[int, bytes], directories: dict[int, dict[str, int]], found: Tree
) -> None:
    for name, child in directories[node].items():
        path = prefix + name
        if child in directories:
            found[path] = None
            _walk(child, path + "/", contents, directories, found)
        else:
            found[path] = contents.get(child, b"")


# --- which parts of what is uncertain ---------------------------------------------------------------

Choice = Callable[[int, Op], list[Op]]


def cuts(op: Op) -> list[int]:
    """Where a write may be torn: the bytes of it before each border of a sector."""
    first = SECTOR - op.position % SECTOR
    return list(range(first, len(op.data), SECTOR))


def _part(op: Op, start: int, stop: int) -> Op:
    return op._replace(position=op.position + start, data=op.data[start:stop])


def _extended(op: Op) -> Op:
    return Op("extend", op.node, op.position + len(op.data))


def _all(_: int, op: Op) -> list[Op]:
    return [op]


def _none(_: int, op: Op) -> list[Op]:
    return []


def _only(test: Callable[[int, Op], bool]) -> Choice:
    return lambda i, op: [op] if test(i, op) else []


def _torn(which: int, parts: list[Op], others: Choice) -> Choice:
    return lambda i, op: parts if i == which else others(i, op)


def _choices(ops: list[Op], rng: random.Random, count: int) -> Iterator[tuple[str, Choice]]:
    """(label, choice) of what may have reached the disk, without end only in the random ones at the end."""
    yield "all kept", _all
    if not ops:
        return
    yield "all lost", _none
    yield "names kept, data lost", _only(lambda _, op: op.kind == "names")
    yield "names lost, data kept", _only(lambda _, op: op.kind != "names")
    yield "sizes kept, data lost", lambda _, op: [_extended(op)] if op.kind == "write" else [op]
    writes = [i for i, op in enumerate(ops) if op.kind == "write"]
    for which in writes[-1:]:
        yield from _tears(f"last write {which}", which, ops[which], 6)
    for which in writes[-4:-1]:
        yield from _tears(f"earlier write {which}, later ones kept", which, ops[which], 2)
    for node in dict.fromkeys(op.node for op in ops if op.node >= 0):
        yield f"file {node} lost, others kept", _only(lambda _, op, node=node: op.node != node)
        yield f"file {node} kept, others lost", _only(lambda _, op, node=node: op.node in (node, -1))
    for which, op in enumerate(ops):
        if op.kind in ("names", "truncate"):
            yield f"{op.call} {which} lost alone", _only(lambda i, _, which=which: i != which)
            yield f"{op.call} {which} kept alone", _only(lambda i, _, which=which: i == which)
    for which in range(1, len(ops)):
        yield f"the first {which} kept", _only(lambda i, _, which=which: i < which)
    for number in range(2 * count):
        yield f"random {number}", _random(ops, rng)


def _tears(label: str, which: int, op: Op, most: int) -> Iterator[tuple[str, Choice]]:
    yield f"{label}: lost", _torn(which, [], _all)
    yield f"{label}: only its size", _torn(which, [_extended(op)], _all)
    borders = cuts(op)
    if len(borders) > most:
        borders = sorted({*borders[: most // 2], *borders[-(most - most // 2) :]})
    for cut in borders:
        yield f"{label}: torn at {cut}", _torn(which, [_part(op, 0, cut)], _all)
        yield f"{label}: torn at {cut}, size kept", _torn(which, [_part(op, 0, cut), _extended(op)], _all)
        yield f"{label}: the end from {cut}", _torn(which, [_part(op, cut, len(op.data))], _all)


def _random(ops: list[Op], rng: random.Random) -> Choice:
    chance = rng.choice((0.2, 0.5, 0.8))
    parts: list[list[Op]] = []
    for op in ops:
        if op.kind != "write":
            parts.append([op] if rng.random() < chance else [])
            continue
        borders = [0, *cuts(op), len(op.data)]
        kept = [_part(op, start, stop) for start, stop in pairwise(borders) if rng.random() < chance]
        parts.append(kept + [_extended(op)] * (rng.random() < 0.2))
    return lambda i, _: parts[i]


# --- real directories -------------------------------------------------------------------------------


def read_tree(root: str) -> Tree:
    """Everything below a real directory."""
    found: Tree = {}
    for directory, names, leaves in os.walk(root):
        for name in names:
            found[os.path.relpath(os.path.join(directory, name), root)] = None
        for name in leaves:
            path = os.path.join(directory, name)
            content = b""
            if os.path.getsize(path):  # to open and close a lock's file, which is empty, would take the lock away
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, root)] = content
    return found


def write_tree(root: str, tree: Tree) -> None:
    """Make a real directory hold a tree; the directory must not be there yet."""
    os.mkdir(root)
    for path, content in tree.items():
        where = os.path.join(root, path)
        if content is None:
            os.mkdir(where)
        else:
            with open(where, "xb", buffering=0) as file:
                file.write(content)
