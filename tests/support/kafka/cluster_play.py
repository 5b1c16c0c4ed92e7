"""A real KRaft broker whose topics, settings, users, quotas and ACLs are altered, and what Kafka then says of them.

`python -m support.kafka.cluster_play VERSION FOLDER` in `tests` writes a folder of `data/cluster`, and with a name that
ends in `.jsonl` the values there.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from support.clusters import random_data
from support.kafka.brokers import FOLDER, OPTIONS, Broker, jvm
from support.kafka.java_loop import JavaLoop
from support.kafka.java_tools import TOOLS, JavaTools
from support.kafka.jvm import Jvm

import kts
from kts.cluster_records.layout import record_types

CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"
LOG = "__cluster_metadata-0"
SECRETS = ("salt", "storedKey", "serverKey")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": 1500,
}
TOPICS, CONFIGS = TOOLS + "TopicCommand", "kafka.admin.ConfigCommand"
ALICE, BOB, APP = (["--entity-type", kind, "--entity-name", name] for kind, name in
                   (("users", "alice"), ("users", "bob"), ("clients", "app")))  # fmt: skip
ORDERS = ["--entity-type", "topics", "--entity-name", "orders"]
READ = ["--allow-principal", "User:bob", "--operation", "Read", "--topic", "orders"]
HISTORY = [
    [TOPICS, "--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=1000000",
     "--config", "cleanup.policy=compact"],
    [TOPICS, "--create", "--topic", "gone", "--config", "segment.ms=3600000"],
    [CONFIGS, *ALICE, "--alter", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=9"],
    [CONFIGS, "--entity-type", "users", "--entity-default", *APP, "--alter", "--add-config",
     "consumer_byte_rate=2048,request_percentage=50"],
    [CONFIGS, *ALICE, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=wonderland]"],
    [CONFIGS, *BOB, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=5000,password=builder]"],
    [CONFIGS, "--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config",
     "log.cleaner.threads=2,listener.name.plaintext.ssl.key.password=wonderland"],
    [CONFIGS, "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=-1"],
    ["ACLS", "--add", *READ],
    ["ACLS", "--add", "--deny-principal", "User:eve", "--operation", "All", "--group", "pay-",
     "--resource-pattern-type", "prefixed"],
    [TOPICS, "--alter", "--topic", "orders", "--partitions", "3"],
    [CONFIGS, *ORDERS, "--alter", "--add-config", "retention.ms=7200000,message.timestamp.type=LogAppendTime"],
    [CONFIGS, *ORDERS, "--alter", "--delete-config", "cleanup.policy"],
    [TOPICS, "--delete", "--topic", "gone"],
    [TOPICS, "--create", "--topic", "clicks"],
    [CONFIGS, *BOB, "--alter", "--delete-config", "SCRAM-SHA-512"],
    [CONFIGS, *ALICE, "--alter", "--delete-config", "consumer_byte_rate"],
    ["ACLS", "--remove", "--force", *READ],
    ["ACLS", "--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", "orders"],
]  # fmt: skip


@cache
def metadata_records(version: str) -> JavaLoop:
    """`java/brokers/MetadataRecords.java` with the classes of a release, for all tests of this process."""
    java = Jvm(FOLDER / f"broker-{version}.xml", FOLDER / "MetadataRecords.java")
    return JavaLoop(java, "MetadataRecords", options=OPTIONS)


def ask(release: str, do: str, **asked: object) -> dict[str, Any]:
    """The answer of Kafka's classes."""
    answer = metadata_records(release).ask(do, **asked)
    if "error" in answer:
        raise ValueError(f"{do} {asked}: {answer['error']}\n{metadata_records(release).said()}")
    return answer


