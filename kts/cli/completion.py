"""``kts completion``: the script that makes a shell complete commands, options and paths."""

from __future__ import annotations

from typing import cast

import click

EPILOG = """\b
To try it in this shell, and to have it in every new one:
  bash  eval "$(kts completion bash)"
        kts completion bash > ~/.local/share/bash-completion/completions/kts
  zsh   eval "$(kts completion zsh)"
        kts completion zsh > "${fpath[1]}/_kts"
  fish  kts completion fish | source
        kts completion fish > ~/.config/fish/completions/kts.fish
"""


@click.command("completion", short_help="A script that completes kts in bash, zsh or fish.", epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell: for commands, options, their values, and paths."""
    from click.shell_completion import ShellComplete, get_completion_class

    made = cast(type[ShellComplete], get_completion_class(shell))
    click.echo(made(ctx.find_root().command, {}, "kts", "_KTS_COMPLETE").source())
