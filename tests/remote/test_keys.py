"""Data keys: wrapped by OAEP with SHA3-512, here by Java's own keys and by code of this test."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from support.tiered import session
from support.tiering import PEM, wrapped

from kts.errors import LogStorageError
from kts.remote.keys import data_key, opener
from kts.remote.manifests import read_manifest


def test_a_wrapped_key_is_unwrapped() -> None:
    for number in range(4):
        key = bytes([number]) * 32
        assert data_key("k", wrapped(key), {"k": PEM}) == key
    assert data_key("k", wrapped(bytes(32)), {"k": PEM.decode()}) == bytes(32)


@pytest.mark.parametrize(
    "made", [{"label": b"x"}, {"first": 1}, {"mark": 2}, {"message": bytes(31)}, {"message": bytes(33)}]
)
def test_another_padding_or_length_is_refused(made: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the private key k does not open the data key"):
        data_key("k", wrapped(**({"message": bytes(range(32))} | made)), {"k": PEM})  # type: ignore[arg-type]


def test_bytes_that_are_no_wrapped_key_are_refused() -> None:
    with pytest.raises(ValueError, match="wrapped in 256 bytes by key k, found 3 bytes"):
        data_key("k", b"abc", {"k": PEM})
    with pytest.raises(ValueError, match="found 256 bytes"):
        data_key("k", b"\xff" * 256, {"k": PEM})


def test_a_key_that_is_missing_or_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogStorageError, match="expected the private key k2 among private_keys, found k1"):
        data_key("k2", b"", {"k1": PEM})
    with pytest.raises(LogStorageError, match="expected PEM or the path of a PEM file, which cannot be read"):
        data_key("k", wrapped(bytes(32)), {"k": str(tmp_path / "none.pem")})
    with pytest.raises(LogStorageError, match="expected an RSA key in PEM without a password"):
        data_key("k", wrapped(bytes(32)), {"k": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"})


def test_the_keys_of_the_plugin_open_its_segments() -> None:
    one = session("aiven-zstd-encrypted")
    used = set()
    for path in sorted(one.store.rglob("*.rsm-manifest")):
        manifest = read_manifest(path.read_bytes(), str(path))
        assert manifest.encryption is not None
        key = data_key(manifest.encryption.key_id, manifest.encryption.wrapped, one.keys)
        assert len(key) == 32
        assert json.loads(path.read_text())["encryption"]["dataKey"].startswith(f"{manifest.encryption.key_id}:")
        used.add(manifest.encryption.key_id)
    assert used == {"k1", "k2"}


def test_changed_bytes_do_not_decrypt() -> None:
    key, aad = os.urandom(32), os.urandom(32)
    data = os.urandom(12)
    data += AESGCM(key).encrypt(data, b"hello", aad)
    assert opener(key, aad)(data) == b"hello"
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(ValueError, match="they were changed"):
            opener(key, aad)(bytes(changed))
    with pytest.raises(ValueError, match="expected at least 28 encrypted bytes, found 27"):
        opener(key, aad)(data[:27])
