from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

KINDS: dict[str, int]
TAKES: dict[str, int]
WHY: tuple[str, ...]
AVRO_KINDS: dict[str, int]

@final
class JsonPlan:
    def __new__(cls, nodes: Sequence[tuple[int, int, Sequence[tuple[int, bytes, bool]]]]) -> JsonPlan: ...
    def read(
        self, edges: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]
    ) -> tuple[list[tuple[int, bytes, bytes, bytes]], list[tuple[int, str, int, int]]]: ...

@final
class AvroPlan:
    def __new__(cls, nodes: Sequence[tuple[int, int, Sequence[int]]]) -> AvroPlan: ...
    def refusal(self, value: Buffer) -> str | None: ...
