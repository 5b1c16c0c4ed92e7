"""KIP-32's migration, step by step, on two brokers in this process: old and new clients, copies, a canary, rollbacks.

Clients of 0.9 speak Produce 1 and Fetch 1 and know messages of magic 0; clients of 0.10 speak Produce 2 and Fetch 2 and
know magic 1, with its timestamps. `python examples/migration.py` shows what converts where, what that costs, what goes
from the file to the socket by sendfile (smaller answers than 32 KiB are read), and checks that nothing is lost.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from migration_parts import Client, Cost, MigrationError, Sent, check_copy, check_reader, magics_of, replicate

from kts.broker.metrics import FETCH, PRODUCE
from kts.testing import KtsBroker

START_MS = 1_460_000_000_000  # spring 2016, when 0.10.0 came
OLD, NEW = "0.9.0", "0.10.0"
FETCH_OF = {OLD: 1, NEW: 2}  # what followers send under that inter.broker.protocol.version


class Cluster:
    """Broker 1 leads ``clicks`` (CreateTime), broker 2 leads ``orders`` (LogAppendTime); followers copy both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.formats = {1: OLD, 2: OLD}
        self.inter_broker = OLD
        self.led = {"clicks": 1, "orders": 2}
        self.brokers: dict[int, KtsBroker] = {}
        self.clients = [Client("0.9 client", 1, 0), Client("0.10 client", 2, 1)]
        self.now = START_MS

    def start(self) -> None:
        """Both brokers, and their topics."""
        for number in (1, 2):
            directory = self.folder / f"broker-{number}"
            self.brokers[number] = KtsBroker(directory, self.settings(number), time=self.now).start()
        self.brokers[1].create_topic("clicks", 1)
        self.brokers[2].create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})

    def close(self) -> None:
        """Stop them."""
        for broker in self.brokers.values():
            broker.close()

    def settings(self, number: int) -> dict[str, str]:
        """What stands in a broker's server.properties now."""
        return {
            "broker.id": str(number),
            "inter.broker.protocol.version": self.inter_broker,
            "log.message.format.version": self.formats[number],
            "log.retention.ms": "-1",
        }

    def bounce(self, formats: dict[int, str] | None = None, inter_broker: str | None = None) -> None:
        """Restart brokers one after the other with other settings, as in a rolling bounce."""
        self.formats |= formats or {}
        self.inter_broker = inter_broker or self.inter_broker
        for number in formats or self.brokers:
            self.brokers[number].restart(self.settings(number))

    def leader(self, topic: str) -> KtsBroker:
        """The broker that leads a topic."""
        return self.brokers[self.led[topic]]

    def copy(self, topic: str, protocol: str) -> Path:
        """Where the copy lies that was fetched as that inter-broker protocol does it."""
        return self.folder / f"copies-by-{protocol}" / f"{topic}-0"

    def traffic(self, *topics: str) -> None:
        """Every client writes and reads the topics, and the copies catch up; a line each."""
        self.now += 60_000
        sent = Sent()
        for topic in topics or self.led:
            broker, number = self.leader(topic), self.led[topic]
            broker.set_time(self.now)
            log = broker.log(topic)
            print(f"  {topic}: broker {number}, format {self.formats[number]}, {log.config.message_timestamp_type}")
            for client in self.clients:
                start = log.log_end_offset
                with Cost(PRODUCE, broker, topic) as cost:
                    client.produce(broker, topic, self.now)
                line(client.name, f"Produce {client.version}: v{client.magic} -> {magics_of(log.path, start)}", cost)
            for client in self.clients:
                with Cost(FETCH, broker, topic) as cost:
                    came, size = client.consume(broker, topic)
                sent += cost.sent(size)
                line(client.name, f"Fetch {client.version}: {magics_of(log.path, start)} -> {came}", cost)
            for protocol in (OLD, NEW) if self.inter_broker == NEW else (OLD,):
                with Cost(FETCH, broker, topic) as cost:
                    came, size = replicate(broker, topic, self.copy(topic, protocol), FETCH_OF[protocol])
                sent += cost.sent(size)
                does = f"Fetch {FETCH_OF[protocol]}: {magics_of(log.path, start)} -> {came}"
                line(f"{protocol} follower", does, cost)
        print(f"  sent to all of them: {sent}")


