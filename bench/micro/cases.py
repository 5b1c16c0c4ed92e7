"""What a micro-benchmark is: contenders that do the same work, and the ratios that count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from bench.corpora import DEFAULT_SHAPE, Corpus, Shape, corpora


class Settings(NamedTuple):
    """The size of the data and the seed that it is made from."""

    bytes: int
    seed: int


class Work(NamedTuple):
    """What a contender does in one round.

    Attributes
    ----------
    call : callable
        The measured call.
    amount : float
        Records, bytes or calls of one round, by the unit of the case.
    expected : object, optional
        What the call has to return; None is not checked.
    make : callable, optional
        Makes the arguments of the call before every round, not measured.
    drop : callable, optional
        Gets the arguments after every round, not measured.
    """

    call: Callable[..., object]
    amount: float
    expected: object = None
    make: Callable[[], tuple[Any, ...]] | None = None
    drop: Callable[..., object] | None = None


class Pair(NamedTuple):
    """A ratio that is printed: how many times as fast as its peer a contender is."""

    ours: str
    peer: str
    goal: float | None = None
    share: bool = False  # printed as a percentage


@dataclass(frozen=True)
class Case:
    """Contenders that do the same work on the same data.

    Attributes
    ----------
    table : str
        The title of the table that shows it.
    name : str
        Its name there.
    unit : "Mrec/s", "GiB/s", "ns" or "us"
        How a contender's speed is printed.
    contenders : tuple of str
        The names of what ``prepare`` makes, in the order of a round.
    pairs : tuple of Pair
        The ratios that are printed.
    prepare : callable
        Makes the data and the work of each contender.
    """

    table: str
    name: str
    unit: str
    contenders: tuple[str, ...]
    pairs: tuple[Pair, ...]
    prepare: Callable[[], dict[str, Work]]

    @property
    def title(self) -> str:
        return f"{self.table}: {self.name}"


@lru_cache(2)
def corpus_of(settings: Settings, magic: int, codec: str, size: str, shape: Shape = DEFAULT_SHAPE) -> Corpus:
    """One corpus; the last two are kept, because cases that follow each other often share them."""
    return next(corpora(magic, size, [codec], settings.bytes, settings.seed, shape))


def shown(unit: str, amount: float, seconds: float) -> str:
    """The speed of a contender in the unit of its case."""
    if unit in ("ns", "us"):
        return f"{seconds / amount * {'ns': 1e9, 'us': 1e6}[unit]:,.1f}"
    return f"{amount / seconds / {'Mrec/s': 1e6, 'GiB/s': 2**30}[unit]:.2f}"
