"""The tables of a study's report, for the terminal and the page."""

from __future__ import annotations

from typing import Any, NamedTuple

from kts.study.verdicts import length as show

from .output import counted, show_bytes

PATTERNS = 4
NAMES = {  # of rules
    "LogAppendTime": "LogAppendTime",
    "CreateTime": "CreateTime, Kafka's",
    "earliest-timestamp": "CreateTime, earliest",
    "largest-timestamp": "CreateTime, largest",
    "wall-clock": "CreateTime, clock",
}
RULES = {
    "LogAppendTime": "LogAppendTime of the incoming message less that of the segment's first.",
    "CreateTime": "CreateTime of the incoming message less that of the segment's first.",
    "earliest-timestamp": "The clock less the segment's earliest CreateTime (KIP-32).",
    "largest-timestamp": "The clock less the log's largest CreateTime (KIP-33).",
    "wall-clock": "The clock less the time of the segment's creation.",
}
BY = {"earliest-timestamp": "KIP-32's", "CreateTime": "Kafka's", "largest-timestamp": "KIP-33's"}
VERDICT = ("pattern", "paper", "measured", "agrees")
FIGURES = {  # of a cell in the table of options
    "mirror maker": "CreateTime, LogAppendTime of a message: source -> target",
    "retention": "kept p99, by pattern",
    "rolling": "closed early, and open p99 in segment.ms, by pattern",
    "stream processing": "in the hour of their creation, patterns 1 to 3",
    "latency measurement": "end to end, lag",
    "search": "messages before the first created, before the first arrived",
}
NOTHING = "No CreateTime is known: there is nothing to compare."
SHIPPED, CONTINUING = "shipped-search", "continuing-search"
INDEXES = {SHIPPED: "time index", "bucket-index": "bucket-index", "minute-map": "minute-map"}
INDEXED = {"LogAppendTime": "LogAppendTime", "CreateTime": "CreateTime", "one in the future": "CreateTime, one future"}


class StudyTable(NamedTuple):
    """A table with its title, and sentences below it. A page has room for more columns instead of the reasons."""

    title: str
    headers: tuple[str, ...]
    rows: list[list[str]]
    right: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    more: tuple[tuple[str, ...], ...] = ()  # the page's last columns: a header, then a cell for each row


def of_patterns(report: dict[str, Any]) -> list[StudyTable]:
    """For each pattern what each rule does."""
    return [of_rules(f"{pattern}: {found['what']}", found["rules"]) for pattern, found in report["patterns"].items()]


def of_rules(title: str, rules: dict[str, Any]) -> StudyTable:
    """What each rule does."""
    headers = ("time and rule", "segments", "of one", "open", "kept", "apart", "late")
    more = ("rolls when this exceeds segment.ms", *(RULES[rule] for rule in rules))
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
    return StudyTable(title, headers, rows, (1, 2, 3, 4, 5, 6), (), (), (more,))


def of_directory(report: dict[str, Any]) -> list[StudyTable]:
    """What is known of real partitions, what the rules do with them, and what would serve them."""
    known, latency, behind = report["known"], report["latencyMs"], report["behindMs"]
    title = f"{counted(report['entries'], 'batch')} of {read_of(report)}"
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
    tables = [StudyTable(title, ("known", "batches"), rows, (1,), (played(report),))]
    if report["advice"] is None:
        return [tables[0]._replace(notes=(NOTHING,))]
    settings = ", ".join(f"{name} {show(ms)}" for name, ms in report["settings"].items())
    advice = report["advice"]
    served = " ".join(f"{name}={value}" for name, value in advice["settings"].items())
    return [
        *tables,
        of_rules(f"What the rules do with {settings}", report["rules"]),
        StudyTable(f"{advice['option']} would serve it", (), [], (), (served, f"Because {'; '.join(advice['why'])}.")),
    ]


def findings(report: dict[str, Any]) -> StudyTable:
    """What stands out."""
    return StudyTable("What stands out", (), [], (), tuple(report["findings"]))


def read_of(report: dict[str, Any]) -> str:
    """How many partitions of how many."""
    read, there = len(report["read"]), report["partitions"]
    return counted(read, "partition") if read == there else f"{read:,} of {counted(there, 'partition')}"


