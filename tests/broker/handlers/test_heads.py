"""The head of each handler's file: the API, its key and its versions are those of the wire's tables."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import NamedTuple

import pytest
from support import ROOT

from kts.broker.handlers import HANDLERS, module_of
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.broker.wire.releases import offered

FOLDER = ROOT / "kts/broker/handlers"
FIRST = re.compile(
    r"(?P<name>\w+) \(key (?P<key>\d+)\), versions? (?P<low>\d+)(?: to (?P<high>\d+))?"
    r"(?:; a broker of 0\.10\.2 (?:lists (?P<old>0 to \d+)|does not (?P<none>list) it))?\."
)
NOTES = re.compile(r"^    (?P<versions>\d+(?:, \d+)*): \S", re.MULTILINE)


class Head(NamedTuple):
    """What a file says of its API."""

    name: str
    key: int
    versions: range
    of_0_10_2: range  # that such a broker lists
    notes: list[int]  # the versions that have a note, in order of their lines
    text: str


def head(api: ApiKey) -> Head:
    path = FOLDER / f"{module_of(api).rpartition('.')[2]}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = FIRST.fullmatch(text.split("\n", 1)[0])
    assert found is not None, f"{path.name}: expected a head such as 'Fetch (key 1), versions 0 to 18.'"
    versions = range(int(found["low"]), int(found["high"] or found["low"]) + 1)
    old = range(0) if found["none"] else range(int(found["old"].split()[-1]) + 1) if found["old"] else versions
    notes = [int(one) for line in NOTES.finditer(text) for one in line["versions"].split(", ")]
    return Head(found["name"], int(found["key"]), versions, old, notes, text)


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_a_head_has_the_key_and_versions_of_the_tables(api: ApiKey) -> None:
    found = head(api)
    assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found.name).upper() == api.name
    assert (found.key, found.versions) == (api, MESSAGES[api].versions)
    assert re.search(r"^Source: \w", found.text, re.MULTILINE)


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_every_version_after_the_first_has_one_note(api: ApiKey) -> None:
    found = head(api)
    assert sorted(set(found.notes) | {0}) == list(found.versions)
    assert len(set(found.notes)) == len(found.notes)


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_the_first_flexible_version_is_named(api: ApiKey) -> None:
    flexible = MESSAGES[api].flexible
    named = {
        int(one)
        for line in re.findall(r"^    (\d+(?:, \d+)*): flexible", head(api).text, re.MULTILINE)
        for one in line.split(", ")
    }
    assert named == ({flexible[0]} if len(flexible) and flexible[0] else set())


def test_a_head_says_what_a_broker_of_0_10_2_lists() -> None:
    listed = {key: one.versions for key, one in offered("0.10.2").items()}
    assert {api: head(api).of_0_10_2 for api in ApiKey} == {api: listed.get(api, range(0)) for api in ApiKey}


def test_each_api_has_one_file_and_its_handler() -> None:
    files = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    assert files == [module_of(api).rpartition(".")[2] for api in ApiKey]
    assert all(here < there for here, there in pairwise(ApiKey))  # so a listing of the folder has Kafka's order
    assert {api: handler.__module__ for api, handler in HANDLERS.items()} == {api: module_of(api) for api in ApiKey}
