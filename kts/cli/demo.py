"""``kts demo``: writes a log directory of real brokers, to try the other commands on."""

from __future__ import annotations

import errno
import io
import os
import shlex
import tarfile

import click

from kts.store import addresses, local, publishing
from kts.store.source import files

PACKED = os.path.join(os.path.dirname(__file__), "demo.tar.gz")  # tests/support/demo.py packs it
EPILOG = """\b
Examples:
  kts demo
  kts demo kafka-logs
"""


@click.command("demo", short_help="Write a small log directory to try kts on.", epilog=EPILOG)
@click.argument("directory", metavar="[DIR]", default="demo")
def command(directory: str) -> None:
    """Write 1.1 MiB of real Kafka data into DIR, by default into demo, to try the other commands on.

    Kafka brokers 3.9.2 and 0.10.2.2 wrote it: DIR/orders, a topic with three partitions in which one record has a time
    from the year 2036; DIR/clicks, compressed with zstd; DIR/legacy, magic 1 messages from the year 2017; DIR/groups,
    the committed offsets of three groups. Each is a log directory. DIR must not exist, or be empty.
    """
    try:
        write_demo(directory)
    except FileExistsError as error:
        raise click.BadParameter(f"{error.strerror}, found {directory}", param_hint="DIR") from error
    named = shlex.quote(os.path.normpath(directory))
    click.echo(
        f"Written by Kafka brokers 3.9.2 and 0.10.2.2, 21,000 records:\n"
        f"  {named}/orders  3 partitions, 9,000 records, one of them from the year 2036\n"
        f"  {named}/clicks  1 partition, 8,000 records, compressed with zstd\n"
        f"  {named}/legacy  1 partition, 4,000 messages of magic 1\n"
        f"  {named}/groups  the committed offsets of 3 groups\n"
        f"Next:\n"
        f"  kts ls {named}/orders\n"
        f"  kts offset-for {named}/orders/orders-0 --time 2026-09-08T10:00 --explain\n"
        f"  kts groups {named}/*"
    )


def write_demo(directory: str) -> None:
    """Write the demo's log directories into a directory that does not exist, or is empty; all of them, or nothing.

    Raises
    ------
    FileExistsError
        The directory is not empty, or is a file.
    """
    addresses.require_local(directory, "the demo")
    directory = os.path.abspath(directory)
    if os.path.lexists(directory) and (not files.directory_exists(directory) or files.names_in(directory)):
        raise FileExistsError(errno.EEXIST, "expected no such file, or an empty directory; name another DIR", directory)
    beside = f"{directory}.{os.getpid()}.tmp"
    try:
        with tarfile.open(fileobj=io.BytesIO(files.read_bytes(PACKED))) as packed:
            packed.extractall(beside, filter="data")
        publishing.publish_directory(beside, directory)
    finally:
        local.remove_tree(beside)
