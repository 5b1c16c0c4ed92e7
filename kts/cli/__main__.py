"""``python -m kts.cli``."""

from __future__ import annotations

from kts_command import main

if __name__ == "__main__":
    main()
