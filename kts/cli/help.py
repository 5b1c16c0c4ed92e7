"""``kts help``: the help of kts, or of one command."""

from __future__ import annotations

from typing import cast

import click


@click.command("help", short_help="This help, or that of a command: kts help dump.")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show the help of kts or of one of its commands, as --help does."""
    parent = ctx.find_root()
    if name is None:
        click.echo(parent.get_help())
        return
    group = cast(click.Group, parent.command)
    found = cast(click.Command, group.resolve_command(parent, [name])[1])  # another name is a usage error
    with click.Context(found, info_name=name, parent=parent) as inner:
        click.echo(found.get_help(inner))