def played(report: dict[str, Any]) -> str:
    """How much of it the rules play."""
    known = report["known"]["both"] + report["known"]["creationOnly"]
    part = "all" if report["played"] == known else f"{report['played']:,} of the"
    where = "" if part == "all" else ", at random from equal parts of each partition"
    return f"The rules play {part} {counted(known, 'batch')} with a known CreateTime{where}."


def of_topics(reports: list[dict[str, Any]]) -> StudyTable:
    """What would serve each topic."""
    rows = []
    for report in reports:
        advice = report["advice"]
        settings = {} if advice is None else advice["settings"]
        limits = [name for name in settings if name != "message.timestamp.type"]
        rows.append(
            [
                report["topic"], f"{len(report['read'])}/{report['partitions']}", f"{report['entries']:,}",
                f"{report['inTheFuture']:,}", "-" if advice is None else report["retention"]["measured"],
                "-" if advice is None else report["rolling"]["measured"],
                "-" if advice is None else advice["option"].removeprefix("option "),
                ", ".join(show(settings[name]) for name in limits) or "-",
            ]
        )  # fmt: skip
    headers = ("topic", "read", "batches", "future", "retention", "rolling", "option", "limits")
    notes = ("limits: message.timestamp.before.max.ms, then message.timestamp.after.max.ms. --topic NAME says why.",)
    return StudyTable("Which option would serve each topic", headers, rows, (1, 2, 3), notes)


def retention(report: dict[str, Any]) -> StudyTable:
    """Which time is preferable for retention."""
    cells = report["retention"]
    rows = [[*verdict(cell), *(show(one[time]) for one in cell["criteria"] for time in TIMES)] for cell in cells]
    return StudyTable(
        "Retention: which time is preferable? (apart p99; kept p99 after the own time)",
        (*VERDICT, "apart CT", "LAT", "kept CT", "LAT"),
        rows, (4, 5, 6, 7), (), reasons(cells), (why(cells),),
    )  # fmt: skip


def rolling(report: dict[str, Any]) -> list[StudyTable]:
    """Which time is preferable for rolling, by three rules on CreateTime."""
    tables = []
    for rule, name in BY.items():
        cells = [cell for cell in report["rolling"] if cell["rule"] == rule]
        rows = []
        for cell in cells:
            early, opened = cell["criteria"]
            rows.append(
                [*verdict(cell), *(f"{early[time]:.0%}" for time in TIMES), *(f"{opened[time]:.1f}" for time in TIMES)]
            )
        tables.append(
            StudyTable(
                f"Rolling by {name} rule: which is preferable? (closed early; open p99)",
                (*VERDICT, "early CT", "LAT", "open CT", "LAT"),
                rows,
                (4, 5, 6, 7),
                (sentence(cells[0]["about"]),),
                reasons(cells),
                (why(cells),),
            )  # fmt: skip
        )
    return tables


def reasons(cells: list[dict[str, Any]]) -> tuple[str, ...]:
    """Why cells do not agree with the paper."""
    return tuple(
        f"{cell['pattern']}: the paper says {cell['paper']}, measured is {cell['measured']}. {sentence(cell['why'])}"
        for cell in cells
        if not cell["agrees"]
    )


def why(cells: list[dict[str, Any]]) -> tuple[str, ...]:
    """The page's column of what decided each cell."""
    return ("decided by", *(sentence(cell["why"]) for cell in cells))


