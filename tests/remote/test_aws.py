"""The server and the region of S3, as AWS's own library for Python reads them from the same environment and files."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

import kts
from kts.remote import aws

AMAZON = "https://s3.eu-west-3.amazonaws.com"
PLAIN = "[profile local]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:9001\n"
SERVICES = (
    "[profile local]\nregion = eu-west-3\nservices = mine\nendpoint_url = http://127.0.0.1:9001\n"
    "[services  mine]\ndynamodb =\n  endpoint_url = http://127.0.0.1:9009\ns3 =\n  max_attempts = 3\n"
    "  endpoint_url = http://127.0.0.1:9002\n"
)
ONLY_OTHERS = SERVICES.replace("s3 =", "s3control =")
DEFAULT = "[default]\nregion = eu-west-3\nendpoint_url = http://127.0.0.1:9003\n"
IGNORED = PLAIN + "ignore_configured_endpoint_urls = true\n"
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("", {"AWS_DEFAULT_REGION": "eu-west-3"}),
    "a profile": (PLAIN, {"AWS_PROFILE": "local"}),
    "another profile": (PLAIN + "[profile other]\nregion = eu-west-3\n", {"AWS_PROFILE": "other"}),
    "the default profile": (DEFAULT, {}),
    "a profile beside the default one": (DEFAULT + PLAIN, {"AWS_PROFILE": "local"}),
    "its services": (SERVICES, {"AWS_PROFILE": "local"}),
    "services without S3": (ONLY_OTHERS, {"AWS_PROFILE": "local"}),
    "the environment": (SERVICES, {"AWS_PROFILE": "local", "AWS_ENDPOINT_URL": "http://127.0.0.1:9004"}),
    "the environment for S3": (
        SERVICES,
        {
            "AWS_PROFILE": "local",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9004",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9005",
        },
    ),
    "ignored by the profile": (IGNORED, {"AWS_PROFILE": "local"}),
    "ignored by the environment": (
        SERVICES,
        {
            "AWS_PROFILE": "local",
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9004",
        },
    ),
    "the region of the environment": (PLAIN, {"AWS_PROFILE": "local", "AWS_DEFAULT_REGION": "us-west-2"}),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_server_and_the_region_are_those_of_aws_own_library(
    home: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    text, environment = CASES[case]
    (home / "config").write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b")
    asked = session.client("s3").meta.endpoint_url
    assert aws.s3_endpoint() == (None if asked == AMAZON else asked)
    assert aws.region() == session.region_name


def test_aws_region_goes_before_aws_default_region(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWS's command has it; its library for Python knows only the latter."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert aws.region() == "eu-west-3"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert aws.region() == "us-west-2"


@pytest.mark.parametrize("data", [b"region = eu-west-3\n", b"[default\n", b"\xff\xfe[default]\n"])
def test_a_configuration_file_that_is_none_is_an_error_with_its_name(home: Path, data: bytes) -> None:
    (home / "config").write_bytes(data)
    with pytest.raises(kts.LogStorageError, match=r"expected AWS's configuration .*found something else, in .*config"):
        aws.region()


def test_an_unknown_storage_option_is_refused_before_amazon_is_asked(home: Path) -> None:
    """Without a region Amazon would be asked for it, which fails otherwise where there is no network."""
    with pytest.raises(ValueError, match=r"storage_options: .*'acess_key'.* expected time_limit or arguments of pyarr"):
        kts.open("s3://no-such-bucket/logs", storage_options={"acess_key": "a", "secret_key": "b", "time_limit": 60})
