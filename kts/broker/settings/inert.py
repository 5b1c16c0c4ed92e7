"""Settings of Kafka 3.9's brokers without an effect here. Their types are checked, and they are described as in Kafka.

Source: KafkaConfig and the classes that its definition is put together from, LogCleaner.validateReconfiguration (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kts.arguments import INT16_MAX, INT32_MAX, INT64_MAX
from kts.broker.settings.topic import DYNAMIC, ConfigType, parse_double


class InertSetting(NamedTuple):
    """A setting without effect; ``default`` is None if Kafka has none."""

    name: str
    type: ConfigType
    default: str | None
    least: int | None = None


# Name, type, default ("-" for none, "''" for an empty text, "~" for "org.apache.kafka."), least value.
_TABLE = """\
alter.config.policy.class.name                             CLASS    -
alter.config.policy.kraft.compatibility.enable             BOOLEAN  false
alter.log.dirs.replication.quota.window.num                INT      11
alter.log.dirs.replication.quota.window.size.seconds       INT      1
authorizer.class.name                                      STRING   ''
auto.include.jmx.reporter                                  BOOLEAN  true
auto.leader.rebalance.enable                               BOOLEAN  true
background.threads                                         INT      10
broker.heartbeat.interval.ms                               INT      2000
broker.id.generation.enable                                BOOLEAN  true
broker.rack                                                STRING   -
broker.session.timeout.ms                                  INT      9000
client.quota.callback.class                                CLASS    -
connection.failed.authentication.delay.ms                  INT      100
connections.max.reauth.ms                                  LONG     0
control.plane.listener.name                                STRING   -
controlled.shutdown.enable                                 BOOLEAN  true
controlled.shutdown.max.retries                            INT      3
controlled.shutdown.retry.backoff.ms                       LONG     5000
controller.listener.names                                  STRING   -
controller.quorum.append.linger.ms                         INT      25
controller.quorum.bootstrap.servers                        LIST     ''
controller.quorum.election.backoff.max.ms                  INT      1000
controller.quorum.election.timeout.ms                      INT      1000
controller.quorum.fetch.timeout.ms                         INT      2000
controller.quorum.request.timeout.ms                       INT      2000
controller.quorum.retry.backoff.ms                         INT      20
controller.quorum.voters                                   LIST     ''
controller.quota.window.num                                INT      11
controller.quota.window.size.seconds                       INT      1
controller.socket.timeout.ms                               INT      30000
create.topic.policy.class.name                             CLASS    -
delegation.token.expiry.check.interval.ms                  LONG     3600000
delegation.token.expiry.time.ms                            LONG     86400000
delegation.token.master.key                                PASSWORD -
delegation.token.max.lifetime.ms                           LONG     604800000
delegation.token.secret.key                                PASSWORD -
delete.records.purgatory.purge.interval.requests           INT      1
early.start.listeners                                      STRING   -
eligible.leader.replicas.enable                            BOOLEAN  false
fetch.purgatory.purge.interval.requests                    INT      1000
group.consumer.assignors LIST ~coordinator.group.assignor.UniformAssignor,~coordinator.group.assignor.RangeAssignor
group.consumer.heartbeat.interval.ms                       INT      5000
group.consumer.max.heartbeat.interval.ms                   INT      15000
group.consumer.max.session.timeout.ms                      INT      60000
group.consumer.max.size                                    INT      2147483647
group.consumer.min.heartbeat.interval.ms                   INT      5000
group.consumer.min.session.timeout.ms                      INT      45000
group.consumer.session.timeout.ms                          INT      45000
group.coordinator.append.linger.ms                         INT      10
group.coordinator.rebalance.protocols                      LIST     classic
group.coordinator.threads                                  INT      1
group.share.delivery.count.limit                           INT      5
group.share.heartbeat.interval.ms                          INT      5000
group.share.max.groups                                     SHORT    10
group.share.max.heartbeat.interval.ms                      INT      15000
group.share.max.record.lock.duration.ms                    INT      60000
group.share.max.session.timeout.ms                         INT      60000
group.share.max.size                                       SHORT    200
group.share.min.heartbeat.interval.ms                      INT      5000
group.share.min.record.lock.duration.ms                    INT      15000
group.share.min.session.timeout.ms                         INT      45000
group.share.partition.max.record.locks                     INT      200
group.share.record.lock.duration.ms                        INT      30000
group.share.session.timeout.ms                             INT      45000
initial.broker.registration.timeout.ms                     INT      60000
inter.broker.listener.name                                 STRING   -
kafka.metrics.polling.interval.secs                        INT      10
kafka.metrics.reporters                                    LIST     ''
leader.imbalance.check.interval.seconds                    LONG     300
leader.imbalance.per.broker.percentage                     INT      10
listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners                                                  STRING   PLAINTEXT://:9092
log.cleaner.backoff.ms                                     LONG     15000 0
log.cleaner.dedupe.buffer.size                             LONG     134217728
log.cleaner.enable                                         BOOLEAN  true
log.cleaner.io.buffer.load.factor                          DOUBLE   0.9
log.cleaner.io.buffer.size                                 INT      524288 0
log.cleaner.io.max.bytes.per.second                        DOUBLE   1.7976931348623157E308
log.cleaner.threads                                        INT      1 0
log.dir                                                    STRING   /tmp/kafka-logs
log.dir.failure.timeout.ms                                 LONG     30000
log.dirs                                                   STRING   -
max.connection.creation.rate                               INT      2147483647
max.connections.per.ip.overrides                           STRING   ''
max.incremental.fetch.session.cache.slots                  INT      1000
max.request.partition.size.limit                           INT      2000
metadata.log.dir                                           STRING   -
metadata.log.max.record.bytes.between.snapshots            LONG     20971520
metadata.log.max.snapshot.interval.ms                      LONG     3600000
metadata.log.segment.bytes                                 INT      1073741824
metadata.log.segment.ms                                    LONG     604800000
metadata.max.idle.interval.ms                              INT      500
metadata.max.retention.bytes                               LONG     104857600
metadata.max.retention.ms                                  LONG     604800000
metric.reporters                                           LIST     ''
metrics.num.samples                                        INT      2
metrics.recording.level                                    STRING   INFO
metrics.sample.window.ms                                   LONG     30000
num.io.threads                                             INT      8
num.network.threads                                        INT      3
num.recovery.threads.per.data.dir                          INT      1
num.replica.alter.log.dirs.threads                         INT      -
num.replica.fetchers                                       INT      1
offsets.commit.required.acks                               SHORT    -1
password.encoder.cipher.algorithm                          STRING   AES/CBC/PKCS5Padding
password.encoder.iterations                                INT      4096
password.encoder.key.length                                INT      128
password.encoder.keyfactory.algorithm                      STRING   -
password.encoder.old.secret                                PASSWORD -
password.encoder.secret                                    PASSWORD -
principal.builder.class CLASS ~common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles                                              LIST     ''
producer.purgatory.purge.interval.requests                 INT      1000
queued.max.requests                                        INT      500
quota.window.num                                           INT      11
quota.window.size.seconds                                  INT      1
remote.fetch.max.wait.ms                                   INT      500
remote.log.index.file.cache.total.size.bytes               LONG     1073741824
remote.log.manager.copier.thread.pool.size                 INT      -1
remote.log.manager.copy.max.bytes.per.second               LONG     9223372036854775807
remote.log.manager.copy.quota.window.num                   INT      11
remote.log.manager.copy.quota.window.size.seconds          INT      1
remote.log.manager.expiration.thread.pool.size             INT      -1
remote.log.manager.fetch.max.bytes.per.second              LONG     9223372036854775807
remote.log.manager.fetch.quota.window.num                  INT      11
remote.log.manager.fetch.quota.window.size.seconds         INT      1
remote.log.manager.task.interval.ms                        LONG     30000
remote.log.manager.thread.pool.size                        INT      10
remote.log.metadata.custom.metadata.max.bytes              INT      128
remote.log.metadata.manager.class.name STRING ~server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path                     STRING   -
remote.log.metadata.manager.impl.prefix                    STRING   rlmm.config.
remote.log.metadata.manager.listener.name                  STRING   -
remote.log.reader.max.pending.tasks                        INT      100
remote.log.reader.threads                                  INT      10
remote.log.storage.manager.class.name                      STRING   -
remote.log.storage.manager.class.path                      STRING   -
remote.log.storage.manager.impl.prefix                     STRING   rsm.config.
remote.log.storage.system.enable                           BOOLEAN  false
replica.fetch.backoff.ms                                   INT      1000
replica.fetch.max.bytes                                    INT      1048576
replica.fetch.min.bytes                                    INT      1
replica.fetch.response.max.bytes                           INT      10485760
replica.fetch.wait.max.ms                                  INT      500
replica.lag.time.max.ms                                    LONG     30000
replica.selector.class                                     STRING   -
replica.socket.receive.buffer.bytes                        INT      65536
replica.socket.timeout.ms                                  INT      30000
replication.quota.window.num                               INT      11
replication.quota.window.size.seconds                      INT      1
reserved.broker.max.id                                     INT      1000
sasl.client.callback.handler.class                         CLASS    -
sasl.enabled.mechanisms                                    LIST     GSSAPI
sasl.jaas.config                                           PASSWORD -
sasl.kerberos.kinit.cmd                                    STRING   /usr/bin/kinit
sasl.kerberos.min.time.before.relogin                      LONG     60000
sasl.kerberos.principal.to.local.rules                     LIST     DEFAULT
sasl.kerberos.service.name                                 STRING   -
sasl.kerberos.ticket.renew.jitter                          DOUBLE   0.05
sasl.kerberos.ticket.renew.window.factor                   DOUBLE   0.8
sasl.login.callback.handler.class                          CLASS    -
sasl.login.class                                           CLASS    -
sasl.login.connect.timeout.ms                              INT      -
sasl.login.read.timeout.ms                                 INT      -
sasl.login.refresh.buffer.seconds                          SHORT    300
sasl.login.refresh.min.period.seconds                      SHORT    60
sasl.login.refresh.window.factor                           DOUBLE   0.8
sasl.login.refresh.window.jitter                           DOUBLE   0.05
sasl.login.retry.backoff.max.ms                            LONG     10000
sasl.login.retry.backoff.ms                                LONG     100
sasl.mechanism.controller.protocol                         STRING   GSSAPI
sasl.mechanism.inter.broker.protocol                       STRING   GSSAPI
sasl.oauthbearer.clock.skew.seconds                        INT      30
sasl.oauthbearer.expected.audience                         LIST     -
sasl.oauthbearer.expected.issuer                           STRING   -
sasl.oauthbearer.jwks.endpoint.refresh.ms                  LONG     3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms        LONG     10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms            LONG     100
sasl.oauthbearer.jwks.endpoint.url                         STRING   -
sasl.oauthbearer.scope.claim.name                          STRING   scope
sasl.oauthbearer.sub.claim.name                            STRING   sub
sasl.oauthbearer.token.endpoint.url                        STRING   -
sasl.server.callback.handler.class                         CLASS    -
sasl.server.max.receive.size                               INT      524288
security.inter.broker.protocol                             STRING   PLAINTEXT
security.providers                                         STRING   -
socket.connection.setup.timeout.max.ms                     LONG     30000
socket.connection.setup.timeout.ms                         LONG     10000
socket.listen.backlog.size                                 INT      50
socket.receive.buffer.bytes                                INT      102400
socket.send.buffer.bytes                                   INT      102400
ssl.allow.dn.changes                                       BOOLEAN  false
ssl.allow.san.changes                                      BOOLEAN  false
ssl.cipher.suites                                          LIST     ''
ssl.client.auth                                            STRING   none
ssl.enabled.protocols                                      LIST     TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm                      STRING   https
ssl.engine.factory.class                                   CLASS    -
ssl.key.password                                           PASSWORD -
ssl.keymanager.algorithm                                   STRING   SunX509
ssl.keystore.certificate.chain                             PASSWORD -
ssl.keystore.key                                           PASSWORD -
ssl.keystore.location                                      STRING   -
ssl.keystore.password                                      PASSWORD -
ssl.keystore.type                                          STRING   JKS
ssl.principal.mapping.rules                                STRING   DEFAULT
ssl.protocol                                               STRING   TLSv1.3
ssl.provider                                               STRING   -
ssl.secure.random.implementation                           STRING   -
ssl.trustmanager.algorithm                                 STRING   PKIX
ssl.truststore.certificates                                PASSWORD -
ssl.truststore.location                                    STRING   -
ssl.truststore.password                                    PASSWORD -
ssl.truststore.type                                        STRING   JKS
telemetry.max.bytes                                        INT      1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms INT      10000
transaction.partition.verification.enable                  BOOLEAN  true
transaction.remove.expired.transaction.cleanup.interval.ms INT      3600000
transaction.state.log.load.buffer.size                     INT      5242880
transaction.state.log.min.isr                              INT      2
transaction.state.log.num.partitions                       INT      50
transaction.state.log.replication.factor                   SHORT    3
transaction.state.log.segment.bytes                        INT      104857600
transactional.id.expiration.ms                             INT      604800000
zookeeper.clientCnxnSocket                                 STRING   -
zookeeper.connect                                          STRING   -
zookeeper.connection.timeout.ms                            INT      -
zookeeper.max.in.flight.requests                           INT      10
zookeeper.metadata.migration.enable                        BOOLEAN  false
zookeeper.session.timeout.ms                               INT      18000
zookeeper.set.acl                                          BOOLEAN  false
zookeeper.ssl.cipher.suites                                LIST     -
zookeeper.ssl.client.enable                                BOOLEAN  false
zookeeper.ssl.crl.enable                                   BOOLEAN  false
zookeeper.ssl.enabled.protocols                            LIST     -
zookeeper.ssl.endpoint.identification.algorithm            STRING   HTTPS
zookeeper.ssl.keystore.location                            STRING   -
zookeeper.ssl.keystore.password                            PASSWORD -
zookeeper.ssl.keystore.type                                STRING   -
zookeeper.ssl.ocsp.enable                                  BOOLEAN  false
zookeeper.ssl.protocol                                     STRING   TLSv1.2
zookeeper.ssl.truststore.location                          STRING   -
zookeeper.ssl.truststore.password                          PASSWORD -
zookeeper.ssl.truststore.type                              STRING   -
"""
_INTEGERS = {ConfigType.SHORT: INT16_MAX, ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}
MIB = 1 << 20


def _parsed(line: str) -> InertSetting:
    name, kind, default, *least = line.split()
    value = {"-": None, "''": ""}.get(default, default.replace("~", "org.apache.kafka."))
    return InertSetting(name, ConfigType[kind], value, *map(int, least))


INERT = {setting.name: setting for setting in map(_parsed, _TABLE.splitlines())}
# Settings of the cleaner that may change while a broker runs.
CLEANER = frozenset(name for name in INERT if name.startswith("log.cleaner.")) - {"log.cleaner.enable"}
CHANGEABLE = DYNAMIC | CLEANER
_THREADS, _BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"


def check_inert(configs: Mapping[str, str]) -> None:
    """Refuse values of a wrong type, as Kafka does. Other names are ignored.

    Raises
    ------
    ValueError
        Names the setting, the valid values and the value.
    """
    for name in configs.keys() & INERT.keys():
        setting, text = INERT[name], configs[name].strip()
        if setting.type is ConfigType.BOOLEAN and text.lower() not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false, found {text!r}")
        if setting.type is ConfigType.DOUBLE and parse_double(text) is None:
            raise ValueError(f"{name}: expected a number, found {text!r}")
        greatest = _INTEGERS.get(setting.type)
        if greatest is not None:
            least = -greatest - 1 if setting.least is None else setting.least
            digits = text[1:] if text[:1] in ("+", "-") else text
            if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= greatest):
                raise ValueError(f"{name}: expected an integer from {least} to {greatest}, found {text!r}")


def check_cleaner(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse changes of the cleaner's threads and memory that Kafka refuses.

    Raises
    ------
    ValueError
        Names the setting, the valid values and the value.
    """
    now, wanted = (int(one.get(_THREADS) or INERT[_THREADS].default or 0) for one in (before, after))
    if not max(now // 2, 1) <= wanted <= max(now * 2, 1):
        raise ValueError(f"{_THREADS}: expected {max(now // 2, 1)} to {max(now * 2, 1)} after {now}, found {wanted}")
    memory = int(after.get(_BUFFER) or INERT[_BUFFER].default or 0)
    if memory // wanted <= MIB:
        raise ValueError(f"{_BUFFER}: expected more than {MIB} bytes for each of {wanted} threads, found {memory}")
