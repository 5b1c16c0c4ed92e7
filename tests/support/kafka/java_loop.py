"""Java programs that answer one command after the other. Half of the work of a short life is to load and to compile
classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.kafka.jvm import JavaProcess, Jvm
from support.processes.json_loop import JsonLoop


class JavaLoop(JsonLoop):
    """A program in Java.

    Parameters
    ----------
    jvm : Java with the program
    main : its class
    arguments : its own
    options : Java's
    """

    def __init__(self, jvm: Jvm, main: str, *arguments: object, options: Sequence[str] = ()) -> None:
        super().__init__()
        self._program = jvm, main, *arguments
        self._options = options

    def start(self, **pipes: Any) -> JavaProcess:
        return JavaProcess(*self._program, options=self._options, **pipes)
