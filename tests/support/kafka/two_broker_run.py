"""Runs one script against two brokers, operation by operation, and tells where their answers differ."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from support.broker.wire_peer import Peer
from support.golden import PATIENCE_S
from support.kafka.two_broker_answers import Facts, Window, comparable, differences, reason_for
from support.kafka.two_broker_script import Operation, Script, resolved

from kts.broker import wire
from kts.broker.wire.messages import ApiKey

NO_ANSWER = "no answer came"
SETTLED = "twisted"  # a topic whose settings the script leaves alone
CHANGES = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS}
CHANGES |= {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}


class Side:
    """One of the two brokers: its connection, its facts, the append times that it gave."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.facts = Facts()
        self.clocks: dict[int, int] = {}
        self.settled = 0

    def run(self, number: int, operation: Operation) -> Any:
        """Its answer, as it came."""
        body = resolved(operation.body, self.facts, self.clocks)
        time.sleep(0.002)  # so that no two operations share a millisecond
        start = time.time_ns() // 1_000_000
        try:
            if operation.damage is None:
                answer = self.peer.ask(operation.api, operation.version, body, operation.answers)
            else:
                frame = operation.damage(wire.encode_request(operation.api, operation.version, 0, "script", body)[4:])
                version = operation.version if operation.answered is None else operation.answered
                answer = self.peer.ask_raw(operation.api, version, len(frame).to_bytes(4) + frame)
        except TimeoutError:
            answer = NO_ANSWER
            self.peer.close()
        if not operation.answers:  # the next answer comes after it is done, or the connection was closed for an error
            answer = self.peer.ask(ApiKey.API_VERSIONS, 0, {})
            answer = None if isinstance(answer, dict) else answer
        self.facts.windows.append(Window(start, time.time_ns() // 1_000_000, number))
        if operation.api == ApiKey.PRODUCE and isinstance(answer, dict):
            for topic in answer["responses"]:
                for each in topic["partition_responses"]:
                    if each["log_append_time_ms"] > 0:
                        self.clocks[number] = each["log_append_time_ms"]
        return answer

    def wait_for_coordinator(self) -> None:
        """Until the broker answers for groups and gives producer ids."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = self.peer.ask(ApiKey.FIND_COORDINATOR, 0, {"key": "one"})
            answer = self.peer.ask(ApiKey.OFFSET_FETCH, 5, {"group_id": "one", "topics": None})
            producer = self.peer.ask(ApiKey.INIT_PRODUCER_ID, 0, {"transactional_id": None})
            if not any(error_codes([found, answer, producer])):
                self.learn_topics(["__consumer_offsets"])
                return
            time.sleep(0.05)
        raise TimeoutError("the group coordinator does not get ready")

    def learn_topics(self, names: list[str]) -> None:
        """The ids of the topics, once all of them have leaders."""
        until = time.monotonic() + PATIENCE_S
        while True:
            answer = self.peer.ask(ApiKey.METADATA, 12, {"topics": [{"name": name} for name in names]})
            assert isinstance(answer, dict)
            ready = [
                not topic["error_code"] and all(each["leader_id"] >= 0 for each in topic["partitions"])
                for topic in answer["topics"]
            ]
            for topic in answer["topics"]:
                self.facts.learn(topic["name"], topic["topic_id"])
            if all(ready) and self.leads(answer["topics"]) or time.monotonic() > until:
                return
            time.sleep(0.02)

    def settle(self) -> None:
        """Until all that was changed so far has reached every part of the broker.

        A broker takes its controller's changes one after the other: once it tells the second of two more changes, it
        has done with all that came before the first.
        """
        until = time.monotonic() + PATIENCE_S
        resource = {"resource_type": 2, "resource_name": SETTLED}
        for _ in range(2):
            self.settled += 1
            change = {"name": "flush.ms", "value": str(self.settled), "config_operation": 0}
            resources = [resource | {"configs": [change]}]
            answer = self.peer.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": resources})
            assert isinstance(answer, dict)
            assert not any(error_codes(answer)), answer
            asked = {"resources": [resource | {"configuration_keys": ["flush.ms"]}]}
            told = ""
            while told != change["value"]:
                assert time.monotonic() < until, f"{self.peer.address} does not settle: {told}"
                answer = self.peer.ask(ApiKey.DESCRIBE_CONFIGS, 1, asked)
                assert isinstance(answer, dict)
                [config] = answer["results"][0]["configs"] or [{"value": ""}]
                told = config["value"]
                if told != change["value"]:
                    time.sleep(0.005)

    def leads(self, topics: list[dict[str, Any]]) -> bool:
        """Whether the broker knows that it leads all partitions: it hears of that later than of the topics."""
        asked = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": each["partition_index"], "timestamp": -1} for each in topic["partitions"]
                ],
            }
            for topic in topics
        ]
        answer = self.peer.ask(ApiKey.LIST_OFFSETS, 1, {"replica_id": -1, "topics": asked})
        return not any(error_codes(answer))


@dataclass
class Outcome:
    """How many operations of each kind ran, which listed differences there were, and those that are not listed."""

    operations: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)
    unlisted: list[str] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)


def error_codes(value: Any) -> list[int]:
    """All error codes in an answer."""
    if isinstance(value, dict):
        own = [value["error_code"]] if "error_code" in value else []
        return own + [code for each in value.values() for code in error_codes(each)]
    return [code for each in value for code in error_codes(each)] if isinstance(value, list) else []


def run_script(
    kafka: Peer, ours: Peer, rng: random.Random, count: int, release: str, *, stop_after: int = 20
) -> Outcome:
    """``count`` operations on both; what either broker answers decides nothing but for topics and offsets of the first.

    Parameters
    ----------
    kafka, ours : connections
    rng : the script's random numbers
    count : of operations
    release : of both
    stop_after : so many unlisted differences are enough
    """
    script = Script(rng, time.time_ns() // 1_000_000, release)
    sides = [Side(kafka), Side(ours)]
    outcome = Outcome()
    for side in sides:
        side.wait_for_coordinator()
    for number in range(count):
        operation = script.next() if number else script.first()
        answers = [side.run(number, operation) for side in sides]
        script.learn(number, operation, answers[0], sides[0].facts)
        if operation.api in CHANGES and isinstance(answers[0], dict) and not operation.body.get("validate_only"):
            for side in sides:
                side.settle()
                side.learn_topics(sorted(script.topics))
        outcome.operations[operation.api.name] += 1
        outcome.errors.update(error_codes(answers[0]))
        one, other = (
            comparable(answer, side.facts, operation.exact) for answer, side in zip(answers, sides, strict=True)
        )
        unlisted = []
        converted = operation.api == ApiKey.FETCH and operation.version < 4
        for difference in differences(one, other, frozenset({"records"} if converted else ())):
            reason = reason_for(operation, difference)
            if reason is None:
                unlisted.append(f"{difference}")
            else:
                outcome.listed[reason] += 1
        if unlisted:
            what = f"{number} {operation.api.name} {operation.version} {operation.note}"
            more = f" and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
            outcome.unlisted.append(f"{what}: {unlisted[0]}{more}\n    asked {operation.body}")
        if len(outcome.unlisted) >= stop_after:
            break
    return outcome
