"""The papers' two tables of preference, as the figures decide them.

A table's cell compares CreateTime and LogAppendTime by two criteria. A criterion speaks for the smaller figure if they
differ by more than its tolerance. If both speak for the same time, or one does and the other is silent, that time is
preferred; if both are silent, either will do; if they contradict each other, it depends on the user. Each cell says in
words what decided it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .rules import CREATE_TIME, EARLIEST, LARGEST, LOG_APPEND_TIME, OPTIONS, SegmentRule
from .workloads import PATTERNS

if TYPE_CHECKING:
    from .workloads import Settings

CT, LAT, EITHER, DEPENDS = "CT", "LAT", "CT or LAT", "depends"
RETENTION = dict(zip(PATTERNS, (EITHER, CT, LAT, LAT), strict=True))  # KIP-32, "Log Retention", comparison
ROLLING = dict(zip(PATTERNS, (EITHER, LAT, LAT, LAT), strict=True))  # KIP-32, "Time based log rolling"
EARLY_TOLERANCE, OPEN_TOLERANCE = 0.1, 1.0
ROLL_RULES = {
    EARLIEST: "KIP-32's rule compares the clock with the earliest CreateTime of the segment",
    CREATE_TIME: "Kafka's rule compares the incoming CreateTime with the first one of the segment, not with the clock",
    LARGEST: "KIP-33's rule compares the clock with the largest CreateTime ever seen",
}
EFFECTS = {  # why a cell comes out as it does
    (EARLIEST, PATTERNS[1]): "a latency above segment.ms makes a segment of each message",
    (EARLIEST, PATTERNS[2]): "an old message is due as soon as it is appended",
    (EARLIEST, PATTERNS[3]): "a time of 0 is due as soon as it is appended, and one in the future alone never",
    (CREATE_TIME, PATTERNS[1]): "equal latencies cancel out",
    (CREATE_TIME, PATTERNS[2]): "an old message after a new one makes the difference negative, and rolls nothing",
    (CREATE_TIME, PATTERNS[3]): "nothing rolls after a first message from the future",
    (LARGEST, PATTERNS[0]): "a log that gets messages all the time never rolls",
    (LARGEST, PATTERNS[1]): "a latency above segment.ms makes a segment of each message",
    (LARGEST, PATTERNS[2]): "old messages alone roll at once, and new ones keep the log from rolling",
    (LARGEST, PATTERNS[3]): "one time in the future keeps the log from rolling",
}
UNITS = (("years", 31_557_600_000), ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def length(ms: float) -> str:
    """A length of time, its largest part with one decimal."""
    for name, step in UNITS:
        if abs(ms) >= step:
            return f"{ms / step:,.1f} {name}"
    return f"{ms:.0f} ms"


class Criterion(NamedTuple):
    """One figure under both times; the smaller is better."""

    name: str
    create_time: float
    append_time: float
    tolerance: float
    unit: str  # ms, part, or segment.ms

    def shown(self, figure: float) -> str:
        """A figure with its unit."""
        if self.unit == "ms":
            return length(figure)
        return f"{figure:.0%}" if self.unit == "part" else f"{figure:.1f} x segment.ms"

    @property
    def prefers(self) -> str:
        """CT or LAT, or EITHER if they differ by no more than the tolerance."""
        apart = self.create_time - self.append_time
        return EITHER if abs(apart) <= self.tolerance else LAT if apart > 0 else CT


def preference(criteria: list[Criterion]) -> str:
    """The verdict of all criteria."""
    found = {criterion.prefers for criterion in criteria} - {EITHER}
    return EITHER if not found else found.pop() if len(found) == 1 else DEPENDS


def reason(criteria: list[Criterion]) -> str:
    """The figures behind a verdict, in words."""
    deciding = [one for one in criteria if one.prefers != EITHER]
    said = "; ".join(
        f"{one.name}: CT {one.shown(one.create_time)}, LAT {one.shown(one.append_time)}" for one in deciding or criteria
    )
    return said if deciding else f"both figures are within their tolerance ({said})"


def cell(pattern: str, paper: str, criteria: list[Criterion], effect: str = "", **more: Any) -> dict[str, Any]:
    """A cell of a table; ``effect`` says how the rule brings its figures about."""
    measured = preference(criteria)
    return {
        "pattern": pattern,
        "paper": paper,
        "measured": measured,
        "agrees": measured == paper,
        "criteria": [
            {
                "name": one.name,
                "createTime": one.create_time,
                "logAppendTime": one.append_time,
                "tolerance": one.tolerance,
                "unit": one.unit,
                "prefers": one.prefers,
            }
            for one in criteria
        ],
        "why": "; ".join(filter(None, (reason(criteria), effect))),
        **more,
    }


def retention(figures: dict[str, dict[str, Any]], settings: Settings) -> list[Criterion]:
    """What decides about retention, as 99th percentiles; a difference of one segment's span is no difference."""
    create, append = figures[CREATE_TIME.name], figures[LOG_APPEND_TIME.name]
    tolerance = settings.roll_ms + settings.check_ms
    apart, promised = (
        (create["deletedApartMs"]["p99"], append["deletedApartMs"]["p99"]),
        (create["deletedAfterCreationMs"]["p99"], append["deletedAfterArrivalMs"]["p99"]),
    )
    return [
        Criterion("source and target delete a message apart", *apart, tolerance, "ms"),
        Criterion("deleted later than retention.ms after its own time", *promised, tolerance, "ms"),
    ]


