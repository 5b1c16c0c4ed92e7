"""Which values of the metadata log are secrets: they are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kts.cluster_records.names import RESOURCE_TYPES

HIDDEN = "[hidden]"
SECRETS = {"UserScramCredential": ("salt", "storedKey", "serverKey")}  # fields, by the type of record
BROKER = 4  # the resource type of brokers

# Broker settings that can be altered while a broker runs, and are no passwords: 3.9.2 and 4.3.1.
SHOWN = frozenset(
    """
    advertised.listeners background.threads compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level config.providers cordoned.log.dirs follower.fetch.last.tiered.offset.enable
    follower.replication.throttled.rate group.consumer.assignment.interval.ms
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
    group.streams.assignment.interval.ms leader.replication.throttled.rate listener.security.protocol.map listeners
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
    log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms
    log.index.interval.bytes log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms
    log.message.downconversion.enable log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
    log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate log.retention.bytes
    log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
    max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
    message.max.bytes metric.reporters min.insync.replicas num.io.threads num.network.threads
    num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class producer.id.expiration.ms
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second sasl.enabled.mechanisms sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.mechanism.inter.broker.protocol share.coordinator.cached.buffer.max.bytes ssl.cipher.suites ssl.client.auth
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm
    ssl.keystore.location ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type transaction.partition.verification.enable
    unclean.leader.election.enable
""".split()
)


def is_secret_setting(resource_type: int, key: str) -> bool:
    """True for a setting whose value may be a secret: one of a broker that is not known to be none, or of a
    resource that Kafka 4.3 does not know.

    Notes
    -----
    Kafka hides passwords and every setting that it does not know, so also those of a listener
    (``listener.name.internal.ssl.keystore.password``) and of plugins. Topics, groups and client metrics have no
    passwords.

    Source: KafkaConfigSchema.isSensitive, RecordRedactor, DynamicBrokerConfig (3.9.2, 4.3.1).
    """
    return resource_type not in RESOURCE_TYPES or (resource_type == BROKER and key not in SHOWN)


def without_secrets(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record with ``HIDDEN`` in place of secrets."""
    found = dict(fields)
    for secret in SECRETS.get(name, ()):
        found[secret] = HIDDEN
    if name == "Config" and found["value"] is not None and is_secret_setting(found["resourceType"], found["name"]):
        found["value"] = HIDDEN
    return found
