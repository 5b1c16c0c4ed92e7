"""A tour: what kts does with the log directories of Kafka brokers, step by step, on real data; `make run` starts it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import kts
from kts.cli import main as kts_command
from kts.testing import KtsBroker

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "tests" / "data" / "golden" / "demo"
HOUR_MS = 3_600_000
DAY = "2026-09-08"
DAY_MS = (1_788_825_600_000, 1_788_912_000_000)
GET_JDK = "sudo apt install openjdk-17-jdk-headless"
GET_PYSPARK = "pip install 'kafka-timestamps[spark]'"
BAR_CHARACTERS = 40
LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""  # Spark's log: errors only


class TourError(Exception):
    """A step failed; the message says what to do next."""


def short(path: Path) -> str:
    """The path as seen from here, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def heading(number: int, text: str) -> None:
    print(f"\n== {number}. {text}", flush=True)


def run(*arguments: str | Path) -> None:
    """Show a command and run it, in this process."""
    words = ["kts", *(short(word) if isinstance(word, Path) else word for word in arguments)]
    print(f"$ {shlex.join(words)}", flush=True)
    sys.stdout.flush()
    code = kts_command(words[1:], prog_name="kts", standalone_mode=False)
    sys.stderr.flush()
    if code:
        raise TourError(f"`{shlex.join(words)}` ended with exit code {code}; run it alone to see more")


def missing_for_spark() -> str | None:
    """What stands in the way of Spark here, and how to get it; None if nothing does."""
    home = os.environ.get("JAVA_HOME")  # empty counts as unset
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        return f"no java was found; get a JDK 17 with: {GET_JDK}"
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"Spark 4 needs Java 17 or newer, and {java} is {said.splitlines()[0]}; get one with: {GET_JDK}"
    if importlib.util.find_spec("pyspark") is None:
        return f"pyspark is not installed; get it with: {GET_PYSPARK}"
    return None


def counts_from_spark(orders: Path, folder: str) -> Counter[int]:
    """Records an hour of one day, counted by Spark."""
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col, floor, unix_millis

    print(
        f"""spark.read.format("kts").option("subscribe", "orders")
     .option("startingTimestamp", {DAY_MS[0]}).option("endingTimestamp", {DAY_MS[1]})
     .load("{short(orders)}").groupBy(hour of timestamp).count()""",
        flush=True,
    )
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}  # this environment, no network
    builder = SparkSession.builder.master("local[2]").appName("kts tour")
    quiet = Path(folder, "log4j2.properties")
    quiet.write_text(LOG4J)
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        reader = spark.read.format("kts").option("subscribe", "orders")
        reader = reader.option("startingTimestamp", DAY_MS[0]).option("endingTimestamp", DAY_MS[1])
        hour = (floor(unix_millis(col("timestamp")) / HOUR_MS) * HOUR_MS).alias("hour")
        rows = reader.load(str(orders)).groupBy(hour).count().collect()
    finally:
        spark.stop()
    return Counter({int(row["hour"]): int(row["count"]) for row in rows})


def counts_in_process(orders: Path) -> Counter[int]:
    """The same counts without Spark."""
    reader = kts.scan(
        orders,
        topics=["orders"],
        starting_timestamp=DAY_MS[0],
        ending_timestamp=DAY_MS[1],
        columns=["timestamp"],
    )
    return Counter(ms // HOUR_MS * HOUR_MS for batch in reader for ms in batch["timestamp"].cast("int64").to_pylist())


def show_counts(counts: Counter[int]) -> None:
    """A line with a bar for each hour."""
    most = max(counts.values())
    for hour, count in sorted(counts.items()):
        clock = time.strftime("%Y-%m-%d %H:%M", time.gmtime(hour / 1000))
        print(f"  {clock}  {count:4}  {'#' * (count * BAR_CHARACTERS // most)}")


def step_spark(orders: Path) -> None:
    """Counts per hour, from Spark where it can run, and checked against the same without it."""
    problem = missing_for_spark()
    here = counts_in_process(orders)
    if problem is not None:
        print(f"Spark cannot run here: {problem}\nThe same job without Spark, in this process with kts.scan:")
        show_counts(here)
        return
    print("Spark starts; that takes some seconds.")
    with tempfile.TemporaryDirectory() as folder:
        counts = counts_from_spark(orders, folder)
    show_counts(counts)
    if counts != here:
        raise TourError(f"Spark counted {counts}, kts.scan {here}; please report this with your versions")
    print(f"{sum(counts.values())} records; kts.scan counts the same in this process.")


def step_serve(orders: Path) -> None:
    """The same directory behind a socket: whatever speaks Kafka's protocol reads it, by offset and by time."""
    if importlib.util.find_spec("kafka") is None:
        print("A client reads it; kafka-python is not installed, so this process does without a socket.")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(orders, Path(folder, "orders")))  # a broker writes checkpoints and a lock
        with KtsBroker(copy) as broker:
            print(f"A broker serves a copy of {short(orders)} on {broker.bootstrap_servers}.")
            for offset, timestamp, value in records_of_a_client(broker, "orders", DAY_MS[0], 3):
                clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp / 1000))
                print(f"  {offset:6}  {clock}  {value[:60]!r}")


