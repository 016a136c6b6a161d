"""Checks that an image is signed with a key: Ed25519 (RFC 8032), as `openssl pkeyutl -sign -rawin` writes it.

All values in these computations are public, so time and memory may reveal them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from functools import lru_cache

KEY_PREFIX = bytes.fromhex("302a300506032b6570032100")  # begins an Ed25519 key as `openssl pkey -pubout` prints it
SIGNATURE_BYTES = 64
_POINT_BYTES = 32
_PRIME = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the base point
_CURVE = -121665 * pow(121666, -1, _PRIME) % _PRIME
_ROOT_OF_MINUS_ONE = pow(2, (_PRIME - 1) // 4, _PRIME)

# A point as X, Y, Z and T with x = X/Z, y = Y/Z and xy = T/Z.
_Point = tuple[int, int, int, int]


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
    if _point(key) is None:
        raise KeyFault("not a point of Ed25519's curve")
    return key


@lru_cache(maxsize=4096)  # each check takes milliseconds, and the planner asks of each node in each cycle
def is_signed(image: str, signature: str, key: str) -> bool:
    """Returns whether the signature, as base64, is the key's on exactly this reference of an image."""
    try:
        return _verifies(read_key(key), image.encode(), base64.b64decode(signature, validate=True))
    except (KeyFault, binascii.Error, ValueError):
        return False


def _verifies(key: bytes, message: bytes, signature: bytes) -> bool:
    """Compares S B - k A with R as bytes: any other encoding of R is refused."""
    own = _point(key)
    if own is None or len(signature) != SIGNATURE_BYTES:
        return False
    start, number = signature[:_POINT_BYTES], int.from_bytes(signature[_POINT_BYTES:], "little")
    if number >= _ORDER:
        return False
    digest = int.from_bytes(hashlib.sha512(start + key + message).digest(), "little") % _ORDER
    x, y, z, t = own
    found = _sum(_times(number, _BASE), _times(digest, (-x % _PRIME, y, z, -t % _PRIME)))
    return _encoded(found) == start


def _point(encoded: bytes) -> _Point | None:
    """Returns the point with this y and this sign of x; None where the curve has none."""
    packed = int.from_bytes(encoded, "little")
    y, sign = packed & (2**255 - 1), packed >> 255
    if y >= _PRIME:
        return None
    square = (y * y - 1) * pow(_CURVE * y * y + 1, -1, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * _ROOT_OF_MINUS_ONE % _PRIME
    if (x * x - square) % _PRIME or (x == 0 and sign):
        return None
    x = x if x % 2 == sign else _PRIME - x
    return x, y, 1, x * y % _PRIME


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _PRIME)
    x, y = point[0] * inverse % _PRIME, point[1] * inverse % _PRIME
    return (y | (x % 2) << 255).to_bytes(_POINT_BYTES, "little")


def _sum(left: _Point, right: _Point) -> _Point:
    """Adds two points, which may be equal (RFC 8032, 5.1.4)."""
    a = (left[1] - left[0]) * (right[1] - right[0]) % _PRIME
    b = (left[1] + left[0]) * (right[1] + right[0]) % _PRIME
    c = 2 * _CURVE * left[3] * right[3] % _PRIME
    d = 2 * left[2] * right[2] % _PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            total = _sum(total, point)
        point, factor = _sum(point, point), factor >> 1
    return total


def _base() -> _Point:
    y = 4 * pow(5, -1, _PRIME) % _PRIME
    found = _point(y.to_bytes(_POINT_BYTES, "little"))
    assert found is not None
    return found


_BASE = _base()
