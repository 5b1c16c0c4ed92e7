"""Text on its way to a terminal: what would steer the terminal is spelled out, in one place for everything printed."""

from __future__ import annotations

import codecs
import re
from io import RawIOBase
from typing import Any, TextIO, cast

# Control characters (also those of U+0080 to U+009F, which are escape sequences in one character), and what turns the
# direction of the text around it.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str, kept: str = "\n") -> str:
    r"""The text with ``\u001b`` for an escape, and so on; inside of JSON strings that means the same."""
    return _STEERING.sub(lambda found: found[0] if found[0] in kept else f"\\u{ord(found[0]):04x}", text)


class _Bytes(RawIOBase):
    """What ``buffer`` is of a shielded stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(harmless(self._decoder.decode(bytes(data))))
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._stream.write(harmless(self._decoder.decode(b"", final=True)))
        self._stream.flush()


class Shielded:
    """A terminal's text stream to which anything may be written; ``unshielded`` is for our own bars and bold names."""

    def __init__(self, stream: TextIO) -> None:
        self.unshielded = stream
        self.buffer = _Bytes(stream)

    def write(self, text: str) -> int:
        return self.unshielded.write(harmless(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unshielded, name)


def shielded(stream: TextIO) -> TextIO:
    """A terminal's stream shielded, any other as it is: in files and pipes bytes stay bytes."""
    return cast(TextIO, Shielded(stream)) if stream.isatty() else stream


def unshielded(stream: TextIO) -> TextIO:
    """The stream itself."""
    return stream.unshielded if isinstance(stream, Shielded) else stream
