"""DescribeAcls, CreateAcls, DeleteAcls: refused, since there is no authorizer.

Source: AclApis, DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest (3.9).
"""

from __future__ import annotations

from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import ConnectionClose, Request

REFUSED = {
    "error_code": int(ErrorCode.SECURITY_DISABLED),
    "error_message": "this broker has no authorizer: every client may do everything",
}
UNKNOWN = 0  # what clients send for names that they do not know
_PATTERN_TYPES = {"pattern_type_filter", "resource_pattern_type"}  # version 0 has none
_KINDS = {"resource_type_filter", "resource_type", "operation", "permission_type"}


async def handle_describe_acls(_: Broker, request: Request) -> dict[str, Any]:
    """Refuse the request."""
    _check_known(request, [request.body])
    return {**REFUSED, "resources": []}


async def handle_create_acls(_: Broker, request: Request) -> dict[str, Any]:
    """Refuse every element."""
    asked = request.body["creations"]
    _check_known(request, asked)
    return {"results": [REFUSED] * len(asked)}


async def handle_delete_acls(_: Broker, request: Request) -> dict[str, Any]:
    """Refuse every element."""
    asked = request.body["filters"]
    _check_known(request, asked)
    return {"filter_results": [{**REFUSED, "matching_acls": []}] * len(asked)}


def _check_known(request: Request, asked: list[dict[str, Any]]) -> None:
    """Close the connection if an element is unknown, as Kafka does."""
    names = _KINDS | _PATTERN_TYPES if request.version > 0 else _KINDS
    for one in asked:
        for name in sorted(names & one.keys()):
            if one[name] == UNKNOWN:
                raise ConnectionClose(f"{ApiKey(request.api_key).name}: {name}: expected a known one, found {UNKNOWN}")


HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_ACLS: handle_describe_acls,
    ApiKey.CREATE_ACLS: handle_create_acls,
    ApiKey.DELETE_ACLS: handle_delete_acls,
}
