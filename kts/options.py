"""Options, each declared once: as a field of a dataclass, whose docstring describes it.

The field has the name, type and default, and ``option`` the check and the names in Spark and on the command line. The
first sentence of the description is the one that commands and Spark's reference show. Functions take their arguments
from such a class (``takes``), Spark's reader and the commands their options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields
from functools import cache, partial, wraps
from inspect import cleandoc, signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from kts.arguments import INT32_MAX, INT64_MAX, boolean, choice, integer
from kts.times import length_of

Checked = ParamSpec("Checked")
Owner = TypeVar("Owner")
Options = TypeVar("Options")
Result = TypeVar("Result")
_ENTRY = re.compile(r"^(\w+) : .*\n(?:    .*(?:\n|$))+", re.MULTILINE)  # of a docstring


class Kind:
    """The values of an option: how they are checked, and what stands for one in the help of a command."""

    def __init__(self, metavar: str | None = None) -> None:
        self.metavar = metavar

    def check(self, name: str, value: Any) -> Any:
        """The value, checked; errors name the option. This kind takes any value."""
        return value


class Flag(Kind):
    """True or False."""

    def check(self, name: str, value: Any) -> bool:
        return boolean(name, value)


class Choice(Kind):
    """One of some words."""

    def __init__(self, choices: Iterable[str]) -> None:
        super().__init__()
        self.choices = tuple(choices)

    def check(self, name: str, value: Any) -> str:
        return choice(name, value, self.choices)


class Number(Kind):
    """An int in a range."""

    def __init__(self, lowest: int = 1, highest: int = INT64_MAX) -> None:
        super().__init__()
        self.lowest, self.highest = lowest, highest

    def check(self, name: str, value: Any) -> int:
        return integer(name, value, self.lowest, self.highest)


class Bytes(Number):
    """A number of bytes, which texts give as ``4m`` too; ``in_spark`` is the highest one there."""

    def __init__(self, lowest: int = 1, in_spark: int = INT32_MAX) -> None:
        super().__init__(lowest)
        self.in_spark = in_spark


class Duration(Kind):
    """A length of time; None has no bound."""

    def check(self, name: str, value: Any) -> int | None:
        return length_of(name, value)


class Several(Kind):
    """A list of texts or ints; the command line has an option for each."""

    def __init__(self, of: type, metavar: str) -> None:
        super().__init__(metavar)
        self.of = of


class FilePath(Kind):
    """A path."""


class Moment(Kind):
    """A time. Its check needs the unit, which is another option."""


class Json(Kind):
    """A mapping, which texts give as JSON."""

    def __init__(self, example: str) -> None:
        super().__init__("JSON")
        self.example = example


ANY, FLAG, PATH, MOMENT = Kind(), Flag(), FilePath(), Moment("TIME")


class Option(NamedTuple):
    """One option.

    Attributes
    ----------
    kind : Kind
    spark, command : bool or str
        Whether Spark's reader and the commands have it; a text is its name there, if that does not follow from the
        field's: Spark has it in camelCase, the commands with hyphens.
    name : str
    default
        Of the field; ``MISSING`` if it must be given.
    described : str
        Its entry in the docstring of the class.
    """

    kind: Kind = ANY
    spark: bool | str = False
    command: bool | str = False
    name: str = ""
    default: Any = MISSING
    described: str = ""

    @property
    def doc(self) -> str:
        """The first sentence of its description, which is right at every door."""
        text = " ".join(self.described.partition("\n")[2].split())
        return re.split(r"(?<=\.) ", text, maxsplit=1)[0]

    @property
    def spark_names(self) -> list[str]:
        """Its names in Spark."""
        return self.spark.split() if isinstance(self.spark, str) else [camel_case(self.name)] * self.spark

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.command if isinstance(self.command, str) else f"--{self.name.replace('_', '-')}"


def camel_case(name: str) -> str:
    """``on_error`` as ``onError``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def option(default: Any, kind: Kind = ANY, *, spark: bool | str = False, command: bool | str = False) -> Any:
    """The field of an option; see ``Option``."""
    return field(default=default, metadata={"option": Option(kind, spark, command)})


def same(owner: Any, name: str) -> Any:
    """The field of an option that another class declares, with its description unless the class has one."""
    one = options_of(owner)[name]
    return field(default=one.default, metadata={"option": one})


@cache
def options_of(owner: Any) -> dict[str, Option]:
    """The options that a class declares, by name, in their order as arguments."""
    docs = [cleandoc(one.__doc__) for one in reversed(owner.__mro__) if "Parameters\n" in (one.__doc__ or "")]
    entries = {found[1]: found[0] for doc in docs for found in _ENTRY.finditer(doc)}
    found = dict[str, Option]()
    by_name = {one.name: one for one in fields(owner)}
    for name in signature(owner).parameters:
        one: Option = by_name[name].metadata.get("option", Option())
        told = entries.get(name, one.described).strip()
        found[name] = one._replace(name=name, default=by_name[name].default, described=told)
    return found


class Declared:
    """A dataclass of options: each is checked when an object is made."""

    def __post_init__(self) -> None:
        declared: Any = self
        for one in fields(declared):
            if "option" in one.metadata:
                value = getattr(self, one.name)
                if value is not None or one.default not in (None, MISSING):
                    object.__setattr__(self, one.name, one.metadata["option"].kind.check(one.name, value))


def takes(
    check: Callable[Checked, Options],
) -> Callable[[Callable[[Owner, Options], Result]], Callable[Concatenate[Owner, Checked], Result]]:
    """Give a method the arguments of a class of options, and pass an object of the class to the method."""
    return partial(_taking, check, 1)


def takes_only(
    check: Callable[Checked, Options],
) -> Callable[[Callable[[Options], Result]], Callable[Checked, Result]]:
    """As ``takes``, for a function that has no argument of its own."""
    return partial(_taking, check, 0)


def _taking(check: Callable[..., Any], own: int, caller: Callable[..., Any]) -> Any:
    """A function that passes its first arguments to ``caller`` as they are, and of the others an object of options."""
    asked, shown = signature(check), signature(caller)

    @wraps(caller)
    def taking(*args: Any, **named: Any) -> Any:
        try:
            asked.bind(*args[own:], **named)
        except TypeError as error:  # it names the caller, not the class
            raise TypeError(f"{caller.__name__}() {error}") from None
        return caller(*args[:own], check(*args[own:], **named))

    parameters = [*[*shown.parameters.values()][:own], *asked.parameters.values()]
    taking.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    if caller.__doc__ is not None and isinstance(check, type):
        taking.__doc__ = _described(cleandoc(caller.__doc__), check)
    return taking


def _described(doc: str, owner: type) -> str:
    """A docstring with the options of a class as its last parameters, if it has a section of what is returned."""
    before, section, after = doc.partition("\n\nReturns\n")
    if not section:
        return doc
    heading = "" if "\n\nParameters\n" in before else "\n\nParameters\n----------"
    return "\n".join([before + heading, *(one.described for one in options_of(owner).values())]) + section + after