def sentence(words: str) -> str:
    """Words with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def options(report: dict[str, Any]) -> list[StudyTable]:
    """The paper's comparison of the options: a table for each use case."""
    names = {ms: name.upper() for name, ms in report["mirrorMaker"]["true"].items()}
    tables = []
    for row, what in FIGURES.items():
        cells = [cell for cell in report["options"] if cell["row"] == row]
        rows = [
            [
                cell["option"].removeprefix("option "), words(cell["measured"]), answer(cell),
                figures_of(row, cell["figures"], names),
            ]
            for cell in cells
        ]  # fmt: skip
        reasons = tuple(
            f"{cell['option']}: the paper says {words(cell['paper'])}, measured is {words(cell['measured'])}. "
            f"{sentence(cell['why'])}"
            for cell in cells
            if cell["agrees"] is False
        )
        notes = ("The paper leaves it to KIP-33; the tables of searches have all figures.",) if row == "search" else ()
        headers = ("option", "measured", "agrees", "figures")
        paper = ("paper", *("-" if cell["paper"] is None else words(cell["paper"]) for cell in cells))
        tables.append(StudyTable(f"Options, {row} ({what})", headers, rows, (), notes, reasons, (paper, why(cells))))
    return tables


def figures_of(row: str, figures: dict[str, Any], names: dict[int, str]) -> str:
    """The figures of a cell in the table of options."""
    if row == "mirror maker":
        sides = (figures[side].values() for side in ("source", "target"))
        return " -> ".join(", ".join(names.get(ms, "-") for ms in side) for side in sides)
    if row == "retention":
        return " / ".join(map(show, figures["keptP99Ms"].values()))
    if row == "rolling":
        early = "/".join(f"{100 * part:.0f}" for part in figures["closedEarly"].values())
        return f"{early} %; {'/'.join(f'{part:.1f}' for part in figures['openP99'].values())}"
    if row == "stream processing":
        return " / ".join(f"{part:.0%}" for part in figures["inRightHour"].values())
    if row == "latency measurement":
        return ", ".join("-" if figures[key] is None else show(figures[key]) for key in ("endToEndMs", "lagMs"))
    return ", ".join("some missed" if count is None else f"{count:,}" for count in figures["early"].values())


def mirror_maker(report: dict[str, Any]) -> StudyTable:
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
    notes = ("T0: created, T1: arrived at the source, T2: at the target, T3: consumed. Lengths are medians.",)
    return StudyTable(
        "Mirror maker: the times of a message, and what a consumer computes at T3", headers, rows, (), notes
    )


def indexes(report: dict[str, Any]) -> list[StudyTable]:
    """KIP-33's comparison of the indexes: what a search costs, what building costs, and what spoils them."""
    found = report["indexes"]
    return [*(lookups(one) for one in found.values()), building(found), spoiled(found), indexed_times(found)]


def lookups(found: dict[str, Any]) -> StudyTable:
    """What a search for the first message created at or after a time reads, and what it answers."""
    rows = [
        [name, f"{one['entries']:,}", f"{one['bytesRead']:,}", f"{one['messages']:,}", *judged(one, "created"),
         f"{one['segmentsRead']:,}"]
        for name, one in found["indexes"].items()
    ]  # fmt: skip
    size = f"{show_bytes(found['logBytes'])} in {counted(found['segments'], 'segment')}"
    headers = ("index", "entries", "bytes read", "messages", "exact", "early", "missed", "segs")
    return StudyTable(f"Indexes, {found['what']}: {size}", headers, rows, tuple(range(1, len(headers))))


def judged(one: dict[str, Any], question: str) -> list[str]:
    """How good the answers to a question are."""
    answers = one[question]
    return [f"{answers['exact']}/{one['searches']}", f"{answers['early']:,}", f"{answers['missed']:,}"]


def building(found: dict[str, Any]) -> StudyTable:
    """What an index costs to build, to rebuild, and to repair."""
    data = found["CreateTime"]
    rows = [
        [name, show_bytes(one["bytes"]), show_bytes(one["rebuildBytesRead"]), f"{one['rebuildCpuMs']:.1f} ms",
         f"{one['segmentsReadAfterLoss']:,}", show_bytes(one["bytesReadAfterLoss"])]
        for name, one in ((name, data["indexes"][search]) for search, name in INDEXES.items())
    ]  # fmt: skip
    return StudyTable(
        "Indexes: what is written while appending, and read to build again",
        ("index", "written", "rebuild reads", "CPU", "one lost: segs", "reads"),
        rows,
        (1, 2, 3, 4, 5),
        (
            "One lost: the segments that are read again when the index of the second one is lost. The bucket index "
            "depends on the segments before, so all later ones are read, too.",
        ),
    )


