"""Many structs read at once, beside the reader of one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kts.errors import InvalidRequestError
from kts.protocol.fields import fields_of
from kts.protocol.reading import Cursor, struct_reader
from kts.protocol.vectors import read_numbers, read_structs, readable
from kts.protocol.writing import Output, struct_writer

FIELDS = fields_of(
    """
    small   int8   0+
    name    string 0+
    large   int64  0+
    later   int32  1+ = -1
    tagged  int16  1+ = 5 tag 0
""",
    1,
)


def test_only_numbers_and_strings_are_read_at_once() -> None:
    assert readable(FIELDS, 0)
    for text in ("    a []int32 0", "    a bytes 0", "    a {} 0\n        b int8 0", "    a uuid 0"):
        fields = fields_of(text, 1)
        assert not readable(fields, 0)
        assert readable(fields, 1)


@pytest.mark.parametrize("version", [0, 1])
def test_rows_are_what_the_reader_of_one_reads_or_are_left_to_it(version: int, rng: random.Random) -> None:
    write, flexible = struct_writer(FIELDS, version, version == 1), version == 1
    read = struct_reader(FIELDS, version, flexible)[0]
    data: list[bytes] = []
    for _ in range(300):
        output = Output()
        body = {
            "small": rng.randrange(-128, 128),
            "name": rng.choice(["", "a", "é" * rng.randrange(100)]),
            "large": rng.randrange(-(2**63), 2**63),
            "later": rng.randrange(9),
            "tagged": rng.choice([5, 6]),
        }
        write(output, body)
        one = b"##" + b"".join(output.flush())
        data.append(one[: rng.randrange(len(one))] if rng.random() < 0.3 else one)
        if rng.random() < 0.1:
            data[-1] = data[-1].replace(b"\xc3", b"\xff")
    column = pa.array([b"before", *data], pa.binary()).slice(1)
    found, fits = read_structs(FIELDS, version, flexible, column, 2)
    rows = pa.table(found).to_pylist()
    assert 50 < fits.sum() < 290
    for row, fit, one in zip(rows, fits, data, strict=True):
        if fit:
            assert row == read(Cursor(memoryview(one)[2:], 100))
        elif version == 0:  # every other row is refused; of flexible ones some are read one by one
            with pytest.raises(InvalidRequestError):
                read(Cursor(memoryview(one)[2:], 100))


@pytest.mark.parametrize("data", [[], [b""], [b"", b"\0"]])
def test_nothing_to_read_is_no_error(data: list[bytes]) -> None:
    numbers, whole = read_numbers(pa.array(data, pa.binary()), "int16", 0)
    assert numbers.tolist() == [0] * len(data)
    assert not whole.any()
