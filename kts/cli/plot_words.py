"""The words that both kinds of picture use."""

from __future__ import annotations

from .output import counted
from .plot_data import Picture
from .times import show_length, show_time

COLOURS = ("#4477aa", "#ee8866", "#228833", "#aa3377", "#66ccee", "#bbaa22", "#7755bb", "#888888")
LATE_COLOUR, FUTURE_COLOUR, INDEX_COLOUR = "#d9720b", "#cc1122", "#222222"
LEGEND_SEGMENTS = 8
ANNOTATED = 3


def segment_label(picture: Picture, number: int) -> str | None:
    """A segment's line in the legend; None for those beyond the few that fit."""
    shown = LEGEND_SEGMENTS if len(picture.segments) <= LEGEND_SEGMENTS else LEGEND_SEGMENTS - 1
    if number < shown:
        return f"segment {picture.segments[number].base_offset:,}"
    if number == shown:
        return f"… {len(picture.segments) - shown:,} more segments (colours repeat)"
    return None


def late_label(picture: Picture) -> str:
    """Out-of-order batches, counted."""
    return f"out of order: {counted(picture.late.count, 'batch')}, up to {show_length(picture.most_late_ms)} late"


def future_label(picture: Picture) -> str:
    """Batches beyond now, counted."""
    return f"in the future: {counted(picture.future.count, 'batch')}"


def subtitle(picture: Picture) -> str:
    """How much is shown, and what is not."""
    parts = [f"{counted(picture.batches, 'batch')} in {counted(len(picture.segments), 'segment')}"]
    if picture.without_time:
        parts.append(f"{counted(picture.without_time, 'batch')} without a timestamp not shown")
    if picture.clipped:
        parts.append(f"{len(picture.clipped):,} far outside: arrows at the edge")
    return "; ".join(parts)


def edge_notes(picture: Picture) -> list[tuple[int, int, str]]:
    """Offset, time and text for the first few times that lie far outside."""
    notes = [
        (offset, time, f"{show_time(time)}, batch that ends at {offset:,}")
        for offset, time in picture.clipped[:ANNOTATED]
    ]
    if len(picture.clipped) > ANNOTATED:
        offset, time, text = notes[-1]
        notes[-1] = (offset, time, f"{text} (and {len(picture.clipped) - ANNOTATED:,} more)")
    return notes
