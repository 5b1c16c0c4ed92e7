"""librdkafka through kcat, a command."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from support.clients.client_librdkafka import CODECS, CONSUMER, MEMBER, PRODUCER, Confluent
from support.clients.client_records import APPEND, CREATE, NONE, Record, Row, Sent
from support.clients.clients import Client, Members
from support.golden import PATIENCE_S
from support.processes.dying import DIES_TOO
from support.waiting import wait_until


class Kcat(Client):
    """kcat takes lines: no times, no headers of a record's own; it tells nothing of what it sent."""

    name = "kcat"
    codecs = CODECS
    sends_times = sends_headers = tells = False
    takes_lines = True
    idempotent = False  # librdkafka is; kcat gives up when its only broker is away for a moment

    def __init__(self) -> None:
        if not shutil.which("kcat"):
            pytest.skip("needs kcat; get it by: sudo apt install kcat")

    def _run(self, bootstrap: str, *arguments: str, settings: dict[str, Any], stdin: bytes = b"") -> bytes:
        command = _command(bootstrap, settings, *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
        if done.returncode or b"ERROR" in done.stderr:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()}")
        return done.stdout

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        partition: int = 0,
        idempotent: bool = False,
    ) -> list[Sent]:
        lines = b"".join((one.key or b"") + b"\t" + (one.value or b"") + b"\n" for one in records)
        settings = PRODUCER | {"compression.codec": codec, "enable.idempotence": str(idempotent).lower()}
        produce = ["-P", "-t", topic, "-p", str(partition), "-K", "\\t", "-Z"]
        self._run(bootstrap, *produce, settings=settings, stdin=lines)
        return []

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        consume = ["-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-J", "-q"]
        return _lines(self._run(bootstrap, *consume, settings=CONSUMER | {"check.crcs": "true"}))

    def _query(self, bootstrap: str, topic: str, partition: int, target: int) -> int:
        """kcat answers `TOPIC [PARTITION] offset OFFSET`."""
        said = self._run(bootstrap, "-Q", "-t", f"{topic}:{partition}:{target}", settings={})
        return int(said.split()[-1])

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._query(bootstrap, topic, partition, -2), self._query(bootstrap, topic, partition, -1)

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        found = [self._query(bootstrap, topic, 0, target) for target in targets]
        return [None if offset < 0 else (offset, None) for offset in found]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        return KcatMembers(bootstrap, topic, group, members, partitions)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        return Confluent().committed(bootstrap, topic, group, partitions)  # kcat has no words for it


def _command(bootstrap: str, settings: dict[str, Any], *arguments: str) -> list[str]:
    given = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    return [*DIES_TOO, "kcat", "-b", bootstrap, *given, *arguments]


def _lines(printed: bytes) -> list[Row]:
    """kcat's JSON has the bytes as they are, in no encoding: as Latin-1 each is a character."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else text.encode("latin-1")

    types = {"create": CREATE, "logappend": APPEND, "unknown": NONE}
    rows = []
    for line in printed.split(b"\n"):
        if line:
            one = json.loads(line.decode("latin-1"))
            flat = [raw(each) for each in one.get("headers", [])]
            headers = tuple(
                (str(name, "utf-8"), data) for name, data in zip(flat[::2], flat[1::2], strict=True) if name
            )
            place = one["partition"], one["offset"], raw(one["key"]), raw(one["payload"])
            rows.append(Row(*place, one.get("ts", -1), types[one.get("tstype", "unknown")], headers))
    return rows


class KcatMembers(Members):
    """Processes whose output and messages threads collect."""

    def __init__(self, bootstrap: str, topic: str, group: str, members: int, partitions: int) -> None:
        settings = CONSUMER | MEMBER | {"enable.auto.commit": "true"}
        command = _command(bootstrap, settings, "-G", group, "-J", "-u", topic)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        self._processes = [subprocess.Popen(command, **pipes) for _ in range(members)]  # type: ignore[call-overload]
        self._out = [b""] * members
        self._said = [b""] * members
        self._threads = []
        for number, process in enumerate(self._processes):
            for where, pipe in ((self._out, process.stdout), (self._said, process.stderr)):
                thread = threading.Thread(target=self._collect, args=(where, number, pipe), daemon=True)
                thread.start()
                self._threads.append(thread)
        wait_until(f"all {members} members of {group} have partitions", lambda: self._assigned() == partitions)

    @staticmethod
    def _collect(where: list[bytes], number: int, pipe: Any) -> None:
        for line in pipe:
            where[number] += line

    def _assigned(self) -> int:
        """Partitions that all members have, 0 while one has none; it says `rebalanced (memberid ...): assigned: ...`"""
        counts = []
        for said in self._said:
            last = said.rpartition(b" rebalanced ")[2].partition(b"\n")[0]
            counts.append(last.count(b"[") if b": assigned:" in last else 0)
        return sum(counts) if all(counts) else 0

    def gather(self, count: int) -> list[list[Row]]:
        wait_until(f"the members print {count} lines", lambda: sum(out.count(b"\n") for out in self._out) >= count)
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(PATIENCE_S)
        self._end()
        return [_lines(out) for out in self._out]

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            for pipe in (process.stdout, process.stderr):
                with contextlib.suppress(AttributeError):
                    pipe.close()  # type: ignore[union-attr]

    def __exit__(self, *_: object) -> None:
        self._end()
