"""From a frame to its answer: versions that are not served, and which answers are encoded in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.broker.asking import Asking

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import ConnectionClose, Peer, Request
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.log.log import Deleted
from kts.protocol.fields import fields_of
from kts.server.dispatch import AT_ONCE, Answering, frame_limit, refusal

LOW, HIGH = wire.versions(ApiKey.METADATA)
_LEVELS = """\
    topics          []     0+
        partitions  []     0+
            entries []     0+
                offset int32 0+
"""


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", {"node.id": 5, "num.partitions": 3})) as found:
        yield found


def answered(asking: Asking, frame: bytes) -> memoryview:
    """The answer to a frame, both without their sizes."""

    async def ask() -> memoryview:
        answering = Answering(asking.broker)
        chunks = await answering(memoryview(frame)[4:], Peer())
        answering.close()
        return memoryview(b"".join(chunk if isinstance(chunk, bytes) else bytes(chunk) for chunk in chunks or []))[4:]

    return asking.runner.run(ask())


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_its_oldest_layout(asking: Asking, version: int) -> None:
    frame = bytearray(wire.encode_request(ApiKey.API_VERSIONS, 3, 9, "c", {}))
    frame[6:8] = version.to_bytes(2, "big")
    correlation_id, found = wire.decode_response(ApiKey.API_VERSIONS, 0, answered(asking, bytes(frame)))
    assert correlation_id == 9
    assert found == {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": ApiKey.API_VERSIONS, "min_version": 0, "max_version": 4}],
        **{key: value for key, value in found.items() if key not in ("error_code", "api_keys")},
    }


def test_an_unknown_version_of_another_api_closes_the_connection(asking: Asking) -> None:
    frame = bytearray(wire.encode_request(ApiKey.METADATA, 1, 9, "c", {"topics": None}))
    frame[6:8] = (HIGH + 1).to_bytes(2, "big")
    with pytest.raises(ConnectionClose, match=f"expected version 0 to {HIGH} of METADATA, found {HIGH + 1}"):
        answered(asking, bytes(frame))


class Levels:
    """Answers with as many structs as it was asked for, in the third level."""

    private_versions: ClassVar = {
        (ApiKey.FETCH, 20_000): (fields_of("    count  int32  0+\n", 20_000), fields_of(_LEVELS, 20_000))
    }

    def run_retention(self) -> list[tuple[str, int, Deleted]]:
        return []

    def answer(self, api_key: int, body: dict[str, Any]) -> dict[str, Any]:
        return {"topics": [{"partitions": [{"entries": [{"offset": 1}] * body["count"]}]}]}


@pytest.mark.parametrize(("count", "threads"), [(AT_ONCE - 2, 0), (AT_ONCE - 1, 1)])
def test_long_answers_of_three_levels_are_encoded_in_a_thread(tmp_path: Path, count: int, threads: int) -> None:
    """The loop is for others meanwhile."""
    here: list[str] = []

    async def ask(broker: Broker) -> None:
        answering = Answering(broker)
        inside = answering._in_thread

        async def watched(work: Any, *arguments: Any) -> Any:
            here.append(work.__name__)
            return await inside(work, *arguments)

        answering._in_thread = watched  # type: ignore[method-assign]
        private = wire.private_layouts(Levels.private_versions)
        frame = wire.encode_request(ApiKey.FETCH, 20_000, 1, "c", {"count": count}, private=private)
        await answering(memoryview(frame)[4:], Peer())
        answering.close()

    with Asking(Broker(tmp_path / "data", extensions=[Levels()])) as asking:
        asking.runner.run(ask(asking.broker))
    assert here == ["encode_response"] * threads


def test_a_request_without_records_is_small_and_an_api_that_is_not_served_has_no_size() -> None:
    limit = frame_limit(100 << 20)
    assert {key: limit(key) >> 20 for key in ApiKey} == {key: 100 if key == ApiKey.PRODUCE else 16 for key in ApiKey}
    assert {frame_limit(1000)(key) for key in ApiKey} == {1000}
    for key in (-1, 4, 67, 2**15 - 1):
        with pytest.raises(UnsupportedVersionError, match=f"found {key}$"):
            limit(key)


def test_an_error_of_a_whole_request_reaches_the_client_or_ends_its_connection() -> None:
    error = InvalidRequestError("expected this, found that")
    answered: dict[ApiKey, set[int]] = {}
    for message in MESSAGES.values():
        for version in message.versions:
            try:
                reply = refusal(Request(message.api_key, version, None, {}), error)
            except ConnectionClose as closed:
                assert str(closed).startswith(f"{message.api_key.name} failed with error 42")
                continue
            [frame] = wire.encode_response(message.api_key, version, 1, reply)
            body = wire.decode_response(message.api_key, version, memoryview(bytes(frame))[4:])[1]
            assert body["error_code"] == 42
            assert body.get("error_message", str(error)) in (
                str(error),
                None,
                "",
            )  # older versions have no field for it
            answered.setdefault(message.api_key, set()).add(version)
    assert answered[ApiKey.FETCH] == {*range(7, 19)}
    assert answered[ApiKey.METADATA] == {13}
    assert answered[ApiKey.FIND_COORDINATOR] == {*range(4)}  # later ones answer each key, and have no place but that
    assert answered[ApiKey.OFFSET_FETCH] == {*range(2, 8)}  # the same, for each group
    assert answered[ApiKey.HEARTBEAT] == {*range(5)}
    assert ApiKey.PRODUCE not in answered
