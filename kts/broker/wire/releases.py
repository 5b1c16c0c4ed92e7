"""Which versions of each API a release of Kafka has, of those that kts serves.

Source: ApiKeys and ApiVersions of 3.9.2 and 4.3.1; Protocol of 0.10.2; KIP-896.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kts.behaviour import lines_by_release
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.protocol.fields import versions_of


class Offered(NamedTuple):
    """The versions of an API that a broker takes, and the first that it announces."""

    versions: range
    announced: int


# The versions of a release that has fewer than kts serves, and the first one that it announces, if that is another.
# Of 0.10.2 it is what its logs cannot store. Kafka 4 announces Produce from 0 on, for an old librdkafka (KAFKA-18659).
_TABLE = """\
[0.10.2]
PRODUCE                        0-2
FETCH                          0-3
LIST_OFFSETS                   0-1
INIT_PRODUCER_ID               none
OFFSET_FOR_LEADER_EPOCH        none

[3.9]
PRODUCE                        0-11
FETCH                          0-17
LIST_OFFSETS                   0-9
METADATA                       0-12
OFFSET_COMMIT                  0-9
OFFSET_FETCH                   0-9
DESCRIBE_GROUPS                0-5
DESCRIBE_LOG_DIRS              0-4
ALTER_PARTITION_REASSIGNMENTS  0
DESCRIBE_CLUSTER               0-1
LIST_TRANSACTIONS              0-1
INIT_PRODUCER_ID               0-5

[4.3]
PRODUCE                        3-13  0
FETCH                          4-18
LIST_OFFSETS                   1-11
OFFSET_COMMIT                  2-10
OFFSET_FETCH                   1-10
CREATE_TOPICS                  2-7
DELETE_TOPICS                  1-6
INIT_PRODUCER_ID               0-5
OFFSET_FOR_LEADER_EPOCH        2-4
DESCRIBE_ACLS                  1-3
CREATE_ACLS                    1-3
DELETE_ACLS                    1-3
DESCRIBE_CONFIGS               1-4
DESCRIBE_LOG_DIRS              1-5
"""


def _parsed(line: str) -> tuple[ApiKey, Offered]:
    name, some, *announced = line.split()
    versions = range(0) if some == "none" else versions_of(some, 0)
    return ApiKey[name], Offered(versions, int(announced[0]) if announced else versions.start)


_BY_RELEASE = {release: dict(map(_parsed, lines)) for release, lines in lines_by_release(_TABLE).items()}


@cache
def offered(release: str | None = None) -> dict[int, Offered]:
    """The versions of each API by its key; of no release, all that kts serves."""
    fewer = {} if release is None else _BY_RELEASE[release]
    made = {key: fewer.get(one.api_key, Offered(one.versions, 0)) for key, one in MESSAGES.items()}
    return {key: one for key, one in made.items() if one.versions}
