"""Signatures are checked as RFC 8032 says: its own vectors, those of openssl, and each change of one refused.

A key is a point of the curve that a signer can have, and what is signed is an image and nothing else.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.runtimes import OwnRuntime
from agents.contract.signatures import KEY_PREFIX, KeyFault, is_signed, read_key, verifies
from tests.agents.admission.signing import SigningKey

ORDER = 2**252 + 27742317777372353535851937790883648493
PRIME = 2**255 - 19
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME
# RFC 8032, 7.1: key, message, signature.
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
]


def as_key(raw: bytes) -> str:
    return base64.b64encode(KEY_PREFIX + raw).decode()


def encoded(signature: bytes) -> str:
    return base64.b64encode(signature).decode()


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_the_vectors_of_the_standard_hold(key: str, message: str, signature: str) -> None:
    given = read_key(as_key(bytes.fromhex(key)))
    assert verifies(given, bytes.fromhex(message), bytes.fromhex(signature))
    assert not verifies(given, bytes.fromhex(message) + b"x", bytes.fromhex(signature))


@pytest.mark.slow
def test_each_change_of_a_signature_is_refused(tmp_path: Path) -> None:
    key = SigningKey(tmp_path)
    for number in range(8):
        image = f"registry.example.com/team/{number}"
        signature = key.sign_image(image)
        assert is_signed(image, signature, key.public)
        raw = bytearray(base64.b64decode(signature))
        raw[8 * number] ^= 1 << number
        assert not is_signed(image, encoded(bytes(raw)), key.public)


def test_a_signature_has_one_form_only(tmp_path: Path) -> None:
    """A second one with the order of the curve added would pass a check that leaves its size out."""
    key = SigningKey(tmp_path)
    raw = base64.b64decode(key.sign_image("image"))
    number = int.from_bytes(raw[32:], "little") + ORDER
    assert is_signed("image", encoded(raw), key.public)
    assert not is_signed("image", encoded(raw[:32] + number.to_bytes(32, "little")), key.public)


def test_a_signature_of_the_same_text_for_another_purpose_is_none_of_an_image(tmp_path: Path) -> None:
    key = SigningKey(tmp_path)
    assert not is_signed("image", key.sign("image"), key.public)
    assert not is_signed("image", key.sign("gpuwright-other-v1:image"), key.public)
    assert not is_signed("", key.sign_image("image"), key.public)


def double(x: int, y: int) -> tuple[int, int]:
    """Doubles a point of the curve -x^2 + y^2 = 1 + d x^2 y^2."""
    z = CURVE * x * x * y * y % PRIME
    return 2 * x * y * pow(1 + z, -1, PRIME) % PRIME, (y * y + x * x) * pow(1 - z, -1, PRIME) % PRIME


def find_small_points() -> set[tuple[int, int]]:
    """Finds the points of orders 1, 2, 4 and 8: multiples by the odd order of other points, as (0, 1) is by 8."""
    root = pow(2, (PRIME - 1) // 4, PRIME)  # of -1
    inner = pow(1 + CURVE, (PRIME + 3) // 8, PRIME)
    inner = inner if inner * inner % PRIME == (1 + CURVE) % PRIME else inner * root % PRIME
    found = {(0, 1), (0, PRIME - 1), (root, 0), (PRIME - root, 0)}
    for sign in (1, -1):  # of order 8: x^2 = -y^2, and so d y^4 + 2 y^2 = 1
        square = (sign * inner - 1) * pow(CURVE, -1, PRIME) % PRIME
        y = pow(square, (PRIME + 3) // 8, PRIME)
        y = y if y * y % PRIME == square else y * root % PRIME
        if y * y % PRIME == square:
            found |= {(a * y * root % PRIME, b * y % PRIME) for a in (1, -1) for b in (1, -1)}
    return found


def test_the_eight_points_of_small_order_are_no_keys() -> None:
    points = find_small_points()
    assert len(points) == 8
    for x, y in points:
        assert double(*double(*double(x, y))) == (0, 1), "eight times it is nothing"
        encoding = (y | (x % 2) << 255).to_bytes(32, "little")
        with pytest.raises(KeyFault, match="small order"):
            read_key(as_key(encoding))


def test_with_a_key_of_small_order_anyone_signs() -> None:
    """That is why no such key is read: the nothing of the curve, 0, 1, verifies a signature without any secret."""
    nothing = bytes([1]) + bytes(31)
    assert verifies(nothing, b"whatever", nothing + bytes(32))
    assert not is_signed("whatever", encoded(nothing + bytes(32)), as_key(nothing))


@pytest.mark.parametrize("y", [2**255 - 19, 2**255 - 1, 2**255 - 18])
def test_a_key_has_one_form_only(y: int) -> None:
    with pytest.raises(KeyFault, match="not a point"):
        read_key(as_key(y.to_bytes(32, "little")))


@pytest.mark.parametrize("signature", ["", "?", "AAAA", "A" * 86 + "==", "\u00e4", "\ud800"])
@pytest.mark.parametrize(
    "key", ["", "?", "AAAA", as_key(b"\x02" + bytes(31)), as_key(bytes([1]) + bytes(31)), "\u00e4"]
)
def test_what_is_no_key_and_no_signature_signs_nothing(signature: str, key: str) -> None:
    assert not is_signed("registry.example.com/team/app", signature, key)


def test_a_node_that_reports_an_entry_of_nothing_admits_nothing() -> None:
    """Such an entry comes from a node that lies; the control plane reads it and goes on."""
    refused = find_not_admitted([AdmittedEntry("x")], OwnRuntime(command=("/bin/true",)))
    assert [fault.field for fault in refused] == ["command"]