def play(version: str, folder: Path, made: Path) -> None:
    """Let a broker live through the history; its metadata, and what Kafka says of it, lie in `made`."""
    with Broker(version, folder, SETTINGS) as broker:
        if version.startswith("4"):
            format_standalone(version, broker.properties)
        broker.start()
        with JavaTools(version, broker.bootstrap, folder) as tools:
            acls = ("kafka.admin." if version.startswith("3") else TOOLS) + "AclCommand"
            for tool, *arguments in HISTORY:
                code, said = tools.ask(acls if tool == "ACLS" else tool, *arguments)
                if code:
                    raise ValueError(f"{arguments} ended with {code}: {said}")
        described = ask(version, "describe", bootstrap=broker.bootstrap)
        broker.stop()
        made.mkdir(parents=True)
        shutil.copytree(broker.data / LOG, made / LOG)
        for name in ("meta.properties", "bootstrap.checkpoint"):
            shutil.copy2(broker.data / name, made / name)
    (made / "described.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    with (made / "records.jsonl").open("w", encoding="utf-8") as out:
        for file in files(made):
            rows = values_of(file)
            asked = [encoded(row["value"]) for row in rows]
            for row, record in zip(rows, ask(version, "records", values=asked)["records"], strict=True):
                out.write(_line({"file": file.name, "offset": row["offset"], "timestamp": row["timestamp"]} | record))
    [log] = (made / LOG).glob("*.log")
    with (made / "images.jsonl").open("w", encoding="utf-8") as out:
        for offset in range(12, values_of(log)[-1]["offset"] + 1, 4):  # from the first feature level on
            out.write(_line({"offset": offset, "records": image(version, log, offset)}))


def values_of(path: Path) -> list[dict[str, Any]]:
    """The records of a log or a snapshot: offset, time in ms, position of the batch, value."""
    found = kts.scan(path, columns=["offset", "timestamp", "position", "value"]).read_all()
    return found.set_column(1, "timestamp", found["timestamp"].cast("int64")).to_pylist()


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def image(version: str, log: Path, offset: int) -> list[dict[str, Any]]:
    """Kafka's image of the records up to an offset, as records."""
    batches: dict[int, list[str]] = {}
    for row in values_of(log):
        if row["offset"] <= offset:
            batches.setdefault(row["position"], []).append(encoded(row["value"]))
    found: list[dict[str, Any]] = ask(version, "image", batches=[*batches.values()])["records"]
    return found


def format_standalone(version: str, properties: Path) -> None:
    """Format a broker's directory for a quorum whose voters are in the log (KIP-853): kraft.version 1."""
    text = properties.read_text(encoding="utf-8").replace(
        "controller.quorum.voters=1@", "controller.quorum.bootstrap.servers="
    )
    properties.write_text(text, encoding="utf-8")
    jvm(version).run("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c", properties)


def files(made: Path) -> list[Path]:
    """The log, the snapshots, and the bootstrap checkpoint."""
    return [
        *sorted((made / LOG).glob("*.log")),
        *sorted((made / LOG).glob("*.checkpoint")),
        made / "bootstrap.checkpoint",
    ]


def _line(found: dict[str, Any]) -> str:
    for record in [found, *found.get("records", ())]:
        for name in SECRETS:
            record.get("data", {}).pop(name, None)
    return json.dumps(found, separators=(",", ":")) + "\n"


def values(version: str, rng: random.Random, rounds: int) -> Iterator[dict[str, Any]]:
    """Random records of every type and version that a release has, as its classes write them."""
    for known in record_types().values():
        for number in range(known.newest + 1):
            for _ in range(rounds):
                data = random_data(rng, known.fields, number)
                try:
                    made = ask(version, "write", apiKey=known.api_key, version=number, data=data)
                except ValueError as error:
                    if "UnsupportedVersion" not in str(error):
                        raise
                    break  # the release is older
                yield {"apiKey": known.api_key, "version": number, "bytes": made["bytes"], "data": made["data"]}


if __name__ == "__main__":
    if sys.argv[2].endswith(".jsonl"):
        lines = [json.dumps(one, separators=(",", ":")) for one in values(sys.argv[1], random.Random(1), 1)]
        Path(sys.argv[2]).write_text("\n".join(lines) + "\n", encoding="utf-8")
        sys.exit()
    with tempfile.TemporaryDirectory() as scratch:
        play(sys.argv[1], Path(scratch), Path(sys.argv[2]))
