"""Keys of encrypted segments: RSA pairs wrap a data key for each segment, and that encrypts with AES-256-GCM.

The wrapping is OAEP with SHA3-512 for the label and for MGF1, which OpenSSL and the package ``cryptography`` do not
offer: it is removed here (RFC 8017, section 7.1.2).

Source: RsaEncryptionProvider, AesEncryptionProvider (Aiven).
"""

from __future__ import annotations

import errno
import hashlib
import hmac
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kts.errors import LogStorageError
from kts.store.source import source_of

Key = str | bytes  # a path, or PEM
PrivateKeys = Mapping[str, Key]
IV_BYTES, TAG_BYTES, DATA_KEY_BYTES = 12, 16, 32
OVERHEAD_BYTES = IV_BYTES + TAG_BYTES
INSTALL = "pip install 'kafka-timestamps[tiered]'"
_HASH = hashlib.sha3_512
_HASH_BYTES = 64


class _Rsa(NamedTuple):
    """A private key: modulus, primes, and the exponents for each."""

    n: int
    p: int
    q: int
    dp: int
    dq: int
    q_inverse: int

    def decrypted(self, number: int) -> int:
        m1, m2 = pow(number, self.dp, self.p), pow(number, self.dq, self.q)
        return m2 + (self.q_inverse * (m1 - m2) % self.p) * self.q


def data_key(key_id: str, wrapped: bytes, keys: PrivateKeys) -> bytes:
    """The data key of a segment.

    Raises
    ------
    LogStorageError
        No private key is given for it, or that cannot be read.
    ValueError
        The private key does not open it.
    """
    if key_id not in keys:
        known = f", found {', '.join(sorted(keys))}" if keys else ""
        message = f"the segment is encrypted: expected the private key {key_id} among private_keys{known}"
        raise LogStorageError(message, errno=errno.EACCES)
    return _unwrapped(key_id, wrapped, _pem(key_id, keys[key_id]))


def _pem(key_id: str, key: Key) -> bytes:
    data = key.encode() if isinstance(key, str) else bytes(key)
    if b"-----BEGIN" in data:
        return data
    try:
        path = key if isinstance(key, str) else key.decode()
        source = source_of(path)
        return source.read_bytes(path)
    except (LogStorageError, UnicodeDecodeError, ValueError) as error:
        message = f"private key {key_id}: expected PEM or the path of a PEM file, which cannot be read: {error}"
        raise LogStorageError(message, errno=getattr(error, "errno", None) or errno.EINVAL) from error


@lru_cache(maxsize=1024)
def _unwrapped(key_id: str, wrapped: bytes, pem: bytes) -> bytes:
    rsa = _rsa(key_id, pem)
    size = (rsa.n.bit_length() + 7) // 8
    number = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or number >= rsa.n:
        raise ValueError(f"expected a data key wrapped in {size} bytes by key {key_id}, found {len(wrapped)} bytes")
    found = _without_padding(rsa.decrypted(number).to_bytes(size, "big"))
    if found is None or len(found) != DATA_KEY_BYTES:
        raise ValueError(f"the private key {key_id} does not open the data key")
    return found


@lru_cache(maxsize=64)
def _rsa(key_id: str, pem: bytes) -> _Rsa:
    serialization = _library("hazmat.primitives.serialization")
    try:
        numbers = serialization.load_pem_private_key(pem, None).private_numbers()
        public = numbers.public_numbers
        return _Rsa(public.n, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp)
    except (ValueError, TypeError, AttributeError) as error:
        message = f"private key {key_id}: expected an RSA key in PEM without a password, found none: {error}"
        raise LogStorageError(message, errno=errno.EINVAL) from error


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"cryptography.{name}")
    except ImportError as error:
        message = f"encrypted segments need the package cryptography: {INSTALL}"
        raise LogStorageError(message, errno=errno.ENOSYS) from error


def _mask(seed: bytes, count: int) -> int:
    """MGF1, as a number to xor with."""
    blocks = (_HASH(seed + number.to_bytes(4, "big")).digest() for number in range(-(-count // _HASH_BYTES)))
    return int.from_bytes(b"".join(blocks)[:count], "big")


def _xored(data: bytes, mask: int) -> bytes:
    return (int.from_bytes(data, "big") ^ mask).to_bytes(len(data), "big")


def _without_padding(block: bytes) -> bytes | None:
    """The message in a block of OAEP; None if the padding is wrong, whatever is wrong with it."""
    masked_seed, masked = block[1 : 1 + _HASH_BYTES], block[1 + _HASH_BYTES :]
    if len(masked) <= _HASH_BYTES:
        return None
    seed = _xored(masked_seed, _mask(masked, _HASH_BYTES))
    inner = _xored(masked, _mask(seed, len(masked)))
    label, rest = inner[:_HASH_BYTES], inner[_HASH_BYTES:]
    message = rest.lstrip(b"\0")
    sound = hmac.compare_digest(label, _HASH(b"").digest()) & (block[0] == 0) & (message[:1] == b"\1")
    return message[1:] if sound else None


def opener(key: bytes, aad: bytes) -> Callable[[bytes], bytes]:
    """A function that decrypts what was encrypted with a data key: IV, ciphertext, tag.

    The function raises ValueError for bytes that were changed.
    """
    aead = _library("hazmat.primitives.ciphers.aead")
    invalid: type[Exception] = _library("exceptions").InvalidTag
    cipher = aead.AESGCM(key)

    def opened(data: bytes) -> bytes:
        if len(data) < OVERHEAD_BYTES:
            raise ValueError(f"expected at least {OVERHEAD_BYTES} encrypted bytes, found {len(data)}")
        try:
            found: bytes = cipher.decrypt(data[:IV_BYTES], data[IV_BYTES:], aad)
        except invalid as error:
            raise ValueError("the encrypted bytes do not have their authentication tag: they were changed") from error
        return found

    return opened
