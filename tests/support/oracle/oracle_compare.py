"""An answer of ours against a recorded verdict of Kafka's, and the table of the classes that stay different.

Nothing may be missing but what `MAY_LACK` names: a field left out is a difference. Errors agree when they are of one
group (`oracle_errors.GROUPS`). Where Kafka compressed again, the records are compared instead of the bytes.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from support.golden import carries_samples, oracle_cases
from support.oracle import oracle_clean, oracle_decode
from support.oracle.oracle_errors import group, is_error

Case = dict[str, Any]
Answer = dict[str, Any]
NOT_COMPARED = frozenset({"message", "root", "root_message", "id", "ensure_valid"})
MAY_LACK = frozenset({"metrics", "aborted"})  # a view's: what was named depends on the sizes of fetches
DEPENDS_ON_CODEC = frozenset({"size", "crc", "valid_bytes"})  # of bytes that were compressed again


class Difference(NamedTuple):
    """Where an answer differs, what Kafka says and what kts says there."""

    where: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.where}: Kafka {str(self.kafka)[:160]}, kts {str(self.ours)[:160]}"


class Known(NamedTuple):
    """A class of cases that differ, on purpose or not; `belongs` is asked with the case and what differs.

    `carried` is how many of them are in the sample of `tests/data`, where that does not have the whole family.
    """

    reason: str
    count: int
    belongs: Callable[[Case, list[Difference]], bool]
    carried: int | None = None

    @property
    def expected(self) -> int:
        """How many there must be in the files that are read."""
        return self.count if self.carried is None or not carries_samples() else self.carried


def differences(case: Case, answer: Answer) -> list[Difference]:
    """What the answer to a case says otherwise than Kafka did; empty when they agree."""
    expected = dict(case["out"])
    found: list[Difference] = []
    if case["family"] == "clean":
        expected, answer = oracle_clean.softened(expected, answer)
    if "bytes" in expected and case["family"] in ("validator", "convert"):
        exact = expected.pop("byte_exact")
        records = expected.pop("decoded", None)
        if not exact:
            del expected["bytes"]
            if "bytes" in answer:
                ours = oracle_decode.decode(base64.b64decode(answer["bytes"]), case["gen"])
                found += _compare(records, ours, "records", DEPENDS_ON_CODEC)
            elif "error" not in answer:
                found.append(Difference("bytes", "some", None))
    return found + list(_compare(expected, answer, "out", frozenset()))


def _compare(kafka: Any, ours: Any, where: str, skipped: frozenset[str]) -> Iterator[Difference]:
    if is_error(kafka) or is_error(ours):
        yield from _compare_errors(kafka, ours, where)
    elif isinstance(kafka, dict) and isinstance(ours, dict):
        for name in kafka.keys() - NOT_COMPARED - skipped:
            if name in ours:
                yield from _compare(kafka[name], ours[name], f"{where}.{name}", skipped)
            elif name not in MAY_LACK:
                yield Difference(f"{where}.{name}", kafka[name], None)
        for name in ours.keys() - kafka.keys() - NOT_COMPARED:
            if is_error(ours[name]):
                yield Difference(f"{where}.{name}", None, ours[name])
    elif isinstance(kafka, list) and isinstance(ours, (list, tuple)):
        if len(kafka) != len(ours):
            yield Difference(f"{where}, how many", len(kafka), len(ours))
        for i, (theirs, mine) in enumerate(zip(kafka, ours, strict=False)):
            yield from _compare(theirs, mine, f"{where}[{i}]", skipped)
    elif kafka != ours or isinstance(kafka, bool) is not isinstance(ours, bool):
        yield Difference(where, kafka, ours)


def _compare_errors(kafka: Any, ours: Any, where: str) -> Iterator[Difference]:
    if not (is_error(kafka) and is_error(ours)) or group(kafka) != group(ours):
        yield Difference(where, kafka, ours)
    elif "record_errors" in kafka and "record_errors" in ours:
        theirs, mine = ([refused[0] for refused in error["record_errors"]] for error in (kafka, ours))
        if theirs != mine:
            yield Difference(f"{where}.record_errors", theirs, mine)


def judge(name: str, answer: Callable[[Case], Answer], known: Iterable[Known]) -> None:
    """Ask every case of a file, as `judge("convert-3.9", convert, TABLE)`.

    Every case agrees, or belongs to exactly one class of the table; every class has just the cases that it says.
    """
    table = list(known)
    found: Counter[str] = Counter()
    unknown, agree = [], 0
    for case in oracle_cases(name):
        differs = differences(case, answer(case["in"] | {"id": case["id"], "gen": case["gen"]}))
        if not differs:
            agree += 1
            continue
        classes = [entry.reason for entry in table if entry.belongs(case, differs)]
        found.update(classes)
        if len(classes) != 1:
            unknown.append(f"{case['id']} {case['tags']} {classes or ''}: " + "; ".join(map(str, differs[:3])))
    print(f"{name}: {agree} agree, {sum(found.values())} in {len(table)} classes, {len(unknown)} in none or in several")
    assert not unknown, f"{len(unknown)} cases of {name}:\n" + "\n".join(unknown[:10])
    assert found == {entry.reason: entry.expected for entry in table if entry.expected}
