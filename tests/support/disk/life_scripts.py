"""Six scripts for a log: append, roll, retain, truncate, index flush, close; and one whose process is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from support.disk.scripted_lives import Life


def append(life: Life) -> None:
    life.one_entry = False
    life.open()
    for number in range(7):
        life.append(1 + number % 3, 300 + 150 * (number % 4))
        if number in (1, 4):
            life.flush()
    life.append(5, 40)
    life.follow(1, 2)
    life.flush()
    life.append(2, 400)
    life.append(3, 900)
    life.append(1, 30)


def roll(life: Life) -> None:
    life.open()
    for number in range(9):
        life.append(1 + number % 2, 400)
        if number == 5:
            life.flush()
        if number == 7:
            life.roll()


def retain(life: Life) -> None:
    life.open()
    for number in range(10):
        life.append(1, 500)
        if number == 3:
            life.flush()
    life.retain()
    life.append(2, 300)
    if life.kind.generation != "0.10.2":
        life.start_at(life.facts.end - 3)
    life.retain()
    life.append(1, 300)
    life.flush()
    life.now_ms += 10_000_000
    life.retain()
    life.append(1, 200)


def truncate(life: Life) -> None:
    life.open()
    for number in range(8):
        life.append(2, 250)
        if number in (2, 6):
            life.flush()
    life.truncate(life.facts.end - 4)
    life.append(2, 250)  # as long as what was cut
    life.append(1, 400)
    life.truncate(life.facts.end - 2)  # inside a batch
    life.append(2, 250)
    life.flush()
    life.append(1, 100)
    life.truncate(3)
    life.append(2, 250)
    life.restart_at(100)
    life.append(2, 250)
    life.flush()
    life.append(1, 30)


def index_flush(life: Life) -> None:
    life.open()
    for number in range(14):
        life.append(1, 120)
        if number % 4 == 2:
            life.flush()


def close(life: Life) -> None:
    life.open()
    life.append(2, 300)
    life.append(1, 500)
    life.close()
    life.open()
    life.append(2, 600)
    life.flush()
    life.append(1, 200)
    life.close()
    life.open()
    life.close()
    life.open()
    life.append(1, 1900)
    life.append(2, 700)
    life.close()
    life.open()
    life.append(1, 700)


def killed(life: Life) -> None:
    """Twice the process ends anyhow, and the machine goes on: what it left was never synced."""
    life.open()
    for number in range(5):
        life.append(1 + number % 2, 400)
    life.drop()
    life.open()
    life.flush()
    life.append(2, 400)
    life.append(1, 300)
    life.drop()
    life.open()
    life.append(1, 500)
    life.close()
    life.open()
    life.append(1, 100)


def go_on(life: Life) -> None:
    """What follows a start-up that found damage."""
    life.open()
    life.append(2, 250)
    life.append(1, 400)
    life.flush()
    life.append(1, 30)


class Script(NamedTuple):
    """A life to run, and the topic it needs."""

    run: Callable[[Life], None]
    settings: dict[str, Any]
    exact: bool = True  # False where closed segments have live indexes that a rebuild would make otherwise

    @property
    def name(self) -> str:
        return "-".join([self.run.__name__, *(f"{value}" for key, value in self.settings.items() if "flush" in key)])


_RETENTION = {"segment.bytes": 1200, "retention.bytes": 2500, "retention.ms": 1_000_000, "file.delete.delay.ms": 0}
SCRIPTS = (
    Script(append, {}),
    Script(append, {"flush.messages": 1}),
    Script(roll, {"segment.bytes": 1500}),
    Script(retain, _RETENTION),
    Script(truncate, {"segment.bytes": 1600}, exact=False),
    Script(index_flush, {"index.interval.bytes": 0, "segment.index.bytes": 96}),
    Script(close, {}, exact=False),
)
KILLED = Script(killed, {"segment.bytes": 1500}, exact=False)
