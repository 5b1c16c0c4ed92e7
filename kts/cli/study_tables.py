"""The tables of a study's report, for the terminal and the page."""

from __future__ import annotations

from typing import Any, NamedTuple

from .output import counted, show_bytes

PATTERNS = 4
UNITS = (("years", 31_557_600_000), ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
NAMES = {  # of rules
    "LogAppendTime": "LogAppendTime",
    "CreateTime": "CreateTime, Kafka's",
    "earliest-timestamp": "CreateTime, earliest",
    "largest-timestamp": "CreateTime, largest",
    "wall-clock": "CreateTime, clock",
}
BY = {"earliest-timestamp": "KIP-32's", "CreateTime": "Kafka's", "largest-timestamp": "KIP-33's"}
VERDICT = ("pattern", "paper", "measured", "agrees", "CreateTime", "LogAppendTime")


class Table(NamedTuple):
    """A table with its title, and sentences below it."""

    title: str
    headers: tuple[str, ...]
    rows: list[list[str]]
    right: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def of_patterns(report: dict[str, Any]) -> list[Table]:
    """For each pattern what each rule does."""
    return [of_rules(f"{pattern}: {found['what']}", found["rules"]) for pattern, found in report["patterns"].items()]


def of_rules(title: str, rules: dict[str, Any]) -> Table:
    """What each rule does."""
    headers = ("time and rule", "segments", "of one", "open", "kept", "apart", "late")
    rows = [
        [
            NAMES[rule],
            f"{figures['segments']:,}",
            f"{figures['segmentsOfOneMessage']:,}",
            show(figures["openMs"]["p99"]),
            show(figures["deletedAfterCreationMs"]["p99"]),
            show(figures["deletedApartMs"]["p99"]),
            f"{figures['lateMessages']:,}",
        ]
        for rule, figures in rules.items()
    ]
    return Table(title, headers, rows, (1, 2, 3, 4, 5, 6))


def of_directory(report: dict[str, Any]) -> list[Table]:
    """What is known of real partitions, what the rules do with them, and what would serve them."""
    known, latency, behind = report["known"], report["latencyMs"], report["behindMs"]
    title = f"{counted(report['entries'], 'batch')} of {counted(len(report['read']), 'partition')}"
    rows = [
        ["CreateTime and arrival", f"{known['both']:,}"],
        ["arrival alone (LogAppendTime)", f"{known['arrivalOnly']:,}"],
        ["CreateTime alone: arrival from the order and the files' times", f"{known['creationOnly']:,}"],
        ["no timestamp", f"{report['withoutTime']:,}"],
        ["CreateTime after arrival", f"{report['inTheFuture']:,}"],
        ["CreateTime before 2000", f"{report['before2000']:,}"],
        *([] if latency["p99"] is None else [["latency, 99th percentile", show(latency["p99"])]]),
        *([] if behind["p99"] is None else [["behind the latest CreateTime, 99th percentile", show(behind["p99"])]]),
    ]
    tables = [Table(title, ("known", "batches"), rows, (1,))]
    if report["advice"] is None:
        return [tables[0]._replace(notes=("No CreateTime is known: there is nothing to compare.",))]
    settings = ", ".join(f"{name} {show(ms)}" for name, ms in report["settings"].items())
    advice = report["advice"]
    served = " ".join(f"{name}={value}" for name, value in advice["settings"].items())
    return [
        *tables,
        of_rules(f"What the rules do with {settings}", report["rules"]),
        Table(f"{advice['option']} would serve it", (), [], (), (served, f"Because {'; '.join(advice['why'])}.")),
    ]


def retention(report: dict[str, Any]) -> Table:
    """Which time is preferable for retention."""
    rows = [
        [*verdict(cell), *(", ".join(show(one[time]) for one in cell["criteria"]) for time in TIMES)]
        for cell in report["retention"]
    ]
    return Table("Retention: which time is preferable? (apart p99; kept p99 after the own time)", VERDICT, rows)


def rolling(report: dict[str, Any]) -> Table:
    """Which time is preferable for rolling, by three rules on CreateTime."""
    rows = [[BY[cell["rule"]], *verdict(cell), *(parts(cell, time) for time in TIMES)] for cell in report["rolling"]]
    notes = tuple(
        f"{cell['pattern']}: the paper says {cell['paper']}, measured is {cell['measured']}. {cell['about']}."
        for cell in report["rolling"]
        if not cell["agrees"]
    )
    title = "Rolling: which time is preferable? (closed early; open p99 in segment.ms)"
    return Table(title, ("rule", *VERDICT), rows, (), notes)


def options(report: dict[str, Any]) -> Table:
    """The paper's comparison of the options."""
    rows = [[cell["row"], cell["option"], words(cell["measured"]), answer(cell)] for cell in report["options"]]
    notes = tuple(
        f"{cell['row']}, {cell['option']}: the paper says {words(cell['paper'])}, "
        f"measured is {words(cell['measured'])}."
        for cell in report["options"]
        if not cell["agrees"]
    )
    return Table("Options: what each does", ("use case", "option", "measured", "agrees"), rows, (), notes)


def mirror_maker(report: dict[str, Any]) -> Table:
    """What both clusters store, and what a consumer computes."""
    mirror = report["mirrorMaker"]
    names = {ms: name.upper() for name, ms in mirror["true"].items()}
    rows = [
        [
            option,
            *(", ".join(names.get(ms, "-") for ms in found[side].values()) for side in ("source", "target")),
            *("-" if found[key] is None else show(found[key]) for key in ("endToEndMs", "lagMs", "latencyMs")),
        ]
        for option, found in mirror["options"].items()
    ]
    headers = ("option", "CT, LAT: source", "target", "end to end", "lag", "latency")
    return Table("Mirror maker: the times of a message, and what a consumer computes at T3", headers, rows)


def indexes(report: dict[str, Any]) -> list[Table]:
    """KIP-33's comparison of the indexes."""
    headers = ("index", "entries", "size", "bytes read", "before", "early", "missed", "segs")
    tables = []
    for found in report["indexes"].values():
        lost = [
            f"{name} {one['segmentsReadAfterLoss']}"
            for name, one in found["indexes"].items()
            if "segmentsReadAfterLoss" in one
        ]
        rows = [
            [name, f"{one['entries']:,}", show_bytes(one["bytes"]), f"{one['bytesRead']:,}", f"{one['before']:,}",
             f"{one['tooEarly']:,}", f"{one['missed']:,}", f"{one['segmentsRead']:,}"]
            for name, one in found["indexes"].items()
        ]  # fmt: skip
        size = f"{show_bytes(found['logBytes'])} in {counted(found['segments'], 'segment')}"
        notes = (f"Segments that are read again when the index of one is lost: {', '.join(lost)}.",) if lost else ()
        tables.append(Table(f"Indexes, {found['what']}: {size}", headers, rows, tuple(range(1, len(headers))), notes))
    return tables


def search(report: dict[str, Any]) -> Table:
    """What a search costs in a log of each option."""
    rows = []
    for option, found in report["search"].items():
        row = [option, show_bytes(found["logBytes"]), show_bytes(found["indexBytes"])]
        for time in ("CreateTime", "LogAppendTime"):
            one = found[time]
            row += ["-", "-"] if one is None else [f"{one['right']}/{one['searches']}", f"{one['bytesRead']:,}"]
        rows.append(row)
    headers = ("option", "log", "index", "CT", "bytes", "LAT", "bytes")
    missed = sum(
        one["missed"] for found in report["search"].values() for one in found.values() if isinstance(one, dict)
    )
    notes = (f"{counted(missed, 'message')} missed: each answer is at or before the first message of its time.",)
    return Table("Search, by option", headers, rows, tuple(range(1, len(headers))), notes)


def of_report(report: dict[str, Any]) -> list[Table]:
    """All tables."""
    tables = [*of_patterns(report), retention(report), rolling(report), options(report), mirror_maker(report)]
    return [*tables, *indexes(report), search(report)]


def compared(sample: dict[str, Any]) -> str:
    """Whether real logs and rules agree."""
    found = f"{sample['logs']:,} real logs, {sample['segments']:,} segments: "
    if sample["differences"]:
        return f"{found}DIFFERENT from the rules in {'; '.join(sample['differences'])}"
    return f"{found}the rules count the same"


TIMES = ("createTime", "logAppendTime")


def words(value: Any) -> str:
    """What was measured: a text, or in which patterns it holds."""
    if isinstance(value, str):
        return value
    numbers = ", ".join(pattern.removeprefix("pattern ") for pattern in value)
    return "in all patterns" if len(value) == PATTERNS else f"in pattern {numbers}"


def answer(cell: dict[str, Any]) -> str:
    """Whether a cell agrees with the paper."""
    return "yes" if cell["agrees"] else "NO"


def verdict(cell: dict[str, Any]) -> list[str]:
    """The first columns of a cell."""
    return [cell["pattern"], cell["paper"], cell["measured"], answer(cell)]


def parts(cell: dict[str, Any], time: str) -> str:
    """A part of segments, and a multiple of segment.ms."""
    early, opened = (criterion[time] for criterion in cell["criteria"])
    return f"{early:.0%}, {opened:.1f}"


def show(ms: int) -> str:
    """A length of time, its largest part with one decimal."""
    for name, step in UNITS:
        if abs(ms) >= step:
            return f"{ms / step:,.1f} {name}"
    return f"{ms} ms"
