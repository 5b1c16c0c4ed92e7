"""One process that fuzzes: runs inputs, keeps those that reach something new, makes others of them."""

from __future__ import annotations

import json
import random
import re
import resource
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

from fuzz import corpus
from fuzz.targets import Target
from fuzz.trace import EDGES, Trace

MOST_INPUT = 12_000
MOST_SECONDS = 3.0
MOST_GROWTH_KIB = 64 * 1024
SAME_FINDS = 3
WEIGHTS = {"entries": 3.0, "plain": 3.0, "timeindex": 0.4, "offsetindex": 0.4}


class State:
    """What is known of one target: inputs, and what they reached."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.folder = corpus.Folder(target.name)
        self.inputs: list[bytes] = []
        self.unseen = np.full(EDGES, 255, np.uint8)
        self.smallest: dict[int, tuple[int, int]] = {}
        self.favoured: list[int] = []
        self.seconds = 0.0

    def add(self, data: bytes, edges: list[int]) -> None:
        """Keep an input; it is favoured as long as it is the smallest that reaches some edge."""
        number = len(self.inputs)
        self.inputs.append(data)
        for edge in edges:
            if edge not in self.smallest or self.smallest[edge][0] > len(data):
                self.smallest[edge] = (len(data), number)
        self.favoured = list({number for _, number in self.smallest.values()})

    def pick(self, rng: random.Random) -> bytes:
        kind = rng.random()
        if kind < 0.2 or not self.favoured:
            return rng.choice(self.inputs)
        return self.inputs[rng.choice(self.favoured) if kind < 0.9 else -rng.randint(1, min(20, len(self.inputs)))]


class Engine:
    """All targets in turn."""

    def __init__(self, trace: Trace, targets: list[Target], folder: Path, number: int, seed: int) -> None:
        self.trace = trace
        self.states = [State(target) for target in targets]
        self.current = corpus.Current(folder / f"current-{number}")
        self.status = folder / f"status-{number}.json"
        self.seen = folder / f"seen-{number}.npy"
        self.rng = random.Random(f"{seed} {number}")
        self.executions = 0
        self.known = corpus.known_finds()
        self.finds: dict[str, set[bytes]] = {}
        self.reported = 0.0

    def run(self, state: State, buffer: bytes, full: bool = False) -> None:
        """Check one buffer with the coverage on; a broken promise becomes a file under tests/regressions."""
        self.executions += 1
        self.current.put(self.executions, state.target.name, buffer)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        what = None
        if not full:
            self.trace.start()
        try:
            state.target.check(buffer, random.Random(zlib.crc32(buffer)), full)
        except Exception as error:  # whatever it is, it is a find
            what = f"{type(error).__name__}: {error}"
        finally:
            self.trace.stop()
            self.current.rest()
        if time.process_time() - start > MOST_SECONDS and not full:
            what = f"took {time.process_time() - start:.1f} seconds"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > MOST_GROWTH_KIB:
            what = f"took {grown // 1024} MiB of memory"
        if what is not None:
            self.find(state.target.name, buffer, what)

    def find(self, target: str, buffer: bytes, what: str) -> None:
        kind = f"{target} {re.sub('[0-9]+', '', what)[:60]}"
        same = self.finds.setdefault(kind, set())
        if buffer not in same and len(same) < SAME_FINDS:
            same.add(buffer)
            line = " ".join(what.split())
            print(f"find: {corpus.keep_find(target, buffer, what)}: {line}", flush=True)

    def learn(self, state: State, data: bytes, new: bool = True) -> None:
        """Run an input and keep it if it reaches something new, and does so again when run again."""
        buffer = state.target.buffer(data)
        if len(data) > MOST_INPUT or len(buffer) > corpus.MOST_BUFFER or corpus.digest(buffer) in self.known:
            return
        self.run(state, buffer)
        if not self.trace.news(state.unseen, False):
            return
        self.run(state, buffer)
        if not self.trace.news(state.unseen, True):
            return
        state.add(data, np.unique(self.trace.edges() >> 8).tolist())
        if new:
            state.folder.add(data)
            self.run(state, buffer, full=True)

    def begin(self, state: State) -> None:
        """The inputs known so far; the target's own if there are none."""
        warm = state.target.buffer(state.target.seeds(random.Random(0))[-1])
        state.target.check(warm, self.rng, True)  # libraries are imported on first use
        for data in corpus.committed(state.target.name):
            self.learn(state, data, new=False)
        self.catch_up(state)
        if not state.inputs:
            for data in state.target.seeds(self.rng):
                self.learn(state, data)

    def catch_up(self, state: State) -> None:
        for data in state.folder.news():
            self.learn(state, data, new=False)

    def fuzz(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for state in self.states:
            if time.monotonic() < end:
                self.begin(state)
        turn = min(10.0, max(0.2, seconds / 60))
        while time.monotonic() < end:
            ready = [state for state in self.states if state.inputs]
            state = min(ready, key=lambda each: each.seconds / WEIGHTS.get(each.target.name, 1.5))
            start = time.monotonic()
            self.catch_up(state)
            while time.monotonic() < min(end, start + turn):
                for _ in range(20):
                    self.learn(state, state.target.mutate(self.rng, state.pick(self.rng), state.inputs))
            state.seconds += time.monotonic() - start
            self.report()
        self.report()

    def report(self) -> None:
        """What was done so far, for the parent."""
        blocks: dict[str, list[int]] = {}
        for module, at in self.trace.blocks():
            blocks.setdefault(module, []).append(at)
        status = {
            "executions": self.executions,
            "inputs": {state.target.name: len(state.inputs) for state in self.states},
            "blocks": blocks,
        }
        aside = self.status.with_suffix(".new")
        aside.write_text(json.dumps(status))
        aside.replace(self.status)
        np.save(self.seen, np.stack([state.unseen != 255 for state in self.states]))


def smallest_set(trace: Trace, target: Target, inputs: list[bytes]) -> list[bytes]:
    """Few and small inputs that run every edge that these run, once and more than once.

    Small ones come first; then those go whose edges others run, too.
    """
    ran: list[tuple[bytes, set[int]]] = []
    times: Counter[int] = Counter()
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        buffer = target.buffer(data)
        if len(buffer) > corpus.MOST_BUFFER:
            continue
        for _ in range(2):  # the second time without what a first call does
            trace.start()
            target.check(buffer, random.Random(zlib.crc32(buffer)), False)
            trace.stop()
        edges = trace.edges()
        found = set((edges >> 8 << 1 | ((edges & 255) > 1)).tolist())
        if not found <= times.keys():
            ran.append((data, found))
            times.update(found)
    kept = []
    for data, found in reversed(ran):
        if all(times[edge] > 1 for edge in found):
            times.subtract(found)
        else:
            kept.append(data)
    return kept