def rolling(figures: dict[str, dict[str, Any]], rule: SegmentRule, settings: Settings) -> list[Criterion]:
    """What decides about rolling by a rule on CreateTime."""
    create, append = figures[rule.name], figures[LOG_APPEND_TIME.name]
    opened = (create["openMs"]["p99"] / settings.roll_ms, append["openMs"]["p99"] / settings.roll_ms)
    return [
        Criterion(
            "segments closed before half of segment.ms", create["closedEarly"], append["closedEarly"],
            EARLY_TOLERANCE, "part",
        ),
        Criterion("segments are open", *opened, OPEN_TOLERANCE, "segment.ms"),
    ]  # fmt: skip


def tables(patterns: dict[str, dict[str, Any]], settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Both tables; rolling has a row for each rule on CreateTime."""
    return {
        "retention": [cell(one, RETENTION[one], retention(patterns[one]["rules"], settings)) for one in PATTERNS],
        "rolling": [
            cell(
                one,
                ROLLING[one],
                rolling(patterns[one]["rules"], rule, settings),
                EFFECTS.get((rule, one), ""),
                rule=rule.name,
                about=about,
            )
            for rule, about in ROLL_RULES.items()
            for one in PATTERNS
        ],  # fmt: skip
    }


def findings(patterns: dict[str, dict[str, Any]]) -> list[str]:
    """What stands out in each pattern: each rule on CreateTime beside LogAppendTime, in sentences."""
    found = []
    for pattern, played in patterns.items():
        append = played["rules"][LOG_APPEND_TIME.name]
        for rule in ROLL_RULES:
            figures = played["rules"][rule.name]
            single, segments = figures["segmentsOfOneMessage"], figures["segments"]
            if 2 * single > segments and single > append["segmentsOfOneMessage"] + 1:
                part = "all " if single == segments else f"{single:,} "
                found.append(
                    f"{pattern}: CreateTime by {WHOSE[rule]} rule has {segments:,} segments, {part}of one message, "
                    f"where LogAppendTime has {append['segments']:,}."
                )
            elif 2 * segments < append["segments"]:
                found.append(
                    f"{pattern}: CreateTime by {WHOSE[rule]} rule never or seldom rolls: {segments:,} for "
                    f"{append['segments']:,} segments by LogAppendTime."
                )
        create = patterns[pattern]["rules"][CREATE_TIME.name]["deletedAfterCreationMs"]["p99"]
        arrived = append["deletedAfterArrivalMs"]["p99"]
        if create > 2 * max(arrived, 1):
            found.append(
                f"{pattern}: by CreateTime messages stay up to {length(create)} longer than retention.ms after their "
                f"creation, by LogAppendTime {length(arrived)} after their arrival (p99)."
            )
        apart = append["deletedApartMs"]["p99"]
        if apart > 2 * max(patterns[pattern]["rules"][CREATE_TIME.name]["deletedApartMs"]["p99"], 1):
            found.append(f"{pattern}: by LogAppendTime the target deletes a message {length(apart)} after the source.")
    return found


WHOSE = {EARLIEST: "KIP-32's", CREATE_TIME: "Kafka's", LARGEST: "KIP-33's"}


# --- the table of options --------------------------------------------------------------------------

BOTH, ONLY_CREATE, ONLY_APPEND = "latency, lag", "latency", "lag"
EVERYWHERE = list(PATTERNS)
STREAMS = {True: "payload without CT", False: "CT in the payload"}
MIRROR = {  # CreateTime, LogAppendTime
    (True, True): "CT kept, LAT overridden",
    (None, True): "LAT overridden",
    (True, None): "CT kept",
}
PAPER: dict[str, list[Any]] = {  # KIP-32, "Options comparison": what each option of rules.TABLE does
    "mirror maker": [
        MIRROR[True, True],
        MIRROR[None, True],
        MIRROR[True, True],
        MIRROR[True, None],
        MIRROR[None, True],
    ],
    "retention": [EVERYWHERE, EVERYWHERE, EVERYWHERE, ["pattern 1", "pattern 2"], EVERYWHERE],
    "rolling": [EVERYWHERE, EVERYWHERE, EVERYWHERE, ["pattern 1"], EVERYWHERE],
    "stream processing": [STREAMS[True], STREAMS[False], STREAMS[True], STREAMS[True], STREAMS[False]],
    "latency measurement": [BOTH, ONLY_APPEND, ONLY_CREATE, ONLY_CREATE, ONLY_APPEND],
    "search": [None] * 5,  # "Detail discussion in KIP-33"
}
QUESTIONS = ("created", "arrived")
RIGHT = 0.99  # of the messages in the right hour


class Measured(NamedTuple):
    """What an option does in a use case, the figures for it, and how it follows from them."""

    value: Any
    figures: dict[str, Any]
    why: str


def by_pattern(figures: dict[str, Any], show: Any) -> str:
    """A figure of each pattern."""
    return ", ".join(map(show, figures.values()))


def solved_retention(patterns: dict[str, Any], rule: SegmentRule, settings: Settings) -> Measured:
    """In which patterns messages go in time: 99 % within a segment's span of their own time and retention.ms."""
    key = "deletedAfterArrivalMs" if rule.append_time else "deletedAfterCreationMs"
    kept = {pattern: found["rules"][rule.name][key]["p99"] for pattern, found in patterns.items()}
    # A segment is open a little longer than segment.ms, until a message arrives that rolls it.
    most = 3 * settings.roll_ms // 2 + settings.check_ms
    return Measured(
        [pattern for pattern in PATTERNS if kept[pattern] <= most],
        {"keptP99Ms": kept},
        f"99 % of the messages go within {by_pattern(kept, length)} of retention.ms after their own time, at most "
        f"{length(most)} is wanted",
    )


def solved_rolling(patterns: dict[str, Any], rule: SegmentRule, settings: Settings) -> Measured:
    """In which patterns segments are neither closed early nor open much longer than segment.ms."""
    figures = {pattern: found["rules"][rule.name] for pattern, found in patterns.items()}
    early = {pattern: one["closedEarly"] for pattern, one in figures.items()}
    opened = {pattern: one["openMs"]["p99"] / settings.roll_ms for pattern, one in figures.items()}
    solved = [one for one in PATTERNS if early[one] <= EARLY_TOLERANCE and opened[one] <= 1 + OPEN_TOLERANCE]
    why = (
        f"{by_pattern(early, '{:.0%}'.format)} of the segments are closed early, at most {EARLY_TOLERANCE:.0%} is "
        f"wanted, and they are open {by_pattern(opened, '{:.1f}'.format)} x segment.ms, at most {1 + OPEN_TOLERANCE}"
    )
    if rule is CREATE_TIME:
        by_paper = solved_rolling(patterns, EARLIEST, settings).value
        why += f"; Kafka compares CreateTimes, and by the paper's rule, which has the clock, it {holds(by_paper)}"
    return Measured(solved, {"closedEarly": early, "openP99": opened}, why)


def holds(patterns: list[str]) -> str:
    """In which patterns something holds."""
    if len(patterns) in (0, len(PATTERNS)):
        return "holds in all patterns" if patterns else "holds in none"
    return f"holds in {', '.join(patterns)}"


def solved_streams(patterns: dict[str, Any], rule: SegmentRule, settings: Settings) -> Measured:
    """Whether windows of an hour can go by the message's time in the three patterns of right times."""
    right = {pattern: patterns[pattern]["rules"][rule.name]["inRightHour"] for pattern in PATTERNS[:3]}
    why = f"{by_pattern(right, '{:.0%}'.format)} of the messages of patterns 1 to 3 are in the hour of their creation"
    return Measured(STREAMS[min(right.values()) >= RIGHT], {"inRightHour": right}, f"{why}, {RIGHT:.0%} is wanted")


def solved_search(found: dict[str, Any]) -> Measured:
    """By question, whether an index leads to an answer that misses no message, and how early that one is."""
    early: dict[str, Any] = {}
    said = []
    for question in QUESTIONS:
        ways = [found[time] for time in ("CreateTime", "LogAppendTime") if found[time] is not None]
        sure = [way for way in ways if way[question]["missed"] == 0]
        best = min(sure, key=lambda way: way["toFirst"][question], default=None)
        early[question] = None if best is None else best[question]["early"]
        exact = best is not None and best[question]["exact"] == best["searches"]
        said.append(f"{question}: {'missed' if best is None else 'exact' if exact else 'early'}")
    why = ", ".join(
        f"{question} then: " + ("messages are missed" if count is None else f"{count:,} messages early on average")
        for question, count in early.items()
    )
    return Measured("; ".join(said), {"early": early}, why)


def option_table(
    patterns: dict[str, Any], mirror: dict[str, Any], search: dict[str, Any], settings: Settings
) -> list[dict[str, Any]]:
    """The paper's comparison of the options, a cell for each row and option; the paper leaves search to KIP-33."""
    cells: list[dict[str, Any]] = []
    for number, (name, found) in enumerate(mirror["options"].items()):
        option = OPTIONS[name]
        stream_rule = CREATE_TIME if option.create_time else LOG_APPEND_TIME
        kept = found["createTimeKept"]
        in_index = found["indexedLogAppendTime"] == mirror["true"]["t2"]
        overridden = found["logAppendTimeOverridden"] or in_index or None
        known = found["endToEndErrorMs"] == 0, found["lagErrorMs"] == 0
        latency = {(True, True): BOTH, (True, False): ONLY_CREATE, (False, True): ONLY_APPEND}
        times = {key: found[key] for key in ("source", "target")}
        computed = {key: found[key] for key in ("endToEndMs", "lagMs", "latencyMs")}
        measured = {
            "mirror maker": Measured(
                MIRROR.get((kept, overridden), "other times"), times,
                "what a consumer reads from the target is compared with T0 and T2",
            ),
            "retention": solved_retention(patterns, option.rule, settings),
            "rolling": solved_rolling(patterns, option.rule, settings),
            "stream processing": solved_streams(patterns, stream_rule, settings),
            "latency measurement": Measured(
                latency.get(known, "nothing"), computed, "what a consumer computes is compared with the truth",
            ),
            "search": solved_search(search[name]),
        }  # fmt: skip
        for row, (value, figures, why) in measured.items():
            paper = PAPER[row][number]
            one: dict[str, Any] = {"row": row, "option": name, "paper": paper, "measured": value, "figures": figures}
            cells.append(one | {"agrees": None if paper is None else value == paper, "why": why})
    return sorted(cells, key=lambda one: list(PAPER).index(one["row"]))
