"""What the exit codes mean."""

from __future__ import annotations

FINE = 0
FINDINGS = 1  # of verify
WRONG_USE = 2
UNREADABLE = 3  # or damaged input
INTERRUPTED = 130  # Ctrl-C
TERMINATED = 143
