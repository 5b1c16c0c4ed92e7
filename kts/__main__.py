"""``python -m kts``: the command ``kts``."""

from __future__ import annotations

from kts_command import main

if __name__ == "__main__":
    main()
