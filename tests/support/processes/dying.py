"""Processes that die with the test that started them."""

from __future__ import annotations

import shutil

# What goes before a command so that its process dies with this one, whatever ends that.
DIES_TOO = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
