"""``make fuzz``: starts the processes that fuzz, watches over them, and says what they found."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import corpus
from fuzz.trace import Trace, all_blocks

FOLDER = corpus.LOCAL.parent
STUCK_SECONDS = 60
MOST_CRASHES, SAME_CRASHES = 100, 3
BROKEN, DAMAGED = 70, 86  # exit codes: the engine failed; a sanitizer reported
OPTIONS = "detect_leaks=0:quarantine_size_mb=8:malloc_context_size=8:max_allocation_size_mb=256"
OURS = re.compile(r"__pyx_(f|pf|pw)_3kts_|kts_")
REPORT = re.compile(r"ERROR: AddressSanitizer|runtime error|Fatal Python error|Sanitizer: ")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of the mutations")
    parser.add_argument("--targets", default="", help="comma-separated names; all by default")
    parser.add_argument("--minimise", action="store_true", help="write the corpus that git keeps")
    parser.add_argument("--functions", action="store_true", help="also print what share of each function ran")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def load(names: str) -> tuple[Trace, list[Any]]:
    """The extensions with their coverage, and the targets that use them."""
    trace = Trace()  # before anything imports the extensions
    found = importlib.import_module("fuzz.targets").targets()
    for name in ("_codec", "_timeindex", "avro._datum"):
        path = Path(importlib.import_module(f"kts.{name}").__file__ or "")
        if FOLDER not in path.parents:
            raise ImportError(f"{path} is not the build that reports what runs; use `make fuzz`")
        trace.watch(path)
    return trace, [found[name] for name in (names.split(",") if names else found)]


def work(arguments: argparse.Namespace) -> int:
    try:
        trace, targets = load(arguments.targets)
        engine = importlib.import_module("fuzz.engine").Engine(trace, targets, FOLDER, arguments.worker, arguments.seed)
        engine.fuzz(arguments.seconds)
    except Exception:  # no find, but a fault of ours: the parent shows it
        traceback.print_exc()
        return BROKEN
    return 0


def minimise(arguments: argparse.Namespace) -> int:
    trace, targets = load(arguments.targets)
    engine = importlib.import_module("fuzz.engine")
    total = 0
    for target in targets:
        known = corpus.committed(target.name) + corpus.Folder(target.name).news()
        kept = engine.smallest_set(trace, target, known)
        size = corpus.commit(target.name, kept)
        total += size
        plain = sum(map(len, kept))
        print(f"{target.name:12} {len(kept):5} of {len(known):5} inputs, {plain:8} bytes, {size:7} packed")
    print(f"{total} bytes in {corpus.PACKED}")
    return 0


class Worker:
    """One process, started again after a crash."""

    def __init__(self, number: int, arguments: argparse.Namespace, end: float) -> None:
        self.number, self.arguments, self.end = number, arguments, end
        self.log = FOLDER / f"log-{number}.txt"
        self.finds: list[str] = []
        self.kinds: dict[str, int] = {}
        self.before = self.crashes = 0  # executions of the processes that ended, and how many did
        self.start()

    def start(self) -> None:
        """Begin, or go on, for the seconds that are left."""
        left = max(0.1, self.end - time.monotonic())
        command = [sys.executable, "-P", "-m", "fuzz", "--worker", str(self.number), "--seconds", str(left)]
        command += ["--seed", str(self.arguments.seed + self.crashes), "--targets", self.arguments.targets]
        environment = os.environ | {
            "ASAN_OPTIONS": f"{OPTIONS}:exitcode={DAMAGED}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:exitcode={DAMAGED}",
            # exact, but slow: short bytes objects are blocks of their own
            "PYTHONMALLOC": "malloc" if (self.arguments.seed + self.number) % 2 else "pymalloc",
        }
        for name in ("current", "status"):
            for path in FOLDER.glob(f"{name}-{self.number}*"):
                path.unlink()
        self.told = 0
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.beat, self.beaten = -1, time.monotonic()
        self.looked = self.beaten

    def running(self) -> bool:
        """Whether it goes on; a crash, or a call without end, is a find and a new start."""
        executions, runs, target, buffer = self.current()
        now = time.monotonic()
        if executions != self.beat or now - self.looked > STUCK_SECONDS / 4 or self.stopped():
            self.beat, self.beaten = executions, now  # it goes on; or it, or this process, was stopped
        self.looked = now
        code = self.process.poll()
        self.tell()
        if code is None:
            if now - self.beaten < STUCK_SECONDS or not runs:
                return True
            self.process.kill()
            self.process.wait()
            self.crashes += 1
            self.find(target, buffer, f"no end within {STUCK_SECONDS} seconds")
        elif code == 0:
            return False
        elif code == BROKEN or not buffer:
            raise SystemExit(f"the fuzzer itself failed, see {self.log}:\n{self.log.read_text()[-3000:]}")
        else:
            lines = self.log.read_text(errors="replace").splitlines()
            reports = [line for line in lines if REPORT.search(line)]
            self.crashes += 1
            self.find(target, buffer, reports[0] if reports else f"the process ended with {code}")
            self.log.rename(FOLDER / f"crash-{self.number}-{self.crashes}.txt")
        self.before += executions
        if time.monotonic() < self.end and self.crashes < MOST_CRASHES:
            self.start()
            return True
        return False

    def stopped(self) -> bool:
        """Whether somebody sent the process a SIGSTOP."""
        status = Path(f"/proc/{self.process.pid}/stat")
        return status.exists() and status.read_text().rpartition(") ")[2].startswith("T")

    def current(self) -> tuple[int, bool, str, bytes]:
        path = FOLDER / f"current-{self.number}"
        return corpus.Current(path).get() if path.exists() and path.stat().st_size else (0, False, "", b"")

    def find(self, target: str, buffer: bytes, what: str) -> None:
        kind = re.sub("[0-9a-fx]+", "", what)
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] > SAME_CRASHES:
            corpus.keep_again(buffer)
            return
        path = corpus.keep_find(target, buffer, what)
        self.finds.append(f"find: {path}: {what}")
        print(self.finds[-1], flush=True)

    def tell(self) -> None:
        """Print what the process has found since the last time."""
        text = self.log.read_text(errors="replace")
        lines = text[self.told : text.rfind("\n") + 1].splitlines()
        self.told = text.rfind("\n") + 1
        found = [line for line in lines if line.startswith("find: ")]
        self.finds += found
        if found:
            print(*found, sep="\n", flush=True)

    def status(self) -> dict[str, Any]:
        path = FOLDER / f"status-{self.number}.json"
        found = json.loads(path.read_text()) if path.exists() else {"inputs": {}, "blocks": {}}
        found["executions"] = self.before + max(self.beat, 0)
        return found


def main() -> int:
    arguments = options()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if arguments.worker is not None:
        return work(arguments)
    if arguments.minimise:
        return minimise(arguments)
    start = time.monotonic()
    for path in (*FOLDER.glob("seen-*.npy"), *FOLDER.glob("log-*.txt"), *FOLDER.glob("crash-*.txt")):
        path.unlink()
    workers = [Worker(number, arguments, start + arguments.seconds) for number in range(arguments.jobs)]
    shown = start
    while any([worker.running() for worker in workers]):
        time.sleep(0.2)
        if sys.stdout.isatty() and time.monotonic() - shown > 5:
            shown = time.monotonic()
            done = sum(worker.status()["executions"] for worker in workers)
            print(f"{shown - start:6.0f} s  {done:9} executions, {edges()} edges", flush=True)
    return summary(workers, time.monotonic() - start, arguments)


def edges() -> int:
    """Distinct edges that any target reached in any process."""
    maps = [np.load(path) for path in FOLDER.glob("seen-*.npy")]
    return int(np.any(np.concatenate(maps), axis=0).sum()) if maps else 0


def summary(workers: list[Worker], seconds: float, arguments: argparse.Namespace) -> int:
    statuses = [worker.status() for worker in workers]
    executions = sum(status["executions"] for status in statuses)
    print(f"seed {arguments.seed}: {executions} executions in {seconds:.0f} s, {executions / seconds:.0f}/s")
    names = {name for status in statuses for name in status["inputs"]}
    inputs = {name: max(status["inputs"].get(name, 0) for status in statuses) for name in sorted(names)}
    print(f"{edges()} edges; inputs that reach something of their own: {inputs}")
    ran: set[tuple[str, int]] = set()
    for status in statuses:
        ran |= {(module, at) for module, found in status["blocks"].items() for at in found}
    shares: dict[str, list[int]] = {}
    for module in sorted((FOLDER / "lib" / "kts").glob("*.so")):
        blocks = {at: name for at, name in all_blocks(module).items() if OURS.match(name)}
        hit = sum((module.name, at) in ran for at in blocks)
        print(f"{module.name.split('.')[0]}: {hit} of {len(blocks)} basic blocks")
        for at, name in blocks.items():
            share = shares.setdefault(name, [0, 0])
            share[0] += (module.name, at) in ran
            share[1] += 1
    if arguments.functions:
        for name, (hit, many) in sorted(shares.items(), key=lambda item: item[1][0] - item[1][1]):
            print(f"{hit:5} of {many:5}  {name}")
    finds = len({line.split(": ")[1] for worker in workers for line in worker.finds})
    print(f"{finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
