"""Errors: Kafka's codes, what they tell, and what is left of them in another process."""

from __future__ import annotations

import pickle

import pytest

import kts
from kts import errors
from kts.broker.codes import ErrorCode


def test_every_code_of_an_error_is_one_of_kafkas() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, kts.KtsError)]
    names = {one.__name__: ErrorCode(one.code).name for one in classes if one.code != -1}
    assert names["CorruptRecordError"] == "CORRUPT_MESSAGE"
    assert len(names) == len(set(names.values())) + 1  # DecompressionLimitError is damage too


def test_an_error_tells_the_record_and_survives_pickling() -> None:
    data = bytearray(kts.encode({"value": [b"a", b"b", b"c"]}))
    third = data.rindex(b"c")
    data[third - 1] = 0x7E  # its value's length
    with pytest.raises(kts.CorruptRecordError, match="record 2 of 3: value length 63 exceeds the 2 bytes left") as e:
        kts.decode(data, verify_crc=False)
    assert (e.value.code, e.value.position, e.value.offset, e.value.record_index) == (2, 0, 0, 2)
    copy = pickle.loads(pickle.dumps(e.value))
    assert (str(copy), copy.position, copy.record_index) == (str(e.value), 0, 2)


ERRORS = [name for name in errors.__all__ if issubclass(getattr(errors, name), kts.KtsError)]


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_comes_out_of_another_process_as_it_went_in(name: str) -> None:
    error = getattr(errors, name)("what was found", path="00.log", position=3, offset=9, record_index=1, errno=28)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error) == "what was found, at position 3 of 00.log"
    assert vars(copy) == vars(error)
    assert copy.code == error.code
    assert isinstance(copy, kts.KtsError)


def test_every_error_is_a_public_name() -> None:
    assert len(ERRORS) > 20
    assert [name for name in errors.__all__ if name not in kts.__all__] == []
