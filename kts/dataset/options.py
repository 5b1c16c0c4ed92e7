"""Options of a scan: names, defaults and checks of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT64_MAX, MOST_THREADS, boolean, choice, integer
from kts.codec.columns import ALL_COLUMNS, SCAN_COLUMNS, check_columns, record_schema
from kts.coordinator_records.columns import DECODERS, column_types
from kts.model import TopicPartition
from kts.times import Length, Time, length_of, milliseconds, time_unit

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 * 2**20
ALLOWED_LATENESS = "1h"
ISOLATIONS = ("read_uncommitted", "read_committed")
ON_ERROR = ("raise", "skip")
HIGH_WATERMARK = "high_watermark"
DECODED_WITH = ("topic", "partition", "offset", "timestamp", "key", "value")  # around the decoder's columns
STREAM_COLUMNS = (*SCAN_COLUMNS, *(name for name in ALL_COLUMNS if name not in SCAN_COLUMNS))

PartitionOffsets = Mapping[str, Mapping[int, int]] | Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
Offsets = int | str | PartitionOffsets | None
Checked = ParamSpec("Checked")
Owner = TypeVar("Owner")
Options = TypeVar("Options")
Result = TypeVar("Result")
Shown = TypeVar("Shown", bound=Callable[..., Any])


class TimeRange(NamedTuple):
    """The records with start <= timestamp < end, in ms, and how late they may come.

    ``allowed_lateness_ms`` is how long after younger ones a record may come; None is any time.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    allowed_lateness_ms: int | None = None

    @property
    def latest_ms(self) -> int | None:
        """A block that begins then or later has no record of the range; None if such blocks cannot be told.

        A record without a timestamp, -1, may be anywhere. So may one before 1970, of which headers do not tell.
        """
        if self.start_ms is None or self.start_ms < 0 or self.end_ms is None or self.allowed_lateness_ms is None:
            return None
        return self.end_ms + self.allowed_lateness_ms


