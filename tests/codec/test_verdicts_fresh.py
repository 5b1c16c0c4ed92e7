"""Cases that nobody recorded: Kafka's own classes and kts with `shipped=True` asked the same, other ones each run.

The programs are proved first: to recorded cases they give the recorded verdicts, byte for byte.
"""

from __future__ import annotations

import base64
import functools
import itertools
import random
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest
from support.golden import oracle_cases, scaled
from support.kafka.kafkas_classes import verdicts
from support.oracle import oracle_decode, oracle_log
from support.oracle.oracle_compare import Case, Difference, differences
from support.oracle.oracle_known import compressed_anew, unreadable_but_equal
from support.oracle.oracle_validator import validate
from support.sets import fresh_cases

import kts

TEXTS = {"message", "root", "root_message"}
COUNTS = {"validator": scaled(400, 1500), "tame log": scaled(20, 60)}
RECORDED = scaled(200, 500)
ANSWERS = {"validator": validate, "log": oracle_log.log}


class Class(NamedTuple):
    """Cases that may differ: why, at most how many of a thousand, and which."""

    reason: str
    most: int
    belongs: Any  # asked with the case, what differs, and the answer of kts


def too_large(case: Case, found: list[Difference], answer: Any) -> bool:
    """The first step that differs has a limit that only one of two sizes passes."""
    steps = [int(step[1]) for one in found if (step := re.match(r"out\.answers\[(\d+)\]", one.where))]
    errors = [said["answers"][min(steps)].get("error", {}) for said in (case["out"], answer)] if steps else []
    return any("TooLargeException" in error.get("class", "") for error in errors)


def stuck(case: Case, *_: Any) -> bool:
    """Kafka's log wants to roll to where a segment lies already, at this step or before; nothing can be appended."""
    said = [answer.get("error", {}).get("message", "") for answer in case["out"].get("answers", ())]
    return any("Trying to roll a new log segment" in one for one in said)


def no_memory(case: Case, *_: Any) -> bool:
    return "OutOfMemory" in case["out"].get("error", {}).get("class", "")


def beyond_the_bound(_: Case, __: list[Difference], answer: Any) -> bool:
    return isinstance(answer, kts.DecompressionLimitError)


def damaged_payload(_: Case, __: list[Difference], answer: Any) -> bool:
    said = answer["error"]["message"] if isinstance(answer, dict) and "error" in answer else ""
    return re.match(r"(gzip|snappy|lz4|zstd) ", said) is not None


def empty_batch(case: Case, _: list[Difference], answer: Any) -> bool:
    """What it has for a payload is not of its codec."""
    asked = base64.b64decode(case["in"]["bytes"])
    failed = case["out"].get("error", {}).get("class", "").endswith(".KafkaException")
    return failed and isinstance(answer, dict) and "error" not in answer and asked[16] == 2 and asked[57:61] == bytes(4)


CLASSES = {
    "validator": [
        Class("a length asks Kafka for more memory than it has", 20, no_memory),
        Class("kts decompresses at most so much", 2, beyond_the_bound),
        Class("Kafka reads damaged data as far as it goes, and finds another fault there", 5, damaged_payload),
        Class("Kafka opens the payload of a batch without records, too", 2, empty_batch),
        Class("messages whose lengths lie, copied", 10, lambda case, differs, _: unreadable_but_equal(case, differs)),
    ],
    "log": [
        Class("compressed by another release of a library", 300, lambda case, found, _: compressed_anew(case, found)),
        Class("compressed by another release of a library, beyond a limit", 20, too_large),
        Class("a log that cannot roll, and so cannot grow", 5, stuck),
    ],
}


def told(value: Any) -> Any:
    """Without the texts of errors, and without the codes that only some of the recorded errors have."""
    if isinstance(value, dict):
        return {name: told(one) for name, one in value.items() if name not in TEXTS | {"code", "decoded"}}
    return [told(one) for one in value] if isinstance(value, list) else value


class Asked(NamedTuple):
    """Cases and what Kafka's classes of one release said, all in one run of its program."""

    recorded: list[Case]
    fresh: dict[str, list[Case]]  # by family
    said: dict[str, list[Case]]  # "recorded", or a family


@functools.cache
def asked(gen: str, seed: int) -> Asked:
    rng = random.Random(seed)
    recorded = rng.sample(oracle_cases(f"validator-{gen}"), RECORDED) + rng.sample(oracle_cases(f"log-{gen}"), 40)
    fresh = {}
    for family, count in COUNTS.items():
        made = fresh_cases.FAMILIES[family](random.Random(f"{seed} {family} {gen}"), gen)
        fresh[family] = [
            {"family": family.split()[-1], "gen": gen, "id": f"fresh-{gen}-{number}", "in": one}
            for number, one in enumerate(itertools.islice(made, count))
        ]
    parts = {"recorded": recorded} | fresh
    answers = iter(verdicts(gen, [case for cases in parts.values() for case in cases]))
    return Asked(recorded, fresh, {name: list(itertools.islice(answers, len(parts[name]))) for name in parts})


@pytest.mark.parametrize("gen", ["0.10.2", "3.9"])
def test_the_programs_give_the_recorded_verdicts(gen: str, seed: int) -> None:
    done = asked(gen, seed)
    for case, answer in zip(done.recorded, done.said["recorded"], strict=True):
        assert told(answer) == told(case["out"]), case["id"]


@pytest.mark.parametrize("family", COUNTS)
@pytest.mark.parametrize("gen", ["0.10.2", "3.9"])
def test_kts_does_what_kafka_does_with_cases_that_nobody_recorded(gen: str, family: str, seed: int) -> None:
    done = asked(gen, seed)
    kind, count = family.split()[-1], COUNTS[family]
    found: Counter[str] = Counter()
    unknown = []
    for case, out in zip(done.fresh[family], done.said[family], strict=True):
        assert "harness" not in out, out
        case = case | {"out": out}
        if not out.get("byte_exact", True):
            out["decoded"] = oracle_decode.decode(base64.b64decode(out["bytes"]), gen)
        answer: Any
        try:
            answer = ANSWERS[kind](case["in"] | {"id": case["id"], "gen": gen})
            differs = differences(case, answer)
        except kts.DecompressionLimitError as error:
            answer, differs = error, [Difference("raised", None, error)]
        if not differs:
            continue
        reasons = [one.reason for one in CLASSES[kind] if one.belongs(case, differs, answer)]
        found.update(reasons[:1])
        if not reasons:
            unknown.append(f"{case['in']}: " + "; ".join(map(str, differs[:3])))
    print(f"{family} {gen}: {count} cases, {sum(found.values())} in classes {dict(found)}, {len(unknown)} in none")
    assert not unknown, f"{len(unknown)} cases:\n" + "\n".join(unknown[:3])
    for one in CLASSES[kind]:
        assert found[one.reason] <= one.most * count / 1000 + 3, one.reason
