"""Tables of fields."""

from __future__ import annotations

import pytest

from kts.protocol.fields import fields_of, versions_of


@pytest.mark.parametrize(("text", "found"), [("3", [3]), ("3-5", [3, 4, 5]), ("4+", [4, 5, 6])])
def test_versions_are_one_a_range_or_all_from_one_on(text: str, found: list[int]) -> None:
    assert list(versions_of(text, 6)) == found


def test_a_line_is_a_field_and_indented_lines_are_its_fields() -> None:
    name, inner, tagged = fields_of(
        """
    name      string  0+  null 1+  = null
    parts     []      1+
        ids   []int32 1+
    extra     int64   2+  = -1     tag 3
""",
        2,
    )
    assert (str(name), name.type, list(name.null), name.default, name.tag) == ("name", "string", [1, 2], None, None)
    assert (inner.type, inner.is_array, inner.default) == ("{}", True, [])
    assert [(field.name, field.type, field.is_array) for field in inner.fields] == [("ids", "int32", True)]
    assert (list(tagged.versions), tagged.default, tagged.tag) == ([2], -1, 3)


@pytest.mark.parametrize("text", ["name string 0+", "    name", "    name string 0+\n  less int8 0+"])
def test_a_line_that_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a field, found"):
        fields_of(text, 0)