def records_of_a_client(broker: KtsBroker, topic: str, t_ms: int, count: int) -> list[tuple[int, int, bytes]]:
    """The first records of partition 0 from a time on, as a client gets them that asks for the time's offset first."""
    if importlib.util.find_spec("kafka") is None:
        found = broker.offsets_for_times({(topic, 0): t_ms})[(topic, 0)]
        rows = broker.consume(topic, 0, offset=found.offset, max_records=count) if found is not None else []
        return [(row.offset, row.timestamp, row.value or b"") for row in rows]
    from kafka import KafkaConsumer, TopicPartition

    print("kafka-python: consumer.offsets_for_times(...), consumer.seek(...), next(consumer)")
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, consumer.offsets_for_times({partition: t_ms})[partition].offset)
    rows = [next(consumer) for _ in range(count)]
    consumer.close()
    return [(row.offset, row.timestamp, row.value) for row in rows]


def picture_folder() -> Path:
    """`build/` of the project, or the current directory where that cannot be written."""
    folder = ROOT / "build"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return Path.cwd()
    return folder if os.access(folder, os.W_OK) else Path.cwd()


def tour(demo: Path) -> None:
    """All steps."""
    topics = [demo / name for name in ("orders", "clicks", "legacy")]
    for topic in topics:
        if not topic.is_dir():
            raise TourError(
                f"no Kafka data in {topic}; next: git checkout -- tests/data, or name a copy of golden/demo"
            )
    orders, partition = topics[0], topics[0] / "orders-0"
    picture = picture_folder() / "orders-0.png"
    steps: list[tuple[str, Callable[[], None]]] = [
        ("Which topics and partitions did the broker leave?", lambda: run("ls", *topics)),
        ("And which segments has one of them?", lambda: run("ls", partition, "--segments")),
        (
            "The records of a quarter of an hour, found through the time index",
            lambda: run("dump", orders, "--from", f"{DAY}T10:00", "--to", f"{DAY}T10:15", "--format", "table"),
        ),
        (
            "At which offset does a time begin, and why there? (This log has a record from 2036 in it.)",
            lambda: run("offset-for", partition, "--time", f"{DAY}T10:00", "--explain"),
        ),
        (f"Records per hour on {DAY}, from Spark", lambda: step_spark(orders)),
        (f"A broker on the same directory: the first records of {DAY} for a Kafka client", lambda: step_serve(orders)),
        ("A picture of the timestamps per segment", lambda: run("plot", partition, "-o", picture)),
    ]
    for number, (text, step) in enumerate(steps, start=1):
        heading(number, text)
        step()
    beside = Path(sys.executable).with_name("kts")
    command = short(beside) if beside.exists() else "kts"
    print(f"\nThe picture is in {short(picture)}. Three commands to try next:")
    print(f"  {command} dump {short(orders)} -o orders.parquet")
    print(f"  {command} stats {short(demo / 'clicks')} --by 12h")
    print(f"  {command} verify {shlex.join(short(topic) for topic in topics)} --deep")


def main() -> int:
    """Run the tour; the first argument is another folder with the demo topics."""
    demo = Path(sys.argv[1]) if len(sys.argv) > 1 else DEMO
    started = time.monotonic()
    print(f"kts {kts.__version__}: a tour over log directories that Kafka brokers wrote ({short(demo)}).")
    try:
        tour(demo)
    except TourError as error:
        print(f"\ntour: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        print(f"\ntour: {type(error).__name__}: {error}\nnext: make clean run; then report it", file=sys.stderr)
        return 1
    print(f"({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
