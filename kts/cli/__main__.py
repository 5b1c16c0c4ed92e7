"""``python -m kts.cli``."""

from __future__ import annotations

from . import main

main(prog_name="kts")
