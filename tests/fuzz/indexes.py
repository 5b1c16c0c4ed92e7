"""What must hold for any bytes given to the two indexes: what a list of their entries says."""

from __future__ import annotations

import bisect
import random
import struct

import numpy as np
from support.sets import generate

import kts
from fuzz import mutators
from fuzz.checks import GUARD, need

EDGES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**31, 2**62, 2**63 - 1)
HEAD = struct.Struct(">q")
FAR = 16500  # entries of a file that is searched as one far away in memory


class IndexTarget:
    """Input: the base offset (8 bytes), then the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.timed = name == "timeindex"
        self.form = struct.Struct(">qi" if self.timed else ">ii")

    def seeds(self, rng: random.Random) -> list[bytes]:
        found = [HEAD.pack(0)]
        for count in (1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 100):
            keys, values = (sorted(rng.sample(range(1, 9 * count + 9), count)) for _ in range(2))
            body = b"".join(self.form.pack(*pair) for pair in zip(keys, values, strict=True))
            found += [HEAD.pack(rng.choice((0, 1000, 2**40))) + body + rng.choice((b"", bytes(60), b"abc"))]
        return found

    def mutate(self, rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
        how = rng.random()
        if how < 0.2:
            sign = 128 if rng.random() < 0.2 else 0
            head = HEAD.pack(mutators.number(rng))
            return bytes([head[0] & 127 | sign]) + head[1:] + data[8:]
        if how < 0.6:
            other = rng.choice(others)[8:] if others else b""
            return data[:8] + mutators.mutate(rng, data[8:], [other], rng.choice((1, 1, 2, 4)))
        entries = self.entries(data[8:])
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(entries) + 1)
            key = generate.wrap(mutators.number(rng), 64 if self.timed else 32)
            entries[at : at + rng.randrange(3)] = [(key, mutators.number(rng, 32))] * rng.choice((1, 1, 2, 17))
        if rng.random() < 0.7:
            entries = sorted(set(entries)) if rng.random() < 0.7 else sorted(entries)
        rest = bytes(self.form.size * rng.choice((0, 0, 1, 5))) + bytes(rng.choice((0, 0, 0, 3)))
        return data[:8] + b"".join(self.form.pack(*entry) for entry in entries[:700]) + rest

    def entries(self, raw: bytes) -> list[tuple[int, int]]:
        """Whole entries without the zeros behind them; a single zero entry is one."""
        whole = len(raw) // self.form.size * self.form.size
        found = [(key, value) for key, value in self.form.iter_unpack(raw[:whole])]
        while len(found) > 1 and found[-1] == (0, 0):
            found.pop()
        many = len(raw) >= 2 * self.form.size
        return [] if many and found == [(0, 0)] else found

    def buffer(self, data: bytes) -> bytes:
        """The input; with a base offset below 0 a long file that begins or ends like it."""
        data = data.ljust(8, b"\0")
        entries = self.entries(data[8:])
        if data[0] < 128 or not entries:
            return data
        column = np.array(entries, np.int64)
        steps = np.diff(column, axis=0) if len(entries) > 1 else np.array([[1, 1]])
        if data[7] & 1:  # rises like the input, again and again
            grown = column[0] + np.cumsum(np.resize(steps, (FAR, 2)), axis=0)
        else:  # rises evenly to where the input begins
            grown = np.concatenate([column[0] + np.arange(-FAR, 0)[:, None] * np.abs(steps[0]), column])
        form = np.dtype([("key", ">i8" if self.timed else ">i4"), ("value", ">i4")])
        found = np.empty(len(grown), form)
        found["key"] = grown[:, 0].astype(np.int64 if self.timed else np.int32)
        found["value"] = grown[:, 1].astype(np.int32)
        return bytes([data[0] & 127]) + data[1:8] + found.tobytes()

    def check(self, buffer: bytes, rng: random.Random, full: bool) -> Exception | None:
        base = HEAD.unpack_from(buffer.ljust(8, b"\0"))[0] & (1 << 63) - 1
        raw = buffer[8:]
        index = (kts.TimeIndex if self.timed else kts.OffsetIndex)(GUARD.put(raw), base)
        entries = self.entries(raw)
        keys = [key if self.timed else generate.wrap(base + key) for key, _ in entries]
        values = [generate.wrap(base + value) if self.timed else value for _, value in entries]
        need(len(index) == len(entries), f"{len(index)} entries, {len(entries)} are there")
        need([column.tolist() for column in index.entries()] == [keys, values], "entries() are others")
        answers = list(zip(keys, values, strict=True))
        below = (-1, base) if self.timed else (base, 0)
        some = keys if full else rng.sample(keys, min(len(keys), 20))
        targets = [generate.wrap(key + d) for key in some for d in (-1, 0, 1)] + list(EDGES)
        orders = [targets, sorted(targets), sorted(targets)[:: rng.randrange(1, 9)], targets[: rng.randrange(20)]]
        for queries in orders if full else [rng.choice(orders)]:
            many = index.lookup_many(np.array(queries, np.int64))
            self.answers(queries, list(zip(*(a.tolist() for a in many), strict=True)), base, entries, answers, below)
        self.answers(targets, [index.lookup(target) for target in targets], base, entries, answers, below)
        self.sound(index.check(), entries, raw)
        return None

    def answers(
        self,
        queries: list[int],
        got: list[tuple[int, int]],
        base: int,
        entries: list[tuple[int, int]],
        answers: list[tuple[int, int]],
        below: tuple[int, int],
    ) -> None:
        """Kafka's rule where keys do not fall; on others any entry."""
        raw_keys = [key for key, _ in entries]
        some = set(answers)
        rising = all(a <= b for a, b in zip(raw_keys, raw_keys[1:], strict=False))
        for query, answer in zip(queries, got, strict=True):
            if not rising:
                need(answer == below or answer in some, f"lookup of {query} gives {answer}, which is no entry")
                continue
            if not self.timed and query < base:
                slot = 0
            else:
                slot = bisect.bisect_right(raw_keys, query if self.timed else query - base)
            expected = answers[slot - 1] if slot else below
            need(answer == expected, f"lookup of {query} gives {answer}, not {expected}")

    def sound(self, found: list[str], entries: list[tuple[int, int]], raw: bytes) -> None:
        """``check`` finds something exactly where there is something, and stops somewhere."""
        pairs = list(zip(entries, entries[1:], strict=False))
        bad = any(key < 0 or value < 0 for key, value in entries) or any(b[0] <= a[0] for a, b in pairs)
        bad = bad or any(b[1] < a[1] or (b[1] == a[1] and not self.timed) for a, b in pairs)
        bad = bad or len(raw) != len(entries) * self.form.size
        need(bad == bool(found), f"check() says {found[:3]}")
        need(len(found) <= 106, f"check() says {len(found)} sentences")
