"""The family `convert` of the recorded verdicts, asked of kts."""

from __future__ import annotations

import base64
from typing import Any

from support.oracle.oracle_errors import error_object

import kts


def convert(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to a case: the bytes, or the error."""
    try:
        made = kts.convert(
            base64.b64decode(case["bytes"]),
            case["to_magic"],
            generation=case["gen"],
            shipped=True,
            first_offset=case.get("first_offset", 0),
        )
    except kts.KtsError as error:
        return {"error": error_object(error)}
    return {"bytes": base64.b64encode(made).decode("ascii")}
