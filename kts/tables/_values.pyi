from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

KINDS: dict[str, int]
TAKES: dict[str, int]
WHY: tuple[str, ...]

@final
class JsonPlan:
    def __new__(cls, nodes: Sequence[tuple[int, int, Sequence[tuple[int, bytes, bool]]]]) -> JsonPlan: ...
    def read(
        self, edges: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]
    ) -> tuple[list[tuple[int, bytes, bytes, bytes]], list[tuple[int, str, int, int]]]: ...
