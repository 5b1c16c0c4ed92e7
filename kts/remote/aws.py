"""The server and the region of S3 that the environment and ``~/.aws/config`` name, by the rules of AWS's SDKs."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping

from kts.errors import LogStorageError
from kts.store.source import files


def s3_endpoint() -> str | None:
    """The server of S3; None is Amazon's. Arrow takes it from options alone.

    Notes
    -----
    The first that is there: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's ``services`` section, the profile's
    ``endpoint_url``. AWS_IGNORE_CONFIGURED_ENDPOINT_URLS, or ``ignore_configured_endpoint_urls`` of the profile,
    leaves all of them out. Source: "Service-specific endpoints" of the AWS SDKs and Tools Reference Guide.
    """
    if _is_true(os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")):
        return None
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if named:
        return named
    sections = _sections()
    profile = _profile(sections)
    if _is_true(profile.get("ignore_configured_endpoint_urls")):
        return None
    services = sections.get(f"services {profile['services']}", {}) if profile.get("services") else {}
    return _nested(services.get("s3", "")).get("endpoint_url") or profile.get("endpoint_url") or None


def region() -> str | None:
    """The region: AWS_REGION, AWS_DEFAULT_REGION, or the profile's; None if nothing says it."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or _profile(_sections()).get("region") or None


def _config_file() -> str:
    return os.path.expanduser(os.environ.get("AWS_CONFIG_FILE") or os.path.join("~", ".aws", "config"))


def _sections() -> dict[str, Mapping[str, str]]:
    """The sections of the configuration file by their names, with single spaces."""
    path = _config_file()
    data = files.read_if_there(path)
    parser = configparser.RawConfigParser(default_section="", strict=False, allow_no_value=True)
    try:
        parser.read_string("" if data is None else data.decode())
    except (configparser.Error, UnicodeDecodeError) as error:
        message = "expected AWS's configuration (AWS_CONFIG_FILE), sections of NAME = VALUE, found something else"
        raise LogStorageError(message, path=path) from error
    return {" ".join(name.split()): _given(parser[name]) for name in parser.sections()}


def _given(section: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value or "" for name, value in section.items()}


def _profile(sections: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """What the profile of AWS_PROFILE says, else the default one."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    found = sections.get(f"profile {name}")
    return found if found is not None else sections.get(name, {}) if name == "default" else {}


def _nested(text: str) -> dict[str, str]:
    """The settings below a setting: indented lines of ``name = value``."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def _is_true(word: str | None) -> bool:
    return (word or "").strip().lower() == "true"
