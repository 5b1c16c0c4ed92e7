"""The reasons of the compiled core are those that have words and errors."""

from __future__ import annotations

from kts import _codec
from kts.errors import REASONS


def test_every_reason_of_the_compiled_core_has_its_words_and_errors() -> None:
    assert list(REASONS) == list(_codec.REASONS)
    for name, reason in REASONS.items():
        assert reason.words, name
        assert reason.read or reason.append, name
