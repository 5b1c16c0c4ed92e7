"""The papers' two tables of preference, as the figures decide them.

A table's cell compares CreateTime and LogAppendTime by two criteria. A criterion speaks for the smaller figure if they
differ by more than its tolerance. If both speak for the same time, or one does and the other is silent, that time is
preferred; if both are silent, either will do; if they contradict each other, it depends on the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .rules import CREATE_TIME, EARLIEST, LARGEST, LOG_APPEND_TIME, OPTIONS, Rule
from .workloads import PATTERNS

if TYPE_CHECKING:
    from .workloads import Settings

CT, LAT, EITHER, DEPENDS = "CT", "LAT", "CT or LAT", "depends"
RETENTION = dict(zip(PATTERNS, (EITHER, CT, LAT, LAT), strict=True))  # KIP-32, "Log Retention", comparison
ROLLING = dict(zip(PATTERNS, (EITHER, LAT, LAT, LAT), strict=True))  # KIP-32, "Time based log rolling"
EARLY_TOLERANCE, OPEN_TOLERANCE = 0.1, 1.0
ROLL_RULES = {
    EARLIEST: "KIP-32's rule: the clock less the earliest time of the segment",
    CREATE_TIME: "Kafka's rule: the incoming time less the segment's first, so that equal latencies cancel out",
    LARGEST: "KIP-33's rule: the clock less the largest time ever seen, so that a busy log never rolls",
}


class Criterion(NamedTuple):
    """One figure under both times; the smaller is better."""

    name: str
    create_time: float
    append_time: float
    tolerance: float
    unit: str

    @property
    def prefers(self) -> str:
        """CT or LAT, or EITHER if they differ by no more than the tolerance."""
        apart = self.create_time - self.append_time
        return EITHER if abs(apart) <= self.tolerance else LAT if apart > 0 else CT


def preference(criteria: list[Criterion]) -> str:
    """The verdict of all criteria."""
    found = {criterion.prefers for criterion in criteria} - {EITHER}
    return EITHER if not found else found.pop() if len(found) == 1 else DEPENDS


def cell(pattern: str, paper: str, criteria: list[Criterion], **more: Any) -> dict[str, Any]:
    """A cell of a table."""
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
        Criterion("between the deletions of a message on source and target", *apart, tolerance, "ms"),
        Criterion("deleted after retention.ms from its own time", *promised, tolerance, "ms"),
    ]


def rolling(figures: dict[str, dict[str, Any]], rule: Rule, settings: Settings) -> list[Criterion]:
    """What decides about rolling by a rule on CreateTime."""
    create, append = figures[rule.name], figures[LOG_APPEND_TIME.name]
    opened = (create["openMs"]["p99"] / settings.roll_ms, append["openMs"]["p99"] / settings.roll_ms)
    return [
        Criterion(
            "part of segments closed before half of segment.ms", create["closedEarly"], append["closedEarly"],
            EARLY_TOLERANCE, "",
        ),
        Criterion("99th percentile of how long a segment is open, in segment.ms", *opened, OPEN_TOLERANCE, ""),
    ]  # fmt: skip


def tables(patterns: dict[str, dict[str, Any]], settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Both tables; rolling has a row for each rule on CreateTime."""
    return {
        "retention": [cell(one, RETENTION[one], retention(patterns[one]["rules"], settings)) for one in PATTERNS],
        "rolling": [
            cell(one, ROLLING[one], rolling(patterns[one]["rules"], rule, settings), rule=rule.name, about=about)
            for rule, about in ROLL_RULES.items()
            for one in PATTERNS
        ],
    }


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
}
RIGHT = 0.99  # of the messages in the right hour


def solved_retention(patterns: dict[str, Any], rule: Rule, settings: Settings) -> tuple[list[str], dict[str, Any]]:
    """In which patterns messages go in time: 99 % within a segment's span of their own time and retention.ms."""
    key = "deletedAfterArrivalMs" if rule.append_time else "deletedAfterCreationMs"
    kept = {pattern: found["rules"][rule.name][key]["p99"] for pattern, found in patterns.items()}
    # A segment is open a little longer than segment.ms, until a message arrives that rolls it.
    most = 3 * settings.roll_ms // 2 + settings.check_ms
    return [pattern for pattern in PATTERNS if kept[pattern] <= most], {"keptP99Ms": kept}


def solved_rolling(patterns: dict[str, Any], rule: Rule, settings: Settings) -> tuple[list[str], dict[str, Any]]:
    """In which patterns segments are neither closed early nor open much longer than segment.ms."""
    figures = {pattern: found["rules"][rule.name] for pattern, found in patterns.items()}
    early = {pattern: one["closedEarly"] for pattern, one in figures.items()}
    opened = {pattern: one["openMs"]["p99"] / settings.roll_ms for pattern, one in figures.items()}
    solved = [one for one in PATTERNS if early[one] <= EARLY_TOLERANCE and opened[one] <= 1 + OPEN_TOLERANCE]
    return solved, {"closedEarly": early, "openP99": opened}


def solved_streams(patterns: dict[str, Any], rule: Rule, settings: Settings) -> tuple[str, dict[str, Any]]:
    """Whether windows of an hour can go by the message's time in the three patterns of right times."""
    right = {pattern: patterns[pattern]["rules"][rule.name]["inRightHour"] for pattern in PATTERNS[:3]}
    return STREAMS[min(right.values()) >= RIGHT], {"inRightHour": right}


def option_table(patterns: dict[str, Any], mirror: dict[str, Any], settings: Settings) -> list[dict[str, Any]]:
    """The paper's comparison of the options, a cell for each row and option."""
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
        measured: dict[str, tuple[Any, dict[str, Any]]] = {
            "mirror maker": (MIRROR.get((kept, overridden), "other times"), times),
            "retention": solved_retention(patterns, option.rule, settings),
            "rolling": solved_rolling(patterns, option.rule, settings),
            "stream processing": solved_streams(patterns, stream_rule, settings),
            "latency measurement": (
                latency.get(known, "nothing"), {key: found[key] for key in ("endToEndMs", "lagMs", "latencyMs")},
            ),
        }  # fmt: skip
        for row, (value, figures) in measured.items():
            paper = PAPER[row][number]
            one: dict[str, Any] = {"row": row, "option": name, "paper": paper, "measured": value, "figures": figures}
            cells.append(one | {"agrees": value == paper})
    return sorted(cells, key=lambda one: list(PAPER).index(one["row"]))
