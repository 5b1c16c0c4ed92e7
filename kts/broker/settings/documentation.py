"""A sentence about each setting of topics and brokers, for DescribeConfigs."""

from __future__ import annotations

from kts.broker.settings.inert import ALL_INERT, CLEANER
from kts.broker.settings.topic import BROKER_NAMES
from kts.config import WITHOUT_EFFECT

_TEXT = """\
cleanup.policy: What happens to old segments: delete removes them by age and size; compact keeps each key's last record.
compression.type: The codec in which batches are stored; producer keeps them as they were sent.
delete.retention.ms: How long the cleaner keeps tombstones after the first pass that met them, in ms.
file.delete.delay.ms: How long the files of a deleted segment stay on disk, renamed, in ms.
flush.messages: The log is flushed to disk after this many records.
flush.ms: A log that was written to is flushed to disk after this many ms.
index.interval.bytes: At most one index entry is written for this many bytes of records.
max.compaction.lag.ms: A record is cleaned this many ms after it was written at the latest, and the segment rolled.
max.message.bytes: The largest batch that is accepted, measured as it is stored.
message.downconversion.enable: Whether records are converted for old consumers, which otherwise get an error.
message.format.version: The release whose message format the topic is stored in; those before 0.11 are old.
message.timestamp.after.max.ms: How far a record's CreateTime may be ahead of the broker's clock, in ms.
message.timestamp.before.max.ms: How far a record's CreateTime may be behind the broker's clock, in ms.
message.timestamp.difference.max.ms: Both limits in one, in ms; used where the before or after limit is not set.
message.timestamp.type: Who sets a record's timestamp: the producer (CreateTime) or the broker (LogAppendTime).
min.cleanable.dirty.ratio: A log is cleaned when more than this share of it is dirty.
min.compaction.lag.ms: A record is not cleaned for so many ms.
min.insync.replicas: Above 1, producers with acks=all are refused: there is only one replica.
preallocate: Give a new segment its full size on the disk at once.
retention.bytes: The oldest segments of a partition larger than this are deleted; -1 is no limit.
retention.ms: Segments whose newest record is older than this, in ms, are deleted; -1 is no limit.
segment.bytes: A segment that would grow beyond this size is rolled.
segment.index.bytes: The size of a segment's index files; a full index rolls the segment.
segment.jitter.ms: The largest random reduction of segment.ms, in ms, so that logs do not roll all at once.
segment.ms: A segment is rolled when its records span this many ms.
internal.segment.bytes: Kafka 4's name of segment.bytes for sizes that are only for tests.
max.message.time.difference.ms: KIP-32's name of message.timestamp.difference.max.ms.
allow.negative.timestamps: Whether timestamps before 1970 are allowed, as KIP-228 proposed; kts's own.
proposals: The proposals that the log follows, which Kafka never shipped; kts's own.
time.index.interval.ms: The bucket of the proposal bucket-index; Kafka's index does not depend on it. kts's own.
message.timestamp.missing: What is done with a record that has no timestamp: accept, refuse, now or a time; kts's own.
node.id: The number of this broker; it is its own controller.
broker.id: The older name of node.id.
cluster.id: The cluster's id; by default that of the directory, or a new one. kts's own.
advertised.listeners: The address that clients connect to; by default the one the broker listens on.
auto.create.topics.enable: Whether a topic is created when a client asks for one that does not exist.
delete.topic.enable: Whether topics may be deleted.
num.partitions: How many partitions a topic gets that is created without a number.
default.replication.factor: How many replicas a topic gets that is created without a number; one is possible.
inter.broker.protocol.version: The release whose rules the logs follow: 0.10.2 below 0.11, else 3.9.
socket.request.max.bytes: The largest request that is read.
max.connections: How many connections may be open at a time.
max.connections.per.ip: How many connections may come from one address.
connections.max.idle.ms: A connection without requests is closed after this many ms.
queued.max.request.bytes: How many bytes all unfinished requests may hold together; 0 and -1 are no limit.
request.timeout.ms: How long an incomplete request, or an answer that the client does not read, is kept, in ms.
fetch.max.bytes: The most that one Fetch response holds, unless its first batch is larger.
log.cleaner.backoff.ms: How often the broker looks for logs to clean, in ms.
log.cleaner.dedupe.buffer.size: The most memory for the keys of a pass of the cleaner, 24 bytes a key.
log.cleaner.enable: Whether the broker cleans the logs of compacted topics.
log.cleaner.io.buffer.load.factor: The part of that memory that may be in use.
log.cleaner.threads: The memory for keys is divided by this number; there is one thread here.
log.retention.check.interval.ms: How often the broker looks for segments to delete, in ms.
log.flush.scheduler.interval.ms: The default of flush.ms where log.flush.interval.ms is not set.
log.flush.offset.checkpoint.interval.ms: How often the recovery points are checkpointed, in ms.
log.flush.start.offset.checkpoint.interval.ms: How often the log start offsets are checkpointed, in ms.
replica.high.watermark.checkpoint.interval.ms: How often the high watermarks are checkpointed, in ms.
producer.id.expiration.ms: An idempotent producer that sends nothing for this many ms is forgotten.
group.min.session.timeout.ms: The shortest session that a group's member may ask for, in ms.
group.max.session.timeout.ms: The longest session that a group's member may ask for, in ms.
group.max.size: How many members a group may have.
group.initial.rebalance.delay.ms: How long a new group waits for more members before its first rebalance, in ms.
offset.metadata.max.bytes: How long the metadata of a committed offset may be.
offsets.retention.minutes: Offsets of a group without members expire after this many minutes.
offsets.retention.check.interval.ms: How often the broker looks for expired offsets, in ms.
offsets.topic.num.partitions: How many partitions __consumer_offsets is created with.
offsets.topic.replication.factor: How many replicas __consumer_offsets is created with; one is possible.
offsets.topic.segment.bytes: The segment.bytes that __consumer_offsets is created with.
offsets.topic.compression.codec: The codec of batches in __consumer_offsets, by its number.
offsets.load.buffer.size: How many bytes of __consumer_offsets are read at a time at start-up.
offsets.commit.timeout.ms: How long a commit may wait for the disk, in ms.
transaction.max.timeout.ms: The longest transaction that a producer may ask for, in ms; transactions are refused here.
release: The Kafka release whose rules, settings and requests apply: 0.10.2, 3.9 or 4.3. kts's own.
shipped: Behave exactly as the Kafka release that the logs follow, also where kts's default differs. kts's own.
shipped.search: Search by time only where Kafka's releases do, up to the first segment that may have it. kts's own.
"""
_OWN = dict(line.split(": ", 1) for line in _TEXT.splitlines())
_WITHOUT = "Shown as Kafka shows it; has no effect here."
_OF_CLEANER = "May be set; has no effect here: the cleaner has one thread, which reads as fast as it can."


def documentation(name: str) -> str | None:
    """The sentence about a setting; None if it is unknown."""
    if name in _OWN:
        return _OWN[name]
    if name in CLEANER:
        return _OF_CLEANER
    if name in WITHOUT_EFFECT or name in ALL_INERT:
        return _WITHOUT
    setting = BROKER_NAMES.get(name)
    if setting is None:
        return None
    unit = next((each for each in ("hours", "minutes") if name.endswith(f".{each}")), None)
    own = documentation(setting.name)
    return f"The default of topics that do not set {setting.name}{f', in {unit}' if unit else ''}. {own}"
