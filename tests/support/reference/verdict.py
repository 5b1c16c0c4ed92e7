"""Whether kts and the reference decoder refuse the same bytes for the same reason."""

from __future__ import annotations

from support.reference import reference

import kts


def disagreement(error: BaseException | None, damage: reference.Corrupt | None) -> str | None:
    """What differs between kts's error and the reference's, for people; None if they say the same.

    Class, position, offset, record index and every word count; only inside of compressed payloads, which libraries
    judge, the words are free but for the codec's name.
    """
    if error is None or damage is None:
        return None if error is damage else f"kts says {error!r}, the reference {damage!r}"
    wanted = kts.DecompressionLimitError if damage.too_large else kts.CorruptRecordError
    if type(error) is not wanted:
        return f"kts raises {error!r}, the reference says {damage!r}"
    for name in ("position", "offset", "record_index"):
        if getattr(error, name) != getattr(damage, name):
            return f"{name}: {getattr(error, name)} in {error!r}, the reference says {damage!r}"
    where = f", at position {damage.position}"
    text = str(error)
    if damage.too_large:
        same = "max_decompressed_bytes" in text
    elif damage.payload:
        codec = damage.why.split(":")[0]
        same = codec in text and text.endswith(where)
    else:
        same = text == damage.why + where
    return None if same else f"kts says {text!r}, the reference {damage.why + where!r}"
