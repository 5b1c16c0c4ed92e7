"""kts.behaviour: rules by release, exactly or not, and which numbers are times."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kts
from kts import behaviour
from kts.behaviour import (
    DEFAULT,
    DIFFERENCES,
    GENERATIONS,
    NOTHING,
    RELEASES,
    RULES,
    Behaviour,
    Release,
    TimeRules,
    generation_of_format,
    one_release,
)
from kts.config import LogConfig

PAGE = Path(__file__).parent.parent / "docs/differences.md"
EVERY_TIMES = [TimeRules(), TimeRules(True), TimeRules(True, True)]


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" if isinstance(one, str) else f"`{one[0]}` {one[1]}" for one in value) or "none"
    return "2^63-1" if value == 2**63 - 1 else str(value)


def values(rule: str) -> list[str]:
    """The values of a rule: of each release, and of each exactly."""
    return [shown(getattr(Behaviour.of(name, exactly), rule)) for exactly in (False, True) for name in GENERATIONS]


def table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, *rows)).replace("\n", f"\n{'|---' * len(head)}|\n", 1)


def test_the_page_has_each_difference() -> None:
    rows = [[one.case, one.default, one.shipped] for one in DIFFERENCES]
    assert table(["case", "default", "`shipped=True`"], rows) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_each_rule() -> None:
    head = ["rule", "source", *GENERATIONS, *(f"{name} exactly" for name in GENERATIONS)]
    rows = [[one.sentence, one.source, *values(name)] for name, one in RULES.items()]
    expected = table(head, rows)
    assert expected in PAGE.read_text(encoding="utf-8"), f"the page needs this table:\n{expected}"


def test_a_rule_has_one_sentence_and_a_source() -> None:
    for name, one in RULES.items():
        assert one.sentence[0].isupper() and one.sentence.endswith(".") and ". " not in one.sentence, name
        assert one.source, name


def test_a_release_names_rules_that_it_changes() -> None:
    for name, release in RELEASES.items():
        assert {**release.rules, **release.shipped}.keys() <= RULES.keys()
        for changed, value in release.rules.items():
            assert value != RULES[changed].default, (name, changed)
        for changed, value in release.shipped.items():
            assert value != release.rules.get(changed, RULES[changed].default), (name, changed)


def test_a_release_is_added_by_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = {"max_message_bytes": 700, "least_values": (("segment.bytes", 2**20),)}
    made = behaviour.behaviours_of("9.9", Release((), changed, RELEASES["3.9"].shipped))
    monkeypatch.setattr(behaviour, "BEHAVIOURS", behaviour.BEHAVIOURS | made)
    monkeypatch.setattr(behaviour, "GENERATIONS", (*GENERATIONS, "9.9"))
    with pytest.raises(ValueError, match="^segment.bytes: expected 1048576 to 2"):
        LogConfig.of({"segment.bytes": 14}, release="9.9")
    assert LogConfig.of({}).release == "3.9"  # where none is named, as before
    for shipped in (False, True):
        with kts.Log(tmp_path / f"t-{shipped:d}", release="9.9", shipped=shipped, clock=lambda: 5) as log:
            assert (log.release, log.config.magic, log.config.max_message_bytes) == ("9.9", 2, 700)
            log.append(kts.encode({"timestamp": [5], "value": [b"x" * 500]}))
            with pytest.raises(kts.RecordTooLargeError):
                log.append(kts.encode({"timestamp": [5], "value": [b"x" * 700]}))
            assert log.max_timestamp() == (5, 0)


def test_a_difference_names_rules_by_which_a_release_is_followed_exactly() -> None:
    changed = {name for release in RELEASES.values() for name in release.shipped}
    for one in DIFFERENCES:
        assert changed.issuperset(one.rules), one.case


def test_a_behaviour_is_one_object_that_nobody_changes() -> None:
    for times in EVERY_TIMES:
        for name in GENERATIONS:
            for shipped in (False, True):
                made = Behaviour.of(name, shipped, times)
                assert Behaviour.of(name, shipped, TimeRules(times.before_1970, times.minus_one)) is made
                assert copy.deepcopy(made) is copy.copy(made) is pickle.loads(pickle.dumps(made)) is made
                assert (made.release, made.shipped, made.times) == (name, shipped, times)
    with pytest.raises(AttributeError, match="^greatest_magic: a behaviour does not change$"):
        DEFAULT.greatest_magic = 3


def test_a_behaviour_is_asked_for_by_a_known_release() -> None:
    with pytest.raises(ValueError, match="^release: expected one of 0.10.2, 3.9, 4.3, found '1.0'$"):
        Behaviour.of("1.0")
    with pytest.raises(TypeError, match="^shipped: expected True or False, found '3.9'$"):
        Behaviour.of("3.9", "3.9")  # type: ignore[arg-type]


def test_a_message_format_means_one_generation() -> None:
    assert [generation_of_format(magic) for magic in range(3)] == ["0.10.2", "0.10.2", "3.9"]
    for magic in range(3):
        assert magic <= Behaviour.of(generation_of_format(magic)).greatest_magic
    assert DEFAULT is Behaviour.of("3.9")


def test_generation_is_another_word_for_release() -> None:
    assert one_release(None, None) is None
    assert one_release("4.3", None) == one_release(None, "4.3") == one_release("4.3", "4.3") == "4.3"
    with pytest.raises(
        ValueError, match="^generation: expected '4.3', as it is another word for release, found '3.9'$"
    ):
        one_release("4.3", "3.9")
    with pytest.raises(ValueError, match="^generation: expected one of 0.10.2, 3.9, 4.3, found '4'$"):
        one_release(None, "4")


def test_settings_say_which_numbers_are_times() -> None:
    assert LogConfig().times == TimeRules()
    assert LogConfig(allow_negative_timestamps=True).times == TimeRules(True)
    minus_one = LogConfig(allow_negative_timestamps=True, message_timestamp_missing="-1")
    assert minus_one.times == TimeRules(True, True) == TimeRules.of(False, True)
    assert minus_one.behaviour(shipped=True) is Behaviour.of("3.9", True, TimeRules(True, True))


@pytest.mark.parametrize(
    ("times", "least", "none", "means_none", "counted", "hiding"),
    [
        (TimeRules(), -1, -1, False, [0, 7], []),
        (TimeRules(True), NOTHING, -1, True, [-(2**63), -5, -1, 0, 7], [-1]),
        (TimeRules(True, True), NOTHING, -(2**63), False, [-(2**63), -5, -1, 0, 7], [-(2**63), -5, -1]),
    ],
)
def test_minus_one_is_no_time_unless_it_is_said_to_be_one(
    times: TimeRules, least: int, none: int, means_none: bool, counted: list[int], hiding: list[int]
) -> None:
    numbers = [-(2**63), -5, -1, 0, 7]
    assert (times.least, times.none, times.minus_one_means_none) == (least, none, means_none)
    assert [number for number in numbers if times.counts(number)] == counted
    assert [number for number in numbers if times.hides(number)] == hiding
    assert np.array(numbers)[times.hides(np.array(numbers))].tolist() == hiding
    assert all(Behaviour.of("3.9", True, times).counts(number) for number in numbers)
