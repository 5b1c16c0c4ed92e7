"""The error for damaged bytes or a refused set of records, as kts raises it or as a Kafka release returns it."""

from __future__ import annotations

from typing import Any

from kts.behaviour import Behaviour
from kts.compression import CODEC_NAMES
from kts.errors import REASONS, CorruptRecordError, InvalidRecordError, KtsError

Refused = tuple[int, int, str]  # index, timestamp and reason of a refused record
Refusal = tuple[str, int, int, int, int, int, list[Refused], CorruptRecordError | None]


def refused(found: Refusal, behaviour: Behaviour, *, now_ms: int, before_ms: int, after_ms: int) -> KtsError:
    """The error for a set that the compiled core refused.

    Parameters
    ----------
    found : tuple
        The result of ``AppendSet.refusal``.
    now_ms, before_ms, after_ms : int
        The clock and the limits for timestamps, in ms.

    Returns
    -------
    KtsError
        InvalidRecordError has the code of the release's InvalidRecordException.
    """
    reason, position, offset, record, a, b, records, failure = found
    raises = REASONS[reason].append or REASONS[reason].read
    if raises is None:
        raise RuntimeError(f"reason {reason} has no error")
    kind = raises.by(behaviour)
    where: dict[str, Any] = {"position": position, "offset": offset, "record_index": record if record >= 0 else None}
    where["reason"] = reason
    values: dict[str, Any] = {"a": a, "b": b}
    if reason in ("PAYLOAD", "WRAPPER_CODEC", "CODEC_FORMAT"):
        values["codec"] = CODEC_NAMES[a]
    if reason == "POLICY":
        limits = {"least": now_ms - before_ms, "most": now_ms + after_ms}
        where["record_errors"] = tuple(
            (index, REASONS[why].words.format(time=time, **limits)) for index, time, why in records
        )
        where["record_index"], first = where["record_errors"][0]
        values |= {"n": len(records), "record": where["record_index"], "first": first}
        for *_, why in records:
            of_record = REASONS[why].append
            if of_record is not None and of_record.error is not InvalidRecordError:
                kind = of_record.error
    if kind is InvalidRecordError:
        where["code"] = behaviour.invalid_record_code
    if reason == "PAYLOAD" and failure is not None:
        error = kind(failure.message, **where)
        error.__cause__ = failure
        return error
    return kind(REASONS[reason].words.format(**values), **where)


def as_shipped(error: CorruptRecordError, behaviour: Behaviour) -> KtsError:
    """The error with the code that a release returns when it reads the same damage.

    Returns
    -------
    KtsError
        The same error, or a plain KtsError (-1) if that release does not handle the exception.
    """
    raises = REASONS[error.reason].read if error.reason is not None else None
    if raises is None or raises.by(behaviour) is CorruptRecordError:
        return error
    names = ("path", "position", "offset", "record_index", "reason")
    return KtsError(error.message, **{name: getattr(error, name) for name in names})