@dataclass(frozen=True)
class ScanOptions:
    """The arguments of ``kts.scan``, checked."""

    starting_timestamp: int | None
    ending_timestamp: int | None
    starting_offsets: Any
    ending_offsets: Any
    columns: tuple[str, ...]
    strict_time_range: bool
    allowed_lateness: int | None
    isolation: str
    include_control: bool
    on_error: str
    verify_crc: bool
    batch_bytes: int
    max_decompressed_bytes: int
    views: bool
    decoder: str | None = None
    threads: int = 1

    @classmethod
    def of(
        cls,
        *,
        starting_timestamp: Time | None = None,
        ending_timestamp: Time | None = None,
        starting_offsets: Offsets = None,
        ending_offsets: Offsets = None,
        columns: Sequence[str] | None = None,
        strict_time_range: bool = True,
        allowed_lateness: Length = ALLOWED_LATENESS,
        isolation: str = "read_uncommitted",
        include_control: bool = False,
        on_error: str = "raise",
        verify_crc: bool = True,
        batch_bytes: int = BATCH_BYTES,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        views: bool = False,
        unit: str | None = None,
        decoder: str | None = None,
        threads: int = 1,
    ) -> Self:
        """Check the arguments.

        Raises
        ------
        TypeError, ValueError
            A wrong argument; the message names it.
        """
        choice("isolation", isolation, ISOLATIONS)
        choice("on_error", on_error, ON_ERROR)
        unit = time_unit("unit", unit)
        start, end = time_range(starting_timestamp, ending_timestamp, unit)
        first, last = _offsets(starting_offsets, "starting_offsets"), _offsets(ending_offsets, "ending_offsets")
        if isinstance(first, int) and isinstance(last, int) and 0 <= last < first:
            raise ValueError(f"starting_offsets: {first} is after ending_offsets {last}")
        return cls(
            starting_timestamp=start,
            ending_timestamp=end,
            starting_offsets=first,
            ending_offsets=last,
            columns=stream_columns(columns, decoder),
            strict_time_range=boolean("strict_time_range", strict_time_range),
            allowed_lateness=length_of("allowed_lateness", allowed_lateness),
            isolation=isolation,
            include_control=boolean("include_control", include_control),
            on_error=on_error,
            verify_crc=boolean("verify_crc", verify_crc),
            batch_bytes=integer("batch_bytes", batch_bytes, 1),
            max_decompressed_bytes=integer("max_decompressed_bytes", max_decompressed_bytes, 0),
            views=boolean("views", views),
            decoder=decoder,
            threads=integer("threads", threads, 1, MOST_THREADS),
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return stream_schema(self.columns, self.views)

    @property
    def within(self) -> TimeRange:
        """The times of the records that are read; no bounds if offsets, or times as offsets, bound them."""
        if not self.strict_time_range:
            return TimeRange()
        return TimeRange(self.starting_timestamp, self.ending_timestamp, self.allowed_lateness)

    @property
    def committed(self) -> bool:
        """True if only records of committed transactions are read."""
        return self.isolation == "read_committed"

    @property
    def skip_damage(self) -> bool:
        """True if damage is skipped with a warning."""
        return self.on_error == "skip"


def time_range(
    starting_timestamp: Time | None, ending_timestamp: Time | None, unit: str | None
) -> tuple[int | None, int | None]:
    """The ends of a range of times in ms, checked."""
    start = None if starting_timestamp is None else milliseconds("starting_timestamp", starting_timestamp, unit)
    end = None if ending_timestamp is None else milliseconds("ending_timestamp", ending_timestamp, unit)
    if start is not None and end is not None and start > end:
        raise ValueError(f"starting_timestamp: {start} is after ending_timestamp {end}")
    return start, end


def stream_columns(
    columns: Sequence[str] | None, decoder: str | None, default: tuple[str, ...] = SCAN_COLUMNS
) -> tuple[str, ...]:
    """The columns of a scan: those that are asked for, or else the decoder's or ``default``."""
    if decoder is None:
        return check_columns(columns, default, STREAM_COLUMNS)
    choice("decoder", decoder, tuple(DECODERS))
    own = DECODERS[decoder].columns
    return check_columns(columns, (*DECODED_WITH[:-2], *own, *DECODED_WITH[-2:]), (*STREAM_COLUMNS, *own))


def stream_schema(columns: Sequence[str], views: bool = False) -> pa.Schema:
    """The Arrow schema of columns of a scan."""
    import pyarrow as pa

    decoded = column_types()
    records = record_schema(tuple(name for name in columns if name not in decoded), views)
    return pa.schema([(name, decoded[name]) if name in decoded else records.field(name) for name in columns])


def takes(
    check: Callable[Checked, Options],
) -> Callable[[Callable[[Owner, Options], Result]], Callable[Concatenate[Owner, Checked], Result]]:
    """Give a method the signature of a checking function, and pass the function's result to the method."""

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
    """The checking function, whose TypeError about arguments names the caller."""
    asked = inspect.signature(check)

    def called(*args: Checked.args, **named: Checked.kwargs) -> Options:
        try:
            asked.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{caller.__name__}() {error}") from None
        return check(*args, **named)

    return called


def _shown_as(checked: Shown, caller: Callable[..., Any], check: Callable[..., Any]) -> Shown:
    """The function with a signature in which the arguments of ``check`` stand for the caller's last."""
    own = inspect.signature(caller)
    parameters = [*[*own.parameters.values()][:-1], *inspect.signature(check).parameters.values()]
    checked.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return checked


def flat_offsets(given: Mapping[Any, Any], name: str) -> dict[tuple[str, int], int]:
    """{topic: {partition: offset}} or {(topic, partition): offset}, converted to the latter."""
    flat: dict[tuple[str, int], int] = {}
    for key, value in given.items():
        inner = {(key, one): offset for one, offset in value.items()} if isinstance(value, Mapping) else {key: value}
        for pair, offset in inner.items():
            if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
                raise TypeError(f"{name}: expected {{topic: {{partition: int}}}}, found the key {pair!r}")
            if not isinstance(offset, int) or isinstance(offset, bool) or not str(pair[1]).isdigit():
                raise TypeError(f"{name}: expected {{topic: {{partition: int}}}}, found {pair[1]!r}: {offset!r}")
            flat[pair[0], int(pair[1])] = offset
    return flat


def _offsets(value: object, name: str) -> Any:
    words = {"starting_offsets": ("earliest", "latest"), "ending_offsets": ("latest", HIGH_WATERMARK)}[name]
    if value is None or (isinstance(value, str) and value in words):
        return value
    if isinstance(value, Mapping):
        flat = flat_offsets(value, name)
    elif isinstance(value, int) and not isinstance(value, bool):
        flat = {("", 0): value}
    else:
        known = ", ".join(words)
        raise TypeError(f"{name}: expected an int, {known} or {{topic: {{partition: int}}}}, found {value!r}")
    for offset in flat.values():
        if not -2 <= offset <= INT64_MAX:
            raise ValueError(f"{name}: expected an offset, -1 (latest) or -2 (earliest), found {offset}")
    return value if isinstance(value, int) else flat
