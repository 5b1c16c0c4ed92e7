"""Leader epochs of requests: clients with another leader are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.broker.codes import ApiError, ErrorCode
from kts.log.epochs import UNDEFINED

if TYPE_CHECKING:
    from kts.broker.topics.partition import Partition


def check_leader_epoch(partition: Partition, current: int) -> None:
    """Refuse a client that knows another leader than this one; -1 is a client that does not say.

    Raises
    ------
    ApiError
        FENCED_LEADER_EPOCH (74): its leader is older; UNKNOWN_LEADER_EPOCH (75): it knows a newer one.
    """
    known = partition.leader_epoch
    if current not in (UNDEFINED, known):
        error = ErrorCode.FENCED_LEADER_EPOCH if current < known else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(error, f"expected leader epoch {known}, found {current}")
