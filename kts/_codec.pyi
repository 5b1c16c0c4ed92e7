from collections.abc import Callable
from typing import Any, Self, final

_Strings = tuple[int, int, int, int, int] | None
_Compress = Callable[[bytes | memoryview], bytes]

@final
class Decoder:
    def __new__(
        cls, buf: Any, ids: bytes, views: bool, verify_crc: bool, max_decompressed_bytes: int
    ) -> Self: ...
    @property
    def position(self) -> int: ...
    def next(self, slice_bytes: int) -> int: ...

@final
class Encoder:
    def rows(
        self,
        count: int,
        offsets: int,
        times: int,
        key: _Strings,
        value: _Strings,
        headers: tuple[int, int, _Strings, _Strings] | None,
    ) -> None: ...
    def batch(
        self,
        first: int,
        last: int,
        most_bytes: int,
        head: tuple[int | None, ...],
        compress: _Compress | None,
    ) -> int: ...
    def batches(self, most_bytes: int, head: tuple[int | None, ...], compress: _Compress | None) -> None: ...
    def messages(self, first: int, last: int, magic: int, attributes: int, append_time: int | None) -> None: ...
    def wrapper(
        self,
        first: int,
        last: int,
        most_bytes: int,
        magic: int,
        attributes: int,
        append_time: int | None,
        compress: _Compress,
    ) -> int: ...
    def result(self) -> bytes: ...

@final
class Inflater: ...

@final
class Source:
    def __new__(cls, buf: Any) -> Self: ...

def max_timestamp(buf: Any, verify_crc: bool, max_decompressed_bytes: int) -> tuple[int, int, int]: ...
def valid_bytes(buf: Any) -> int: ...
def scan(buf: Any) -> int: ...
def crc32c(buf: Any) -> int: ...
def crc32(buf: Any) -> int: ...
