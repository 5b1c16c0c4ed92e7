from typing import Any, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kts.errors import CorruptRecordError

WORDS: dict[str, str]

_Int64 = npt.NDArray[np.int64]
_Strings = tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]

@final
class Columns: ...

def decode(data: Buffer, option: int, verify_crc: bool, max_decompressed_bytes: int) -> tuple[Any, ...]: ...
def first_magic(data: Buffer) -> int | None: ...
def entries(data: Buffer, option: int, verify_crc: bool) -> tuple[_Int64, int, CorruptRecordError | None]: ...
def messages(
    option: int,
    offsets: _Int64,
    creates: _Int64,
    appends: _Int64,
    key: _Strings,
    value: _Strings,
    first: int,
    last: int,
    base: int,
    most_bytes: int,
) -> tuple[bytes, int]: ...
def wrapper(option: int, codec: int, offset: int, create: int, append: int, payload: Buffer) -> bytes: ...
def assign(data: Buffer, option: int, offset: int, append: int, max_decompressed_bytes: int) -> tuple[bytes, int]: ...
