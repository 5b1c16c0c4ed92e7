"""One random script for `kts serve` and a real broker: every answer compared field by field (issue: point B3).

What may differ is listed in ``two_broker_answers.LISTED``, each with its reason; the test prints how often it did.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.broker.wire_peer import Peer
from support.clients.client_places import kts_serve, real_broker
from support.kafka.jvm import require_java
from support.kafka.two_broker_answers import CONVERTED, LISTED, NULL, Facts, Listed, comparable, differences
from support.kafka.two_broker_run import run_script

OPERATIONS = 500
KAFKAS = {"3.9": "3.9.2", "4.3": "4.3.1"}
KEPT_MS = 1000 * 365 * 86_400_000  # nothing is compacted or deleted meanwhile but by the script
BOTH = {"log.retention.ms": -1, "log.cleaner.min.compaction.lag.ms": KEPT_MS, "log.cleaner.backoff.ms": 3_600_000}
OURS = {"shipped.search": "true", "group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0}


@pytest.mark.parametrize("release", KAFKAS)
def test_a_random_script_gets_the_same_answers_from_kts_and_from_kafka(
    release: str, rng: random.Random, tmp_path: Path
) -> None:
    require_java()
    with (
        real_broker(tmp_path / "kafka", BOTH, KAFKAS[release]) as kafka,
        kts_serve(tmp_path / "kts", BOTH | OURS | {"release": release}) as ours,
        Peer(*kafka.bootstrap.split(":")) as one,
        Peer(*ours.bootstrap.split(":")) as other,
    ):
        outcome = run_script(one, other, rng, OPERATIONS, release)
    print(f"operations: {dict(outcome.operations)}")
    print(f"Kafka's error codes: {dict(sorted(outcome.errors.items()))}")
    for reason, count in outcome.listed.most_common():
        print(f"{count} times: {reason}")
    assert not outcome.unlisted, "\n".join(outcome.unlisted)
    assert sum(outcome.operations.values()) == OPERATIONS
    assert set(outcome.listed) <= {listed.reason for listed in LISTED} | {CONVERTED, NULL}
    # It was about something: most kinds of operations, answers of all kinds.
    assert len(outcome.operations) >= 14, outcome.operations
    assert len(outcome.errors) >= 10, outcome.errors
    assert outcome.errors[0] > OPERATIONS / 2


def test_the_comparison_sees_what_differs() -> None:
    facts = Facts()
    answer: dict[str, Any] = {"error_code": 0, "topics": [{"name": "b", "offset": 5}, {"name": "a", "offset": 6}]}
    changed = {"error_code": 0, "topics": [{"name": "a", "offset": 7}, {"name": "b", "offset": 5}]}
    one, other = comparable(answer, facts, True), comparable(changed, facts, True)
    assert [str(each) for each in differences(one, other)] == ["topics[0].offset: Kafka 6, kts 7"]
    assert not list(differences(one, comparable(answer, facts, True)))
    shorter = comparable({"error_code": 0, "topics": []}, facts, True)
    assert [each.path for each in differences(one, shorter)] == ["topics"]
    assert [each.path for each in differences(one, "the connection was closed")] == [""]


def test_every_listed_difference_has_a_reason_of_its_own() -> None:
    reasons = [listed.reason for listed in LISTED if isinstance(listed, Listed)] + [CONVERTED, NULL]
    assert len(set(reasons)) == len(reasons)
    assert all(len(reason) > 20 for reason in reasons)
