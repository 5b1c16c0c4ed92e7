"""How to behave: by which release of Kafka, whether exactly as it was released, and which numbers are times.

A log, a conversion or a check makes one ``Behaviour`` at its door, and asks it by the names of rules. A release is a
row of ``RELEASES``: where it differs from the rules' defaults. The tables in docs/differences.md are made of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .arguments import INT64_MAX, INT64_MIN, boolean, choice
from .model import NO_TIMESTAMP

NOTHING = INT64_MIN - 1  # earlier than every timestamp
FUTURE_BY_FILE = "KAFKA-20609"  # a rule of retention, later than the releases; for topics that are copied to tiers


# --- the rules of time ------------------------------------------------------------------------------


class TimeRules(NamedTuple):
    """Which numbers are times, and which number says that there is none.

    Attributes
    ----------
    before_1970 : bool
        Times before 1970 count, as KIP-228 proposed.
    minus_one : bool
        -1 is one of them, 1969-12-31T23:59:59.999Z (KIP-228's first choice); otherwise it means no timestamp.
    """

    before_1970: bool = False
    minus_one: bool = False

    @classmethod
    def of(cls, before_1970: bool, minus_one: bool) -> TimeRules:
        """The rules of two options, of which the second includes the first."""
        return cls(before_1970 or minus_one, minus_one)

    @property
    def minus_one_means_none(self) -> bool:
        """Whether -1 alone is no time and sorts below all others; otherwise numbers are compared as they are."""
        return self.before_1970 and not self.minus_one

    @property
    def least(self) -> int:
        """The greatest timestamp of a log that has none."""
        return NOTHING if self.before_1970 else NO_TIMESTAMP

    @property
    def none(self) -> int:
        """The greatest timestamp of a set whose records have none."""
        return INT64_MIN if self.minus_one else NO_TIMESTAMP

    def counts(self, timestamp_ms: int) -> bool:
        """Whether a number in a time index counts; those before 1970 may date from other settings."""
        return timestamp_ms >= 0 or self.before_1970

    def hides(self, max_timestamps: Any) -> Any:
        """Whether a header with this greatest timestamp may hide times before 1970; of one header or an array of them.

        A producer that knows no such times leaves -1 there. Where -1 is a time too, a header from before that setting
        may hide it.
        """
        if self.minus_one:
            return max_timestamps <= NO_TIMESTAMP
        return (max_timestamps == NO_TIMESTAMP) & self.before_1970


KAFKA_TIMES = TimeRules()


# --- the rules --------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """What holds where a rule is true, and the KIP or the class of Kafka that has it."""

    default: Any
    sentence: str
    source: str


def rule(default: Any, sentence: str, source: str) -> Any:
    """Declare a rule."""
    return Rule(default, sentence, source)


class Behaviour:
    """The rules by which logs are written, read and checked. There is one object for each behaviour.

    Attributes
    ----------
    release : str
        The release of Kafka that is followed.
    shipped : bool
        Exactly, also where kts differs by default.
    times : TimeRules
        Which numbers are times.
    """

    release: str
    shipped: bool
    times: TimeRules

    # formats and settings
    least_magic: int = rule(0, "The oldest message format that a topic may have.", "KIP-724")
    greatest_magic: int = rule(2, "The newest message format.", "KIP-32 (1), KIP-98 (2)")
    unknown_settings: tuple[str, ...] = rule(
        (), "Settings of older releases that are unknown names.", "KIP-724, KIP-896, KIP-937"
    )
    max_message_bytes: int = rule(1_048_588, "The default of max.message.bytes.", "LogConfig")
    message_timestamp_after_max_ms: int = rule(INT64_MAX, "The default of message.timestamp.after.max.ms.", "KIP-1030")
    least_values: tuple[tuple[str, int], ...] = rule(
        (("segment.ms", 1), ("segment.index.bytes", 4), ("retention.ms", -1), ("flush.messages", 1)),
        "The least values of settings that have others in other releases.",
        "LogConfig, KIP-1030",
    )
    lists_have_no_empty_names: bool = rule(
        False,
        "A setting that is a list has each name once, and no empty ones.",
        "KIP-1161",
    )
    limits_before_and_after: bool = rule(
        True, "Times before and after the clock have a limit each; otherwise one limit for both.", "KIP-937"
    )
    rolls_by_compaction_lag: bool = rule(True, "A compacted topic rolls by max.compaction.lag.ms too.", "KIP-354")

    # sets that are appended or converted
    checks_by_batch: bool = rule(
        True, "A set is checked batch by batch; otherwise up to the first message that is refused.", "LogValidator"
    )
    validates_as_released: bool = rule(False, "A set is checked with the release's own gaps.", "LogValidator")
    refuses_minus_one: bool = rule(
        False, "The limits of timestamps hold for -1 too, which means no timestamp.", "LogValidator (0.10.2)"
    )
    invalid_record_code: int = rule(
        87, "The code of InvalidRecordException, which was a CorruptRecordException up to 2.3.", "KIP-467"
    )
    released_codes: bool = rule(False, "An error has the code that the release answers.", "Errors.forException")
    rewrites_every_message: bool = rule(
        True, "A set that is rewritten gets each message anew; otherwise those of its format are kept.", "LogValidator"
    )
    stamps_kept_messages: bool = rule(
        True, "Under LogAppendTime, messages that are kept in a rewritten set get the clock's time.", "LogValidator"
    )
    stamps_inner_messages: bool = rule(
        False, "Under LogAppendTime, inner messages that are rewritten get the clock's time.", "LogValidator"
    )
    rewritten_has_last_offset: bool = rule(
        False, "The greatest timestamp of a set that is rewritten belongs to its last offset.", "LogValidator"
    )
    refuses_empty_sets: bool = rule(True, "A leader refuses bytes without a whole batch.", "Log.append")
    fences_leader_epochs: bool = rule(True, "A leader epoch older than the newest is refused.", "Log.append")
    counts_missing_replicas: bool = rule(
        False,
        "An append with acks=all is refused where min.insync.replicas exceeds a partition's replicas.",
        "Partition.effectiveMinIsr",
    )
    followers_exceed_segment: bool = rule(
        True, "A leader's batch that is larger than segment.bytes is copied into a segment of its own.", "Log.append"
    )
    converts_by_entry: bool = rule(
        True,
        "A conversion keeps entries apart; otherwise all become one set with the codec of the first.",
        "RecordsUtil.downConvert, AbstractRecords.toMessageFormat (0.10.2)",
    )
    converts_as_released: bool = rule(
        False, "Conversions are down-conversions and check as little as the release.", "RecordsUtil.downConvert"
    )

    # indexes
    indexes_last_offset: bool = rule(
        True, "An index entry has the last offset of a batch; otherwise the first of a whole set.", "LogSegment.append"
    )
    indexes_inner_offset: bool = rule(
        False,
        "The index entry of a wrapper from a leader has its first inner offset, as a rebuild gives it.",
        "Log.append",
    )
    refuses_lower_offsets: bool = rule(
        True, "A segment refuses offsets below its base offset.", "LogSegment.canConvertToRelativeOffset"
    )
    cuts_relative_offsets: bool = rule(
        False, "A relative offset that does not fit is cut to 32 bits.", "OffsetIndex.append (0.10.2)"
    )
    adapts_indexes: bool = rule(
        True,
        "An index has room for an entry and for its closing one, stops growing when it is full, and ends where the log "
        "has what it cannot hold.",
        "AbstractIndex, LogSegment.recover",
    )
    searches_by_base_offset: bool = rule(
        False,
        "An offset is looked up by the first offsets of entries, for which wrappers are opened; otherwise by the last.",
        "FileRecords.searchForOffsetFromPosition (4.1)",
    )
    makes_index_before_roll: bool = rule(
        False,
        "An empty active segment that is replaced has an offset index, which is renamed with it.",
        "LocalLog.roll (4.3)",
    )
    believes_indexes: bool = rule(False, "Index entries are used without a look at the log.", "AbstractIndex")
    opens_index_late: bool = rule(False, "A missing offset index is made at its first use.", "LazyIndex")
    searches_warm_entries: bool = rule(
        True, "A search in an index begins at its last 8192 bytes.", "AbstractIndex.indexSlotRangeFor"
    )
    index_may_end_at_base: bool = rule(
        True, "The last offset of an index may be the base offset.", "OffsetIndex.sanityCheck"
    )
    removes_cut_entry: bool = rule(
        True, "A truncation inside a batch also removes the batch's index entry.", "LogSegment.truncateTo"
    )
    resizes_by_truncation: bool = rule(
        True, "A truncation enlarges the indexes, also if it cuts nothing.", "LogSegment.truncateTo"
    )
    undoes_failed_appends: bool = rule(
        True, "A set that an index refuses leaves nothing in the log.", "LogSegment.append"
    )

    # reading a segment
    entry_header_bytes: int = rule(17, "So many bytes must be left for an entry to be read.", "FileLogInputStream")
    checks_searched_entries: bool = rule(
        True, "A search by time checks CRCs, and reads plain messages whole.", "LogSegment.findOffsetByTimestamp"
    )
    takes_inner_offsets_as_they_are: bool = rule(
        False,
        "In a wrapper whose offset is below its last inner offset, inner offsets are absolute.",
        "RecordsIterator (0.10.2)",
    )
    continues_search: bool = rule(
        True, "A search by time goes on in later segments.", "UnifiedLog.fetchOffsetByTimestamp"
    )
    search_ends_at_first_entry: bool = rule(
        False,
        "A search by time answers from the first entry whose header reaches the time, or fails there.",
        "LogSegment.findOffsetByTimestamp (0.10.2)",
    )
    compares_early_times: bool = rule(
        False, "Times before 1970 in indexes and headers are compared as any other.", "TimeIndex, LogSegment"
    )
    least_target: int = rule(
        -6,
        "Negative targets of a search by time mean offsets of the log down to this one, and times below it.",
        "ListOffsetsRequest, UnifiedLog.fetchOffsetByTimestamp",
    )
    seeks_greatest_in_all: bool = rule(
        True,
        "The greatest timestamp is that of the records that readers see; otherwise of one segment, by its index.",
        "UnifiedLog.fetchOffsetByTimestamp",
    )
    fails_at_damage: bool = rule(
        False, "Damage fails an append or a truncation that meets it in the log.", "LogSegment.timeWaitedForRoll"
    )

    # the log
    keeps_leader_epochs: bool = rule(True, "A log keeps its leader epochs.", "KIP-101")
    keeps_producers: bool = rule(
        True, "A log keeps the state of producers, and indexes aborted transactions.", "KIP-98"
    )
    moves_log_start: bool = rule(True, "The log start offset can move within a segment.", "KIP-107")
    rolls_at_first_offset: bool = rule(
        True,
        "A new segment begins at the first offset of its first set, where the header has it.",
        "UnifiedLog.maybeRoll",
    )
    rolls_in_place: bool = rule(
        True, "An empty active segment whose indexes are too small is replaced.", "LocalLog.roll"
    )
    deletes_by_size_first: bool = rule(True, "Retention goes by size and then by time.", "UnifiedLog.deleteOldSegments")
    retains_to_high_watermark: bool = rule(
        True, "Retention keeps what is above the high watermark.", "UnifiedLog.deletableSegments"
    )
    tells_of_future_segments: bool = rule(
        False,
        "Retention tells of a segment that it keeps because its largest timestamp is from the future.",
        "KAFKA-18929",
    )
    truncates_at_end: bool = rule(
        False,
        "A truncation to the log end offset is done, though it cuts nothing.",
        "Log.truncateTo (0.10.2)",
    )
    tells_repeated_partitions: bool = rule(
        True, "A partition that a ListOffsets request has twice is refused as often; otherwise once.", "KafkaApis"
    )
    refuses_unknown_groups: bool = rule(
        False,
        "A commit of a member (OffsetCommit from version 9 on) into a group that does not exist says so.",
        "OffsetMetadataManager (4.0)",
    )
    ends_emptied_groups: bool = rule(
        True,
        "A group without members ends when its last offsets are deleted, also with their topic.",
        "GroupMetadataManager.cleanupGroupMetadata",
    )
    lists_end_offset: bool = rule(
        False, "A search by time over the wire may answer the end that consumers see.", "KafkaApis (0.10.2)"
    )

    stable_at_batch_base: bool = rule(
        False,
        "A transaction that is open since before the log start offset holds the last stable offset at the base of the "
        "batch there; otherwise at the log start offset.",
        "UnifiedLog.maybeIncrementFirstUnstableOffset (4.3)",
    )

    # the cleaner
    maps_from_index: bool = rule(
        False,
        "The offset map of a segment is read from the index entry before the first dirty offset: an ABORT that lies "
        "before that is not met.",
        "Cleaner.buildOffsetMapForSegment",
    )
    aborts_above_start: bool = rule(
        False,
        "To the cleaner, a transaction whose ABORT lies below the log start offset did not abort.",
        "UnifiedLog.collectAbortedTransactions",
    )
    checks_cleaned_entries: bool = rule(
        True, "An entry with a wrong CRC ends a pass of the cleaner.", "Cleaner.cleanInto"
    )
    keeps_last_message: bool = rule(
        True,
        "The last message of a pass stays if it has magic 0 or 1 and none of its records would; otherwise the pass "
        "fails.",
        "MemoryRecords.filterTo",
    )
    removes_failed_pass: bool = rule(True, "A pass that fails leaves no files.", "Cleaner.cleanSegments")

    # start-up
    splits_segments: bool = rule(
        True, "A segment with offsets that do not fit is split.", "LocalLog.splitOverflowedSegment"
    )
    swaps_one_by_one: bool = rule(
        False, "Interrupted swaps are finished one after the other.", "Log.loadSegmentFiles (0.10.2)"
    )
    keeps_swapped_indexes: bool = rule(True, "The indexes of a swapped segment are kept.", "LogLoader")
    believes_log_start: bool = rule(True, "A log starts at the log start offset of its checkpoint.", "KIP-107")
    lowers_recovery_point: bool = rule(True, "A recovery point beyond the log's end is lowered to it.", "LogLoader")
    checks_indexes_at_start: bool = rule(
        True, "The indexes of closed segments are checked at start-up.", "Log.loadSegmentFiles (0.10.2)"
    )
    makes_missing_indexes: bool = rule(
        True,
        "Missing indexes are made before a segment is opened, the time index too.",
        "LogLoader.loadSegmentFiles",
    )
    checks_transaction_indexes: bool = rule(
        True,
        "A transaction index that is empty, or that the log contradicts, is rebuilt.",
        "LogLoader.loadSegmentFiles",
    )
    requires_rising_offsets: bool = rule(
        True, "Recovery ends at an entry whose offset is not above the previous one.", "LogSegment.recover"
    )
    limits_recovered_entries: bool = rule(
        False, "Recovery ends at an entry larger than max.message.bytes.", "LogSegment.recover (0.10.2)"
    )
    sets_aside: bool = rule(
        True, "What start-up takes out of a log is kept beside it, but for torn writes.", "LogLoader"
    )
    checks_tail: bool = rule(True, "The tail of the active segment is checked after a clean stop.", "LogLoader")
    reports_lost_end: bool = rule(True, "A log that ends before its recovery point is reported.", "LogLoader")
    keeps_log_below_start: bool = rule(True, "A log that ends below its log start offset is kept.", "LogLoader")
    confirms_leader_epochs: bool = rule(
        True, "The leader epochs are read from the batches if these contradict the checkpoint.", "LeaderEpochFileCache"
    )
    keeps_epoch_at_end: bool = rule(True, "An epoch that begins at the log end offset is kept.", "LogLoader")

    def __init__(self, release: str, shipped: bool, times: TimeRules, rules: dict[str, Any]) -> None:
        defaults = {name: one.default for name, one in RULES.items()}
        self.__dict__.update(defaults | rules, release=release, shipped=shipped, times=times)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a behaviour does not change")

    def __repr__(self) -> str:
        return f"Behaviour({self.release!r}, shipped={self.shipped}, times={self.times})"

    @staticmethod
    def of(release: str, shipped: bool = False, times: TimeRules = KAFKA_TIMES) -> Behaviour:
        """The behaviour of a release.

        Parameters
        ----------
        release : str
            A name of ``RELEASES``.
        shipped : bool
            Exactly as that release.

        Raises
        ------
        TypeError, ValueError
        """
        return BEHAVIOURS[choice("release", release, GENERATIONS), boolean("shipped", shipped), times]

    def counts(self, timestamp_ms: int) -> bool:
        """Whether the timestamp of an index entry counts."""
        return self.compares_early_times or self.times.counts(timestamp_ms)

    def __reduce__(self) -> tuple[Callable[..., Behaviour], tuple[Any, ...]]:
        return Behaviour.of, (self.release, self.shipped, self.times)


RULES: dict[str, Rule] = {name: one for name, one in vars(Behaviour).items() if isinstance(one, Rule)}


# --- the releases -----------------------------------------------------------------------------------


class Release(NamedTuple):
    """A release of Kafka.

    Attributes
    ----------
    formats : tuple of int
        The message formats that mean this release where none is named.
    rules : dict
        The rules that differ from their defaults.
    shipped : dict
        Those that differ besides if the release is followed exactly.
    """

    formats: tuple[int, ...]
    rules: dict[str, Any]
    shipped: dict[str, Any]


_OF_EACH_RELEASE = {
    "validates_as_released": True,
    "released_codes": True,
    "refuses_empty_sets": False,
    "fences_leader_epochs": False,
    "followers_exceed_segment": False,
    "converts_as_released": True,
    "adapts_indexes": False,
    "believes_indexes": True,
    "removes_cut_entry": False,
    "undoes_failed_appends": False,
    "checks_searched_entries": False,
    "continues_search": False,
    "compares_early_times": True,
    "seeks_greatest_in_all": False,
    "fails_at_damage": True,
    "maps_from_index": True,
    "aborts_above_start": True,
    "checks_cleaned_entries": False,
    "keeps_last_message": False,
    "removes_failed_pass": False,
    "makes_missing_indexes": False,
    "checks_transaction_indexes": False,
    "requires_rising_offsets": False,
    "sets_aside": False,
    "checks_tail": False,
    "reports_lost_end": False,
    "keeps_log_below_start": False,
    "confirms_leader_epochs": False,
    "keeps_epoch_at_end": False,
}

_SINCE_3_9 = {"stamps_inner_messages": True, "opens_index_late": True, "checks_indexes_at_start": False}

RELEASES = {
    "0.10.2": Release(
        (0, 1),
        {
            "greatest_magic": 1,
            "max_message_bytes": 1_000_012,
            "least_values": (),
            "limits_before_and_after": False,
            "rolls_by_compaction_lag": False,
            "checks_by_batch": False,
            "invalid_record_code": 2,
            "rewrites_every_message": False,
            "rewritten_has_last_offset": True,
            "counts_missing_replicas": True,
            "converts_by_entry": False,
            "indexes_last_offset": False,
            "indexes_inner_offset": True,
            "refuses_lower_offsets": False,
            "searches_warm_entries": False,
            "index_may_end_at_base": False,
            "resizes_by_truncation": False,
            "entry_header_bytes": 12,
            "keeps_leader_epochs": False,
            "keeps_producers": False,
            "moves_log_start": False,
            "rolls_at_first_offset": False,
            "deletes_by_size_first": False,
            "retains_to_high_watermark": False,
            "truncates_at_end": True,
            "lists_end_offset": True,
            "keeps_swapped_indexes": False,
        },
        _OF_EACH_RELEASE
        | {
            "refuses_minus_one": True,
            "stamps_kept_messages": False,
            "indexes_inner_offset": False,
            "cuts_relative_offsets": True,
            "takes_inner_offsets_as_they_are": True,
            "search_ends_at_first_entry": True,
            "least_target": -2,
            "rolls_in_place": False,
            "splits_segments": False,
            "swaps_one_by_one": True,
            "believes_log_start": False,
            "lowers_recovery_point": False,
            "limits_recovered_entries": True,
        },
    ),
    "3.9": Release((2,), {}, _OF_EACH_RELEASE | _SINCE_3_9 | {"least_target": -5}),
    "4.3": Release(
        (),
        {
            "least_magic": 2,
            "unknown_settings": (
                "message.format.version",
                "message.downconversion.enable",
                "message.timestamp.difference.max.ms",
                "inter.broker.protocol.version",
            ),
            "message_timestamp_after_max_ms": 3_600_000,
            "least_values": (
                ("segment.bytes", 2**20),
                ("log.segment.bytes", 2**20),
                ("segment.ms", 1),
                ("segment.index.bytes", 4),
                ("retention.ms", -1),
                ("flush.messages", 1),
            ),
            "lists_have_no_empty_names": True,
            "tells_repeated_partitions": False,
            "refuses_unknown_groups": True,
            "ends_emptied_groups": False,
            "tells_of_future_segments": True,
        },
        _OF_EACH_RELEASE
        | _SINCE_3_9
        | {"searches_by_base_offset": True, "makes_index_before_roll": True, "stable_at_batch_base": True},
    ),
}
GENERATIONS = tuple(RELEASES)


def lines_by_release(text: str) -> dict[str, list[str]]:
    """The lines of a table for each release: those of all, then those below a heading that names it, as ``[3.9]``.

    Lines that are empty or begin with ``#`` are left out.
    """
    found: dict[str, list[str]] = {name: [] for name in GENERATIONS}
    named = list(GENERATIONS)
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("["):
            named = line.strip("[]").split()
        elif not line.startswith("#"):
            for name in named:
                found[name].append(line)
    return found


def behaviours_of(name: str, release: Release) -> dict[tuple[str, bool, TimeRules], Behaviour]:
    """Every behaviour of a release."""
    rules = {False: release.rules, True: release.rules | release.shipped}
    return {
        (name, shipped, times): Behaviour(name, shipped, times, rules[shipped])
        for shipped in rules
        for times in (KAFKA_TIMES, TimeRules(True), TimeRules(True, True))
    }


BEHAVIOURS = {key: made for name, row in RELEASES.items() for key, made in behaviours_of(name, row).items()}


def one_release(release: str | None, generation: str | None) -> str | None:
    """The release that a caller named, by the word ``release`` or by ``generation``, which means the same; or None.

    Raises
    ------
    TypeError, ValueError
        No name of ``RELEASES``; two different ones.
    """
    given = {"release": release, "generation": generation}
    named = {choice(word, value, GENERATIONS) for word, value in given.items() if value is not None}
    if len(named) > 1:
        raise ValueError(f"generation: expected {release!r}, as it is another word for release, found {generation!r}")
    return next(iter(named), None)


def generation_of_format(magic: int) -> str:
    """The generation of a message format."""
    return next(name for name, release in RELEASES.items() if magic in release.formats)


DEFAULT = Behaviour.of(generation_of_format(2))
NEWEST = Behaviour.of(GENERATIONS[-1])  # what is told of where no release is named


# --- where kts differs ------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A case in which kts does not do what the releases do, unless they are followed exactly.

    Attributes
    ----------
    rules : tuple of str
        The rules that decide it; none where only readers meet it, for which there is no choice.
    """

    case: str
    default: str
    shipped: str
    rules: tuple[str, ...] = ()


DIFFERENCES = (
    Difference(
        "timestamp -1 and a finite difference limit",
        "exempt (as from 0.11)",
        "0.10.2: refused (32)",
        ("refuses_minus_one",),
    ),
    Difference(
        "a time so far from the clock that their difference exceeds 2^63",
        "by its true size",
        "Java's difference overflows and may pass any limit",
        ("validates_as_released",),
    ),
    Difference(
        "LogAppendTime set by a producer",
        "refused (32)",
        "3.9, 4.3: accepted on a CreateTime topic within the limits",
        ("validates_as_released",),
    ),
    Difference(
        "LogAppendTime, rewritten without compression",
        "the clock and the type on every message",
        "0.10.2: messages keep their time and type",
        ("stamps_kept_messages",),
    ),
    Difference(
        "LogAppendTime, recompressed",
        "inner messages keep their own times",
        "3.9, 4.3: they get the clock's",
        ("stamps_inner_messages",),
    ),
    Difference(
        "unknown magic",
        "refused (2)",
        "0.10.2: read as 1",
        ("validates_as_released",),
    ),
    Difference(
        "several wrappers in one set",
        "merged into one",
        "0.10.2: only the first gets offsets",
        ("validates_as_released",),
    ),
    Difference(
        "wrapper without value or messages, damaged compressed data",
        "2, or 87 in 3.9 and 4.3",
        "-1",
        ("released_codes",),
    ),
    Difference(
        "a message whose lengths do not fill it",
        "refused (2)",
        "stored",
        ("validates_as_released",),
    ),
    Difference(
        "inner message with a wrong CRC that would be rewritten",
        "refused (2)",
        "0.10.2: stored",
        ("validates_as_released",),
    ),
    Difference(
        "record batch with a wrong record length, or offset deltas that are not 0, 1, 2 ...",
        "refused (87)",
        "stored, or -1",
        ("validates_as_released",),
    ),
    Difference(
        "zstd into magic 0 or 1; a transactional batch into magic 0 or 1",
        "76; 43",
        "-1",
        ("released_codes",),
    ),
    Difference(
        "conversion of damaged data",
        "2; lower magics are also up-converted",
        "often -1; 3.9 only down-converts",
        ("converts_as_released",),
    ),
    Difference(
        "an entry that reaches past the end of the file, with sound ones behind its start",
        "damage in every answer: an error, or skipped",
        "the end of the segment",
    ),
    Difference(
        "search by time",
        "continues in later segments, and after an entry whose records do not keep its promise",
        "one segment; 0.10.2: error",
        ("continues_search", "search_ends_at_first_entry"),
    ),
    Difference(
        "a lookup of an offset that walks over a wrapper with a right CRC and a broken payload",
        "by the last offsets of entries, which their headers have",
        "4.3: by the first ones, so that reads and truncations of other offsets fail, and the log may not open",
        ("searches_by_base_offset",),
    ),
    Difference(
        "an empty active segment that is replaced",
        "its offset index only if it has one",
        "4.3: an offset index is made, and lies there as `.index.deleted`",
        ("makes_index_before_roll",),
    ),
    Difference(
        "a negative target of a search by time that the release does not know",
        "refused by the broker; up to -6 a place in the log",
        "0.10.2: below -2, 3.9: below -5, 4.3: below -6 a time",
        ("least_target",),
    ),
    Difference(
        "an index that is full during recovery; offsets that do not fit or do not increase",
        "stops growing; cut there and reported",
        "the log does not open",
        ("adapts_indexes", "cuts_relative_offsets"),
    ),
    Difference(
        "segments after a cut at start-up",
        "renamed to `.aside-<ms>`, reported",
        "deleted",
        ("sets_aside",),
    ),
    Difference(
        "a cut at an unclean start that holds a batch with a right CRC",
        "kept as `.aside-<ms>`, told",
        "discarded",
        ("sets_aside",),
    ),
    Difference(
        "two segments with the same offset",
        "each offset once: from the last segment that begins at or below it and has it, as a broker looks an offset "
        "up; what only an earlier one has is read, too",
        "by the fetch: the rest of the segment that it began in, then the next",
    ),
    Difference(
        "a segment with offsets more than 2^31-1 above its name, or below it",
        "split; a last batch that lies so far away alone is cut and kept aside: no CRC covers its offset",
        "split",
        ("splits_segments",),
    ),
    Difference(
        "indexes at start-up and in every answer",
        "an entry is used if the log, or the checksum of the closed index, confirms it. Otherwise answers do without "
        "it and both indexes are rebuilt: `recovered`, and a warning (`tests/log/test_damaged_indexes.py`)",
        "trusted; 3.9, 4.3: only a missing `.index` is rebuilt",
        ("believes_indexes", "checks_indexes_at_start", "opens_index_late"),
    ),
    Difference(
        "a missing `.timeindex`",
        "rebuilt",
        "left empty",
        ("makes_missing_indexes",),
    ),
    Difference(
        "in recovery, an entry whose offset is not above the previous one",
        "ends the log: no CRC covers the offset, and a torn write may lack it",
        "accepted",
        ("requires_rising_offsets",),
    ),
    Difference(
        "an epoch that begins at the log end offset, at start-up",
        "kept",
        "removed, if the log was emptied",
        ("keeps_epoch_at_end",),
    ),
    Difference(
        "the active segment's tail after a clean stop",
        "checked; if damaged, recovered, and what is cut is kept as `.aside-<ms>`",
        "trusted",
        ("checks_tail",),
    ),
    Difference(
        "`max.message.bytes` lowered, then recovery",
        "larger messages stay",
        "0.10.2: cut",
        ("limits_recovered_entries",),
    ),
    Difference(
        "truncation inside a wrapper, 0.10.2",
        "its index entry is removed",
        "stays, and points beyond the end",
        ("removes_cut_entry",),
    ),
    Difference(
        "the last stable offset of a transaction that is open since before the log start offset",
        "the log start offset",
        "4.3: below it, the base of the batch that holds it",
        ("stable_at_batch_base",),
    ),
    Difference(
        "the cleaner begins inside a segment, behind an ABORT",
        "the transaction is known as aborted up to there",
        "the producer's committed records count as aborted, and an older value may come back",
        ("maps_from_index",),
    ),
    Difference(
        "the cleaner and a transaction whose ABORT lies below the log start offset",
        "aborted",
        "its records count, and hide older values",
        ("aborts_above_start",),
    ),
    Difference(
        "a wrong CRC in what the cleaner reads",
        "the pass ends with an error; segments that are not replaced yet stay",
        "the batch is copied, or rewritten with a right CRC",
        ("checks_cleaned_entries",),
    ),
    Difference(
        "a pass of the cleaner that ends at messages of magic 0 or 1 of which nothing would stay",
        "they stay, until more is cleaned",
        "the pass fails, and the partition is cleaned no more",
        ("keeps_last_message",),
    ),
    Difference(
        "what a failed pass of the cleaner leaves",
        "nothing",
        "its `.cleaned` files, up to the next start",
        ("removes_failed_pass",),
    ),
    Difference(
        "two keys with the same MD5",
        "are two: the cleaner hashes keys with a secret",
        "the later one hides the earlier, which is removed",
    ),
    Difference(
        "leader epoch older than the newest",
        "refused",
        "accepted",
        ("fences_leader_epochs",),
    ),
)
