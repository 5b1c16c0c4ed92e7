"""What a file is for those who read it."""

from __future__ import annotations

from kts.store.protocol import BytesFile, cut_at


def test_a_file_that_is_cut_ends_there_for_each_way_to_read_it() -> None:
    whole = BytesFile("a", b"0123456789")
    assert cut_at(None, whole) is whole
    for end in (0, 4, 10, 20):
        with cut_at(end, whole) as file:
            assert file.size() == min(end, 10)
            for position in (0, 3, 4, 12):
                buffer = bytearray(5)
                expected = b"0123456789"[:end][position : position + 5]
                assert file.read(position, 5) == expected == buffer[: file.read_into(memoryview(buffer), position)]
