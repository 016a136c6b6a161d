"""Checks that an image is signed with a key: Ed25519 (RFC 8032), as `openssl pkeyutl -sign -rawin` writes it."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache

DOMAIN = "gpuwright-image-v1:"  # begins the signed text, so that a signature of anything else is none of an image
KEY_PREFIX = bytes.fromhex("302a300506032b6570032100")  # begins an Ed25519 key as `openssl pkey -pubout` prints it
_POINT_BYTES = 32
_PRIME = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _PRIME) % _PRIME


class KeyFault(ValueError):
    """A key that cannot be used; the message says why."""


def read_key(text: str) -> bytes:
    """Returns the key in the line between BEGIN and END PUBLIC KEY; raises KeyFault."""
    try:
        encoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise KeyFault(f"not base64: {error}") from error
    key = encoded.removeprefix(KEY_PREFIX)
    if len(key) != _POINT_BYTES or len(encoded) != _POINT_BYTES + len(KEY_PREFIX):
        raise KeyFault("not an Ed25519 public key; `openssl pkey -in KEY.pem -pubout` prints one between BEGIN and END")
    y = int.from_bytes(key, "little") & (2**255 - 1)  # the highest bit is the sign of x
    square = (y * y - 1) * pow(_CURVE * y * y + 1, -1, _PRIME) % _PRIME  # of x
    if y >= _PRIME or pow(square, (_PRIME - 1) // 2, _PRIME) == _PRIME - 1:
        raise KeyFault("not a point of Ed25519's curve")
    # Orders 4, 1 and 2, and 8: the last are the roots in y of the points whose double has order 4.
    if y * (y * y - 1) * (_CURVE * y**4 + 2 * y * y - 1) % _PRIME == 0:
        raise KeyFault("a point of small order: such a key signs texts that nobody has signed")
    return key


@lru_cache(maxsize=4096)  # the planner asks of each node in each cycle
def is_signed(image: str, signature: str, key: str) -> bool:
    """Returns whether the signature, as base64, is the key's on exactly this reference of an image."""
    try:
        return verifies(read_key(key), (DOMAIN + image).encode(), base64.b64decode(signature, validate=True))
    except (KeyFault, binascii.Error, ValueError):
        return False


def verifies(key: bytes, message: bytes, signature: bytes) -> bool:
    """Returns whether the signature is the key's on the message."""
    from cryptography.exceptions import InvalidSignature  # loaded only where images are admitted by a signature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True
