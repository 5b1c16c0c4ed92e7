from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

COLUMN_KINDS: dict[str, int]
OPS: dict[str, int]
NO_ID: int

@final
class AvroMemory(Buffer): ...

@final
class Program:
    def __new__(cls, root: int, nodes: Sequence[tuple[Any, ...]]) -> Program: ...

@final
class Shape:
    def __new__(cls, columns: Sequence[tuple[int, int, Sequence[int]]]) -> Shape: ...
    def read(
        self,
        programs: Sequence[Program],
        edges: npt.NDArray[np.int32],
        data: npt.NDArray[np.uint8],
        valid: npt.NDArray[np.uint8] | None,
        valid_first: int,
        codes: npt.NDArray[np.int32] | None,
        heads: npt.NDArray[np.uint8] | None,
        stop: bool,
    ) -> tuple[
        list[tuple[int, int, Buffer | None, Buffer | None, Buffer | None, list[int]]],
        list[tuple[int, str | None, int, int, int]],
    ]: ...

def ids_of(edges: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]: ...
