"""``kts serve``: serves a log directory to Kafka's clients."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import click

from .inputs import (
    advice_on_locks,
    json_option,
    parse_settings,
    proposal_option,
    release_option,
    shipped_option,
    with_proposals,
)
from .output import FINE, UNREADABLE, counted, note, print_json, remark, say

if TYPE_CHECKING:
    from kts.broker.broker import Broker

FEW_DESCRIPTORS = 256  # warn below this number
SWITCH_S = 0.001  # how long a computing thread may delay the event loop

EPILOG = """\b
Examples:
  kts serve DIR
  kts serve DIR --listen 127.0.0.1:0 --config num.partitions=3
  kts serve DIR --release 4.3
  kts serve DIR --config log.message.timestamp.type=LogAppendTime
  kts serve DIR --proposal largest-timestamp --proposal bucket-index

DIR is a new or empty directory, one that kts served before, or Kafka's own log directory (its broker stopped). The
only line on stdout is the address. SIGTERM and Ctrl-C finish the requests in progress and close the logs cleanly.
"""


@click.command("serve", short_help="Serve a log directory to Kafka's clients.", epilog=EPILOG)
@click.argument("directory", metavar="DIR")
@click.option(
    "--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT", help="Port 0 means any free port."
)
@click.option(
    "--config", "settings", metavar="KEY=VALUE", multiple=True, help="A broker setting by Kafka's name; repeatable."
)
@proposal_option
@release_option
@shipped_option
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach, without a password.")
@json_option
def command(
    directory: str,
    listen: str,
    settings: tuple[str, ...],
    proposals: tuple[str, ...],
    release: str | None,
    shipped: bool,
    insecure: bool,
    as_json: bool,
) -> int:
    """Serve the topics of a log directory as a single broker, for tests, replicas and migration.

    Producers, consumers, groups and admin clients of every Kafka version from 0.9 on may connect, from this machine
    only. Transactions are refused.
    """
    from kts.arguments import parse_address
    from kts.broker.broker import Broker
    from kts.broker.settings.broker import BrokerConfig
    from kts.errors import InvalidRequestError
    from kts.server.server import DEFAULT_PORT, check_address

    parsed = parse_settings(with_proposals(settings, proposals, "log.proposals"))
    try:
        host, port = parse_address(listen, DEFAULT_PORT)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--listen'") from error
    try:
        check_address(host, insecure, "--insecure")
    except InvalidRequestError as error:
        raise click.BadParameter(str(error), param_hint="'--listen'") from error
    try:
        named = {"release": release} if release is not None else {}
        config = BrokerConfig.of(parsed | named | ({"shipped": "true"} if shipped else {}))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--config'") from error
    logging.basicConfig(level=logging.WARNING, format="kts: %(message)s", stream=sys.stderr)
    with advice_on_locks():
        broker = Broker(directory, config)
    with broker:
        return serve(broker, host, port, insecure, as_json)


def tell_what_was_found(broker: Broker) -> None:
    """Report limits of the machine, and directories that are not served or were adopted."""
    from kts.server.server import most_connections
    from kts.store import descriptors

    if descriptors.most_descriptors() < FEW_DESCRIPTORS:
        note(f"{most_connections(broker.config)} connections at most: {descriptors.more_descriptors()}")
    for name, why in broker.topics.left_alone:
        note(f"{name} is left alone: {why}")
    for problem in broker.coordinator.journal.problems:
        note(problem)
    if adopted := broker.topics.adopted:
        found = counted(len(adopted), "topic")
        note(f"{found} found whose settings are not known: nothing of them expires until retention.ms is set")


def serve(broker: Broker, host: str, port: int, insecure: bool, as_json: bool) -> int:
    """Serve until a signal comes."""
    from kts.arguments import show_address
    from kts.server.event_loop import run_until
    from kts.server.server import Server

    async def until_signal() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        tell_what_was_found(broker)
        async with Server(broker, host, port, insecure=insecure) as server:
            address, topics = show_address(*server.address), len(broker.topics.names())
            if as_json:
                node = {"nodeId": broker.node_id, "clusterId": broker.cluster_id}
                print_json({"listen": address, **node, "topics": topics})
            else:
                click.echo(address)
            sys.stdout.flush()
            remark(f"serving {counted(topics, 'topic')}; clients connect to {address}")
            remark("Ctrl-C stops it")
            await stop.wait()
            remark("closing the logs")
        await asyncio.to_thread(broker.close)  # a second signal changes nothing

    sys.setswitchinterval(SWITCH_S)
    try:
        run_until(until_signal())
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        return say(f"{show_address(host, port)}: {why}", UNREADABLE)
    return FINE
