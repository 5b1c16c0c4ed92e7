"""Options are declared once; functions, Spark and the commands say of them what the declaration says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

import kts
from kts.cli.inputs import declared_option
from kts.dataset.options import LogOptions, PathScanOptions, ScanOptions
from kts.offline.copy import CopyOptions, copy
from kts.options import (
    FLAG,
    Choice,
    Declared,
    Number,
    option,
    options_of,
    same,
    takes,
    takes_only,
)
from kts.spark.options import DECLARED
from kts.tables import sync
from kts.tables.options import LocalSyncOptions

HOOKS = Path(__file__).parent.parent / "docs/hooks.py"


@dataclass(frozen=True)
class Some(Declared):
    """Options of this test.

    Parameters
    ----------
    path : path
        Where it lies.
    on_error : str
        ``skip``: go on. That is for the reference
        alone.
    deep : bool
        Look inside.
    most : int, optional
        At most this many.
    """

    path: str
    _: KW_ONLY
    on_error: str = option("raise", Choice(("raise", "skip")), spark=True, command=True)
    deep: bool = option(False, FLAG, command=True)
    most: int | None = option(None, Number(highest=9), spark="maxRows", command="--limit")


@dataclass(frozen=True)
class More(Declared):
    """Options of this test, and another word for one.

    Parameters
    ----------
    deep : bool
        Look inside of each.
    """

    path: str = same(Some, "path")
    _: KW_ONLY
    on_error: str = same(Some, "on_error")
    deep: bool = same(Some, "deep")
    most: int | None = same(Some, "most")


@takes_only(More)
def look(asked: More) -> More:
    """Look.

    Returns
    -------
    More
    """
    return asked


class Place:
    @takes(Some)
    def look(self, asked: Some) -> tuple[Place, Some]:
        """Look from here."""
        return self, asked


def test_a_function_has_the_arguments_the_defaults_and_the_words_of_the_declaration() -> None:
    parameters = inspect.signature(look).parameters
    assert list(parameters) == ["path", "on_error", "deep", "most"]
    assert [one.default for one in parameters.values()] == [inspect.Parameter.empty, "raise", False, None]
    assert inspect.getdoc(look) == (
        "Look.\n\nParameters\n----------\npath : path\n    Where it lies.\non_error : str\n"
        "    ``skip``: go on. That is for the reference\n    alone.\ndeep : bool\n    Look inside of each.\n"
        "most : int, optional\n    At most this many.\n\n"
        "Returns\n-------\nMore"
    )
    assert look("here") == More("here") and look(path="here", most=3).most == 3
    place = Place()
    assert place.look("here", deep=True) == (place, Some("here", deep=True))
    assert list(inspect.signature(Place.look).parameters) == ["self", "path", "on_error", "deep", "most"]


def test_a_wrong_value_is_named_and_a_wrong_name_is_an_error_of_the_function() -> None:
    for given, error in (({"on_error": "stop"}, ValueError), ({"on_error": None}, TypeError), ({"deep": 1}, TypeError)):
        with pytest.raises(error, match=f"^{[*given][0]}: expected"):
            look("here", **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="most: expected 1 to 9, found 10"):
        look("here", most=10)
    with pytest.raises(TypeError, match=r"^look\(\) got an unexpected keyword argument 'deeper'"):
        look("here", deeper=True)  # type: ignore[call-arg]


def test_names_in_spark_and_on_the_command_line_follow_from_the_field_s_unless_they_are_stated() -> None:
    assert {name: (one.spark_names, one.flag) for name, one in options_of(Some).items() if one.command} == {
        "on_error": (["onError"], "--on-error"),
        "deep": ([], "--deep"),
        "most": (["maxRows"], "--limit"),
    }


@pytest.mark.parametrize(
    ("taken", "by"),
    [
        (PathScanOptions, kts.scan),
        (ScanOptions, kts.PartitionLog.scan),
        (ScanOptions, kts.Log.scan),
        (CopyOptions, copy),
        (LocalSyncOptions, sync),
    ],
)
def test_every_argument_is_declared_checked_and_described(taken: type, by: Callable[..., Any]) -> None:
    told, parameters = str(inspect.getdoc(by)), inspect.signature(by).parameters
    refers = "see ``kts.scan``" in told
    assert [*options_of(taken)] == [name for name in parameters if name != "self"]
    for name, one in options_of(taken).items():
        assert one.described.startswith(f"{name} : ") and one.doc.endswith(".")
        assert (one.described in told) is not refers
        assert parameters[name].annotation == inspect.signature(taken).parameters[name].annotation


def test_what_opens_logs_takes_the_same_as_a_scan() -> None:
    shared = options_of(LogOptions).keys() - {"topics", "partitions"} | {"log_start_offset"}
    scanned = inspect.signature(kts.scan).parameters
    for opener in (kts.open, kts.open_partition, kts.open_log_dirs):
        found = inspect.signature(opener).parameters
        assert {*found} == {"path", *shared}
        for name in shared - {"log_start_offset"}:
            assert (found[name].annotation, found[name].default) == (scanned[name].annotation, None)


@pytest.mark.parametrize(
    ("command", "taken"), [("dump", ScanOptions), ("copy", CopyOptions), ("sync", LocalSyncOptions)]
)
def test_a_command_has_every_option_that_is_declared_for_it(command: str, taken: type) -> None:
    found = {one.name: one for one in import_module(f"kts.cli.{command}").command.params}
    for one in options_of(taken).values():
        if one.command:
            assert one.flag in found[one.name].opts and found[one.name].help.startswith(one.doc.replace("``", ""))


def test_the_help_of_a_command_tells_the_default() -> None:
    @click.command()
    @declared_option(options_of(LocalSyncOptions)["commit_bytes"])
    @declared_option(options_of(Some)["on_error"])
    @declared_option(options_of(ScanOptions)["strict_time_range"])
    def command(**asked: Any) -> None:
        pass

    with click.Context(command, terminal_width=200, max_content_width=200) as context:
        told = command.get_help(context)
    assert "skip: go on. Default raise." in told and "of records. Default 256MiB." in told
    assert "--strict / --no-strict" in told


@pytest.mark.parametrize(("page", "of"), [("reference/spark", "a read"), ("tutorials/streams", "a stream")])
def test_a_page_has_the_place_where_make_docs_puts_the_options(page: str, of: str) -> None:
    text = (Path(__file__).parent.parent / f"docs/{page}.md").read_text(encoding="utf-8")
    assert f"\n<!-- options of {of} -->\n" in text and f'"{of}"' in HOOKS.read_text(encoding="utf-8")


def test_each_option_of_spark_is_described() -> None:
    assert [one.name for one in DECLARED if one.spark_names and not one.doc.endswith(".")] == []
