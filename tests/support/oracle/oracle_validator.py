"""The recorded appends of leaders (`validator-*`), asked of kts."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from support.oracle.oracle_errors import error_object

import kts
from kts.behaviour import Behaviour
from kts.codec.validate import AppendRules, Validated, rules_of, validate_records
from kts.config import LogConfig

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
LAST_OF_ALL_FORMATS = "3.9"  # the validator of 4.3 takes a topic's format, too, which none of its topics has


def settings(case: dict[str, Any]) -> LogConfig:
    """The topic's configuration; an older Kafka's message format where 3.9 is asked for it."""
    behaviour = Behaviour.of(case["gen"])
    keys: dict[str, Any] = {
        "message.timestamp.type": case["ts_type"],
        "cleanup.policy": "compact" if case["compacted"] else "delete",
        "compression.type": case.get("compression_type", "producer"),
        "max.message.bytes": case.get("max_message_bytes", Behaviour.of(case["gen"]).max_message_bytes),
    }
    release = case["gen"] if case["magic"] >= behaviour.least_magic else LAST_OF_ALL_FORMATS
    if "message.format.version" not in Behaviour.of(release).unknown_settings:
        keys["message.format.version"] = FORMATS[case["magic"]]
    if not behaviour.limits_before_and_after:
        keys["message.timestamp.difference.max.ms"] = case["diff_max_ms"]
        return LogConfig.of(keys, release=release)
    return replace(
        LogConfig.of(keys, release=release),
        message_timestamp_before_max_ms=case["before_max_ms"],
        message_timestamp_after_max_ms=case["after_max_ms"],
    )


def validate(case: dict[str, Any]) -> dict[str, Any]:
    """What kts does with one append, in the shape of the recorded verdicts."""
    config = settings(case)
    origin = case.get("origin", "CLIENT").lower()
    rules = rules_of(config, Behaviour.of(case["gen"], True, config.times), origin)
    epoch, now = case.get("leader_epoch", 0), case["now"]
    data, start = base64.b64decode(case["bytes"]), case["start_offset"]
    found = rules.appender.set(data, start, now, epoch)
    out: dict[str, Any] = {"stage": "validate"}
    if "source_codec" in case:  # LogValidator alone
        source, target = case["source_codec"], case["target_codec"]
    else:
        if not found.analyse(True):
            return {"stage": "analyze", "error": error_object(found_error(rules, found, now))}
        entries, source, target, first, _, last, top, of_top, whole, rises = found.facts()
        out["analysis"] = {
            "first_offset": first,
            "last_offset": last,
            "max_timestamp": top,
            "offset_of_max_timestamp": of_top,
            "source_codec": source,
            "target_codec": target,
            "valid_bytes": whole,
            "shallow_count": entries,
            "offsets_monotonic": rises,
        }
        if not entries:
            return out | {"stage": "empty"}
        done = rules.appender.append(data, start, now, epoch)
        if isinstance(done, tuple):
            return out | appended(Validated(*done), now)
    try:
        return out | appended(alone(rules, found, now, epoch, source, target), now)
    except kts.KtsError as error:
        return out | {"error": error_object(error), "next_offset": found.result()[1]}


def appended(done: Validated, now: int) -> dict[str, Any]:
    return {
        "bytes": base64.b64encode(done.records).decode(),
        "max_timestamp": done.max_timestamp_ms,
        "offset_of_max_timestamp": done.offset_of_max_timestamp,
        "size_maybe_changed": done.size_maybe_changed,
        "log_append_time": now,
        "next_offset": done.next_offset,
    }


def alone(rules: AppendRules, found: Any, now: int, epoch: int, source: int, target: int) -> Validated:
    """What follows the analysis, with these codecs, whatever the analysis would have said."""
    if not found.choose(source, target):
        return validate_records(rules, found, now, epoch, source, target)
    error = rules.error(found, now)
    if error is not None:
        raise error
    start, end, top, of_top, append_time = found.result()
    records = found.kept()
    return Validated(records, start, end - 1, top, of_top, append_time, 1, len(records), False, source, target, end)


def found_error(rules: AppendRules, found: Any, now: int) -> kts.KtsError:
    error = rules.error(found, now)
    assert error is not None
    return error
