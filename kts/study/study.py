"""One run of the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import indexes, logs, mirror, rules, verdicts
from .measures import Figures
from .workloads import PATTERNS, WHAT, Settings, streams

if TYPE_CHECKING:
    from .workloads import MessageStream

SAMPLE = 50  # partitions of a pattern that are played in real logs, each under one option in turn


class Sample:
    """Some partitions in real logs, and whether they count as the rules do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.logs = self.segments = self.deletions = 0
        self.differences: list[str] = []

    def play(
        self,
        pattern: str,
        stream: MessageStream,
        played: dict[rules.SegmentRule, rules.Played],
        advance: Callable[[int], None],
    ) -> None:
        """Play the first partitions of a stream, each under another option."""
        for row in range(min(SAMPLE, len(stream.arrival_ms))):
            name, option = list(rules.OPTIONS.items())[row % len(rules.OPTIONS)]
            advance(1)
            with logs.scratch() as directory:
                found = logs.play(directory, option, stream.create_ms[row], stream.arrival_ms[row], self._settings)
            expected = logs.expected(played[option.rule], row)
            self.logs += 1
            self.segments += len(found.begins)
            self.deletions += len(found.deleted_ms)
            if found != expected:
                self.differences.append(f"{pattern}, partition {row}, {name}")

    def as_object(self) -> dict[str, Any]:
        """How many logs were played, and which differ from the rules."""
        return {
            "logs": self.logs,
            "segments": self.segments,
            "deletions": self.deletions,
            "differences": self.differences,
        }


def steps(settings: Settings) -> int:
    """How far ``advance`` counts."""
    return len(PATTERNS) * (settings.partitions + min(SAMPLE, settings.partitions)) + indexes.LOGS


def run(settings: Settings | None = None, *, advance: Callable[[int], None] = lambda amount: None) -> dict[str, Any]:
    """Play KIP-32's options through its patterns of latency, and say what its tables of preference become.

    Parameters
    ----------
    settings : Settings, optional
        What to play; None has the defaults.
    advance : callable
        Called with the number of partitions and logs that were played; ``steps`` is their sum.

    Returns
    -------
    dict
        Everything that ``kts study --json`` prints; docs/study.md describes it.

    Examples
    --------
    >>> from kts.study import Settings, run
    >>> report = run(Settings(partitions=1, index_messages=100))
    >>> [(cell["pattern"], cell["measured"]) for cell in report["retention"]][:2]
    [('pattern 1', 'CT or LAT'), ('pattern 2', 'CT')]
    """
    settings = settings or Settings()
    sample = Sample(settings)
    patterns = {}
    for pattern in PATTERNS:
        figures = {rule: Figures(rule, settings) for rule in rules.RULES}
        for chunk, stream in enumerate(streams(pattern, settings)):
            played = {rule: one.add(stream) for rule, one in figures.items()}
            advance(len(stream.arrival_ms))
            if chunk == 0:
                sample.play(pattern, stream, played, advance)
        patterns[pattern] = {
            "what": WHAT[pattern],
            "rules": {rule.name: one.as_object() for rule, one in figures.items()},
        }
    mirrored = mirror.compare(settings)
    search = indexes.by_option(settings, advance)
    return {
        "settings": asdict(settings),
        "findings": verdicts.findings(patterns),
        "patterns": patterns,
        **verdicts.tables(patterns, settings),
        "options": verdicts.option_table(patterns, mirrored, search, settings),
        "mirrorMaker": mirrored,
        "indexes": indexes.compare(settings, advance),
        "search": search,
        "sample": sample.as_object(),
    }
