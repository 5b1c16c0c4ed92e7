"""There is no authorizer: requests about ACLs are refused, and every client may do everything.

Source: AclApis, DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest, AclEntry.supportedOperations (3.9).
"""

from __future__ import annotations

from kts.broker.codes import ErrorCode
from kts.broker.request import Body, ConnectionClose, Request
from kts.broker.wire.messages import ApiKey

REFUSED = {
    "error_code": int(ErrorCode.SECURITY_DISABLED),
    "error_message": "this broker has no authorizer: every client may do everything",
}
# Authorized operations, as bits: all that there are. READ is bit 3, DELETE 6, DESCRIBE 8.
TOPIC_OPERATIONS, CLUSTER_OPERATIONS, GROUP_OPERATIONS = 3576, 8096, 1 << 3 | 1 << 6 | 1 << 8
NOT_REQUESTED = -(2**31)
UNKNOWN = 0  # what clients send for names that they do not know
_PATTERN_TYPES = {"pattern_type_filter", "resource_pattern_type"}  # version 0 has none
_KINDS = {"resource_type_filter", "resource_type", "operation", "permission_type"}


def check_known(request: Request, elements: list[Body]) -> None:
    """Refuse a request with an unknown resource type, pattern type, operation or permission.

    Raises
    ------
    ConnectionClose
        There is one. Kafka closes the connection, too.
    """
    names = _KINDS | _PATTERN_TYPES if request.version > 0 else _KINDS
    for one in elements:
        for name in sorted(names & one.keys()):
            if one[name] == UNKNOWN:
                raise ConnectionClose(f"{ApiKey(request.api_key).name}: {name}: expected a known one, found {UNKNOWN}")
