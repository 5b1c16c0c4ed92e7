"""Classes of differences from the recorded verdicts that more than one test lists."""

from __future__ import annotations

import base64
import re
import struct

from support.oracle import oracle_log
from support.oracle.oracle_compare import Case, Difference
from support.oracle.oracle_validator import validate
from support.reference.reference_codecs import decompress


def unreadable_but_equal(case: Case, differs: list[Difference]) -> bool:
    """What lies in Kafka's wrappers is what lies in ours, byte for byte; only reading it fails."""
    if not all(found.where.startswith("records.deep") for found in differs):
        return False
    ours = validate(case["in"] | {"id": case["id"], "gen": case["gen"]})
    return unwrapped(ours["bytes"]) == unwrapped(case["out"]["bytes"])


def unwrapped(text: str) -> tuple[bytes, bytes]:
    """The header fields that do not depend on the compressor, and the payload of the one wrapper."""
    data = base64.b64decode(text)
    magic, attributes = data[16], data[17]
    value = 18 + 8 * magic
    key, size = struct.unpack_from(">ii", data, value)
    assert key == -1
    assert value + 8 + size == len(data)
    return data[:8] + data[16:value], decompress(attributes & 7, magic, data[value + 8 :])


def damaged_gzip(case: Case, differs: list[Difference]) -> bool:
    """Kafka reads damaged gzip data as far as it goes, and finds another fault there."""
    error = next((one for one in differs if one.where.endswith(".error")), None)
    return "payload" in case["tags"] and error is not None and "gzip" in str(error.ours)


def far_offset(case: Case, differs: list[Difference]) -> bool:
    """An offset, which no CRC covers, was damaged so that it lies far from its segment, before an unclean start."""
    steps = case["in"]["steps"]
    changed = [
        number
        for number, step in enumerate(steps)
        if any(one["file"] == "log" and one["op"] == "flip" for one in step.get("damage", ()))
    ]
    said = [case["out"]["answers"][number] for number in changed if number < len(case["out"]["answers"])]
    split = [answer for answer in said if "Split operation" in answer.get("error", {}).get("message", "")]
    far = [answer for answer in said if any(base >= 2**31 for base, *_ in answer.get("segments", ()))]
    return bool(split or far)


def compressed_anew(case: Case, differs: list[Difference]) -> bool:
    """And nothing differs in the steps before."""
    first = oracle_log.COMPRESSED_ANEW.get(case["id"])
    steps = [re.match(r"out\.answers\[(\d+)\]", one.where) for one in differs]
    return first is not None and all(int(step[1]) >= first for step in steps if step)