def spoiled(found: dict[str, Any]) -> StudyTable:
    """What one time far in the future does to each index."""
    before, after = found["CreateTime"]["indexes"], found["one in the future"]["indexes"]
    rows = []
    for name, one in before.items():
        other = after[name]
        pairs = [(one[key], other[key]) for key in ("entries", "bytesRead")]
        early = one["created"]["early"], other["created"]["early"]
        rows.append([name, *(f"{was:,} -> {now:,}" for was, now in (*pairs, early))])
    moved = after[SHIPPED]["searches"] - after[SHIPPED]["created"]["exact"]
    notes = (
        f"{moved} of {after[SHIPPED]['searches']} searches find the message from the future, which lies before theirs, "
        "by each index: none is missed, and all between are read in vain. Only the bucket index stays without entries: "
        "the time index loses those of that segment, the minute map none.",
    )
    headers = ("index", "entries", "bytes read", "early")
    title = "Indexes: what one time far in the future does (without -> with it)"
    return StudyTable(title, headers, rows, (1, 2, 3), notes)


def indexed_times(found: dict[str, Any]) -> StudyTable:
    """A time index on LogAppendTime against one on CreateTime."""
    rows = []
    for data, name in INDEXED.items():
        one = found[data]["indexes"][SHIPPED]
        rows.append([name, *judged(one, "created"), *judged(one, "arrived")])
    headers = ("index on", "created", "early", "missed", "arrived", "early", "missed")
    notes = (
        "The same searches, asked for the first message created then and for the first that arrived then. A message is "
        "created before it arrives, so an index on LogAppendTime is early for a creation and misses nothing; one on "
        "CreateTime is exact for a creation and misses messages that arrived then but were created before.",
    )
    title = "Time index on LogAppendTime or on CreateTime (the time index, shipped search)"
    return StudyTable(title, headers, rows, tuple(range(1, len(headers))), notes)


def search(report: dict[str, Any]) -> list[StudyTable]:
    """What a search costs in a log of each option, by question."""
    return [searches(report["search"], question) for question in ("created", "arrived")]


def searches(found: dict[str, Any], question: str) -> StudyTable:
    """One question, asked of the same messages in a log of each option, by each time that it keeps."""
    rows = []
    for option, one in found.items():
        for time, short in (("CreateTime", "CT"), ("LogAppendTime", "LAT")):
            way = one[time]
            if way is None:
                continue
            to_first = way["toFirst"][question]
            kept = way[question]["missed"] == 0
            rows.append(
                [option.removeprefix("option "), short, *judged(way, question), "yes" if kept else "NO",
                 f"{way['bytesRead']:,}", f"{to_first:,}"]
            )  # fmt: skip
    headers = ("option", "by", "exact", "early", "missed", "kept", "bytes read", "to the first")
    sizes = ", ".join(
        f"{option}: {show_bytes(one['logBytes'])} and {show_bytes(one['indexBytes'])}" for option, one in found.items()
    )
    notes = (
        "Kept: KIP-32's guarantee, that no message from then on is missed. To the first: the bytes that are read for "
        "the answer, and from there up to the first message that was wanted. Less than an index interval (4,096 bytes) "
        "depends on where index entries lie.",
        f"Sizes of log and index by time: {sizes}.",
    )
    words = {"created": "created at or after a time", "arrived": "that arrived at or after a time"}
    return StudyTable(f"Search by option: the first message {words[question]}", headers, rows, (2, 3, 4, 6, 7), notes)


def of_report(report: dict[str, Any]) -> list[StudyTable]:
    """All tables."""
    return [
        *([findings(report)] if report["findings"] else []),
        *of_patterns(report), retention(report), *rolling(report), *options(report), mirror_maker(report),
        *indexes(report), *search(report),
    ]  # fmt: skip


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
    """Whether a cell agrees with the paper; a dash if the paper says nothing."""
    return "-" if cell["agrees"] is None else "yes" if cell["agrees"] else "NO"


def verdict(cell: dict[str, Any]) -> list[str]:
    """The first columns of a cell."""
    return [cell["pattern"], cell["paper"], cell["measured"], answer(cell)]