def line(who: str, does: str, cost: Cost) -> None:
    """A row of a step's table."""
    print(f"    {who:15} {does:24} {cost}", flush=True)


def heading(text: str, what: str) -> None:
    """A step and what is to be seen in it."""
    print(f"\n== {text}\n   {what}", flush=True)


def roll_back_by_replication(cluster: Cluster) -> None:
    """The KIP's rollback of a canary: the broker's data goes, and comes again from the followers."""
    broker = cluster.brokers[1]
    partition = Path(broker.log("clicks").path)
    broker.stop()
    shutil.rmtree(partition)
    for protocol in (OLD, NEW):
        found = magics_of(cluster.copy("clicks", protocol), 0)
        print(f"  the copy that came by Fetch {FETCH_OF[protocol]} has {found}")
    settings = cluster.settings(1) | {"log.message.format.version": OLD}
    with KtsBroker(cluster.copy("clicks", OLD).parent, settings, time=cluster.now) as successor:
        came, _ = replicate(successor, "clicks", partition, FETCH_OF[NEW])
        print(f"  broker 1 copies clicks from the follower that leads now: {came}")
    cluster.formats[1] = OLD
    broker.restart(cluster.settings(1))
    shutil.rmtree(cluster.copy("clicks", NEW))
    replicate(broker, "clicks", cluster.copy("clicks", NEW), FETCH_OF[NEW])


def check(cluster: Cluster) -> None:
    """Nothing is lost, doubled or out of order, for readers of both generations and in every copy."""
    for topic in cluster.led:
        sent = {client.name: client.sent[topic] for client in cluster.clients}
        path = Path(cluster.leader(topic).log(topic).path)
        for client in cluster.clients:
            again = Client(f"{client.name}, from the beginning", client.version, client.magic)
            again.consume(cluster.leader(topic), topic)
            for reader in (client, again):
                times = check_reader(reader.seen[topic], sent)
                print(f"  {topic}: {reader.name:32} {sum(sent.values())} messages in order; times: {times}")
        for protocol in (OLD, NEW):
            print(f"  {topic}: {protocol + ' follower':32} {check_copy(path, cluster.copy(topic, protocol), sent)}")


def migrate(folder: Path) -> None:
    """All steps."""
    cluster = Cluster(folder)
    try:
        heading(
            "Phase 1: new software, format 0.9.0 on disk, inter-broker protocol 0.9.0",
            "Compressed sets are written anew, as before 0.10: offsets in wrappers are absolute. Times are dropped.",
        )
        cluster.start()
        cluster.traffic()
        heading(
            "Phase 1: inter-broker protocol 0.10.0",
            "Followers that were bounced may take v1, but there is none yet.",
        )
        cluster.bounce(inter_broker=NEW)
        cluster.traffic()
        heading(
            "Canary: broker 1 alone writes format 0.10.0",
            "What new producers send is kept as it is; v0 is converted up on its way in, v1 down for old consumers.",
        )
        cluster.bounce({1: NEW})
        cluster.traffic()
        heading(
            "Rollback as Kafka ships it: broker 1 is set back to format 0.9.0",
            "What is v1 on disk stays there, and all can read it.",
        )
        cluster.bounce({1: OLD})
        cluster.traffic("clicks")
        heading(
            "Canary again, and the KIP's own rollback: broker 1 stops, its data goes, followers give it back",
            "The KIP says that it is v0 then: that holds for copies that came by Fetch 1, and costs the times.",
        )
        cluster.bounce({1: NEW})
        cluster.traffic("clicks")
        roll_back_by_replication(cluster)
        heading("Phase 2: both brokers write format 0.10.0", "As in the canary, for all topics.")
        cluster.bounce({1: NEW, 2: NEW})
        cluster.traffic()
        heading("Nothing is lost, doubled or out of order", "Seen by who read along, from the start, and in copies.")
        check(cluster)
    finally:
        cluster.close()


def main() -> int:
    """Migrate in a temporary folder."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kts-migration-") as folder:
        try:
            migrate(Path(folder))
        except MigrationError as error:
            print(f"\nmigration: {error}", file=sys.stderr)
            return 1
    print(f"({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
