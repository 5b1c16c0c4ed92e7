"""Every other door refuses messages of KIP-32's options by name, and cuts nothing off them."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.reference.option_messages import message
from support.sets.option_logs import Replica

import kts
from kts import _codec
from kts.behaviour import GENERATIONS
from kts.broker.wire.messages import ApiKey
from kts.cli.app import cli
from kts.offline.verify import verify
from kts.proposals import options
from kts.replica.client import Connection
from kts.testing import KtsBroker

OPTIONS = [1, 2, 3]


def words(option: int) -> str:
    return f"magic {32 + option} is KIP-32's option {option}, which only kts.proposals.options reads"


@pytest.fixture(params=OPTIONS)
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Replica:
    made = Replica(tmp_path / "data/t-0", request.param)
    for number in range(4):
        made.append(2, codec=("none", "gzip")[number % 2])
    made.log.close()
    return made


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize(
    "door",
    [kts.decode, kts.scan_batches, kts.max_timestamp, kts.valid_bytes, lambda data: list(kts.iter_decode(data))],
    ids=["decode", "scan_batches", "max_timestamp", "valid_bytes", "iter_decode"],
)
def test_bytes_are_refused_by_name(option: int, codec: str, door: Callable[[bytes], object]) -> None:
    before = kts.encode({"value": [b"v"]})
    data = options.encode({"value": [b"v"] * 3}, option=option, compression=codec, base_offset=1)
    with pytest.raises(kts.CorruptRecordError, match=words(option)) as caught:
        door(before + data)
    assert (caught.value.reason, caught.value.position, caught.value.code) == ("PROPOSED_MAGIC", len(before), 2)


@pytest.mark.parametrize("option", OPTIONS)
def test_inside_a_wrapper_they_are_refused_by_name(option: int) -> None:
    inner = message(option, 0)
    wrapper = kts.encode({"value": [b"v"]}, magic=1, compression="gzip")

    packed = zlib.compressobj(wbits=31)
    wrapper = _codec.message(1, 1, 0, 5, packed.compress(inner) + packed.flush())
    with pytest.raises(kts.CorruptRecordError, match=f"inner message 0: {words(option)}"):
        kts.decode(wrapper)


def test_a_directory_is_refused_by_name_and_not_changed(replica: Replica) -> None:
    path, option = str(replica.path), replica.option
    before = {file.name: file.read_bytes() for file in replica.path.glob("*.log")}
    with pytest.raises(kts.CorruptRecordError, match=words(option)):
        kts.scan(path).read_all()
    assert any(words(option) in str(finding) for finding in verify(path))
    for command in (["dump"], ["verify"], ["batches"], ["stats"], ["ls"], ["retention"], ["reindex"], ["append"],
                    ["offset-for", "--time", "0"], ["offset-for", "--time", "0", "--shipped-search"],
                    ["truncate", "--to-offset", "1"]):  # fmt: skip
        done = CliRunner().invoke(cli, [*command, path], input="")
        assert done.exit_code != 0, command
        assert words(option) in " ".join(done.output.split()), command
    for generation in GENERATIONS:
        for shipped in (False, True):
            with pytest.raises(kts.CorruptRecordError, match=words(option)):
                kts.Log(path, generation=generation, shipped=shipped)
    with KtsBroker(replica.path.parent):
        pass  # the partition is offline
    assert {file.name: file.read_bytes() for file in replica.path.glob("*.log")} == before
    replica.open()
    assert replica.log.log_end_offset == 8


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_log_refuses_them_from_clients_and_leaders(
    tmp_path: Path, option: int, generation: str, codec: str, shipped: bool
) -> None:
    """Kafka 0.10.2 takes an unknown magic for 1; `shipped` does so too, but not with these."""
    data = options.encode({"value": [b"v"] * 2}, option=option, compression=codec)
    with kts.Log(tmp_path / "t-0", generation=generation, shipped=shipped) as log:
        for append in (log.append, log.append_as_follower):
            with pytest.raises(kts.CorruptRecordError, match=words(option)) as caught:
                append(data)
            assert caught.value.reason == "PROPOSED_MAGIC"
        assert log.size_bytes == 0


@pytest.mark.parametrize("release", ["0.10.2", "3.9"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_broker_refuses_them_from_producers(option: int, release: str) -> None:
    data = options.encode({"value": [b"v"]}, option=option)
    with KtsBroker(config={"inter.broker.protocol.version": release}) as broker:
        broker.create_topic("t")
        with Connection(broker.host, broker.port) as connection:
            rows = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
            body = {"acks": -1, "timeout_ms": 1000, "topic_data": rows}
            [topic] = connection.ask(ApiKey.PRODUCE, 2, body)["responses"]
        [row] = topic["partition_responses"]
        assert row["error_code"] == 2  # CORRUPT_MESSAGE
        assert broker.log("t").size_bytes == 0


def test_a_torn_tail_that_looks_like_an_option_is_cut_as_any_other(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0") as log:
        log.append(kts.encode({"value": [b"v"]}))
        size, path = log.size_bytes, Path(log.segments[0].path)
    torn = bytearray(options.encode({"value": [b"v" * 99]}, option=1, base_offset=1))
    torn[-1] ^= 1
    path.write_bytes(path.read_bytes() + torn)
    with kts.Log(tmp_path / "t-0") as log:
        assert (log.size_bytes, log.log_end_offset) == (size, 1)


def test_import_kts_loads_nothing_of_the_options() -> None:
    script = "import sys, kts, kts.log.log, kts.proposals; print([m for m in sys.modules if 'options._m' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
