"""Options, each declared once: the field of a dataclass has its name, type and default, ``option`` all the rest.

Functions take their arguments from such a class (``takes``), Spark's reader and the commands their options.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields
from functools import cache, wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from kts.arguments import INT32_MAX, INT64_MAX, boolean, choice, integer
from kts.times import length_of

Checked = ParamSpec("Checked")
Owner = TypeVar("Owner")
Options = TypeVar("Options")
Result = TypeVar("Result")
Shown = TypeVar("Shown", bound=Callable[..., Any])

DOCSTRING_COLUMNS = 112


class Kind:
    """The values of an option: what a docstring calls them, and their check. This one takes any value."""

    def __init__(self, words: str) -> None:
        self.words = words

    def check(self, name: str, value: Any) -> Any:
        """The value, checked; errors name the option."""
        return value


class Flag(Kind):
    """True or False."""

    def check(self, name: str, value: Any) -> bool:
        return boolean(name, value)


class Choice(Kind):
    """One of some words."""

    def __init__(self, choices: Sequence[str], words: str = "str") -> None:
        super().__init__(words)
        self.choices = tuple(choices)

    def check(self, name: str, value: Any) -> str:
        return choice(name, value, self.choices)


class Number(Kind):
    """An int in a range."""

    def __init__(self, lowest: int = 1, highest: int = INT64_MAX, words: str = "int") -> None:
        super().__init__(words)
        self.lowest, self.highest = lowest, highest

    def check(self, name: str, value: Any) -> int:
        return integer(name, value, self.lowest, self.highest)


class Bytes(Number):
    """A number of bytes, which texts give as ``4m`` too; ``in_spark`` is the highest one there."""

    def __init__(self, lowest: int = 1, in_spark: int = INT32_MAX) -> None:
        super().__init__(lowest)
        self.in_spark = in_spark


class Lateness(Kind):
    """A length of time; None has no bound."""

    def check(self, name: str, value: Any) -> int | None:
        return length_of(name, value)


class Several(Kind):
    """A list of texts or ints; the command line has an option for each."""

    def __init__(self, of: type, words: str) -> None:
        super().__init__(words)
        self.of = of


class Place(Kind):
    """A path."""


class Moment(Kind):
    """A time. Its check needs the unit, which is another option."""


class Json(Kind):
    """A mapping, which texts give as JSON."""

    def __init__(self, example: str) -> None:
        super().__init__("dict, optional")
        self.example = example


FLAG = Flag("bool")
PATH = Place("path, optional")
MOMENT = Moment("int (ms), aware datetime, date, numpy.datetime64 or text, optional")


class Option(NamedTuple):
    """One option.

    Attributes
    ----------
    kind : Kind
    doc : str
        What it means, in a sentence that is right at every door.
    more : str
        What the reference says besides.
    spark, command : bool or str
        Whether Spark's reader and the commands have it; a text is its name there, if that does not follow from the
        field's: Spark has it in camelCase, the commands with hyphens.
    metavar : str
        What stands for its value in the help of a command.
    name : str
    default
        Of the field; ``MISSING`` if it must be given.
    """

    kind: Kind
    doc: str
    more: str = ""
    spark: bool | str = False
    command: bool | str = False
    metavar: str = ""
    name: str = ""
    default: Any = MISSING

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


def option(default: Any, kind: Kind, doc: str, **rest: Any) -> Any:
    """The field of an option; see ``Option``. One that must be given is a ``field`` with ``declared`` as metadata."""
    return field(default=default, metadata=declared(kind, doc, **rest))


def declared(kind: Kind, doc: str, **rest: Any) -> dict[str, Option]:
    """The metadata of an option's field."""
    return {"option": Option(kind, doc, **rest)}


def same(owner: type, name: str, **changed: Any) -> Any:
    """The field of an option that another class declares; what is said of it may differ."""
    one = options_of(owner)[name]._replace(**changed)
    return field(default=one.default, metadata={"option": one})


@cache
def options_of(owner: Any) -> dict[str, Option]:
    """The options that a class declares, by name, in their order as arguments."""
    found = [one for one in fields(owner) if "option" in one.metadata]
    named = {one.name: one.metadata["option"]._replace(name=one.name, default=one.default) for one in found}
    return {name: named[name] for name in inspect.signature(owner).parameters if name in named}


class Declared:
    """A dataclass of options: each is checked when an object is made."""

    def __post_init__(self) -> None:
        owner: Any = type(self)
        for name, one in options_of(owner).items():
            value = getattr(self, name)
            if value is not None or one.default not in (None, MISSING):
                object.__setattr__(self, name, one.kind.check(name, value))


def takes(
    check: Callable[Checked, Options],
) -> Callable[[Callable[[Owner, Options], Result]], Callable[Concatenate[Owner, Checked], Result]]:
    """Give a method the arguments of a class of options, and pass an object of the class to the method."""

    def decorate(method: Callable[[Owner, Options], Result]) -> Callable[Concatenate[Owner, Checked], Result]:
        result_of = _called(check, method)

        @wraps(method)
        def checked(self: Owner, /, *args: Checked.args, **named: Checked.kwargs) -> Result:
            return method(self, result_of(*args, **named))

        return _shown_as(checked, method, check)

    return decorate


def takes_only(
    check: Callable[Checked, Options],
) -> Callable[[Callable[[Options], Result]], Callable[Checked, Result]]:
    """As ``takes``, for a function that has no argument of its own."""

    def decorate(function: Callable[[Options], Result]) -> Callable[Checked, Result]:
        result_of = _called(check, function)

        @wraps(function)
        def checked(*args: Checked.args, **named: Checked.kwargs) -> Result:
            return function(result_of(*args, **named))

        return _shown_as(checked, function, check)

    return decorate


def _called(check: Callable[Checked, Options], caller: Callable[..., Any]) -> Callable[Checked, Options]:
    """The class of options, whose TypeError about arguments names the caller."""
    asked = inspect.signature(check)

    def called(*args: Checked.args, **named: Checked.kwargs) -> Options:
        try:
            asked.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{caller.__name__}() {error}") from None
        return check(*args, **named)

    return called


def _shown_as(checked: Shown, caller: Callable[..., Any], check: Callable[..., Any]) -> Shown:
    """The function with a signature and a docstring in which the options stand for the caller's last argument."""
    own = inspect.signature(caller)
    parameters = [*[*own.parameters.values()][:-1], *inspect.signature(check).parameters.values()]
    checked.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    if caller.__doc__ is not None and isinstance(check, type):
        checked.__doc__ = described(inspect.cleandoc(caller.__doc__), check)
    return checked


def described(doc: str, owner: type) -> str:
    """A docstring with the options of a class as its last parameters."""
    entries = "\n".join(f"{one.name} : {one.kind.words}\n{_wrapped(one)}" for one in options_of(owner).values())
    before, *after = re.split(r"\n\n(?=\w+\n-+\n)", doc)
    if after and after[0].startswith("Parameters\n"):
        return "\n\n".join([before, f"{after[0]}\n{entries}", *after[1:]])
    return "\n\n".join([before, f"Parameters\n----------\n{entries}", *after])


def _wrapped(one: Option) -> str:
    return textwrap.indent(textwrap.fill(f"{one.doc} {one.more}".strip(), DOCSTRING_COLUMNS), "    ")
