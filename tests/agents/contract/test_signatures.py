"""Signatures are checked as RFC 8032 says: its own vectors, those of openssl, and each change of one refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from agents.contract.admitted import AdmittedEntry, find_not_admitted
from agents.contract.runtimes import OwnRuntime
from agents.contract.signatures import KEY_PREFIX, is_signed
from tests.agents.admission.signing import SigningKey

ORDER = 2**252 + 27742317777372353535851937790883648493
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
    text = bytes.fromhex(message).decode()
    assert is_signed(text, encoded(bytes.fromhex(signature)), as_key(bytes.fromhex(key)))
    assert not is_signed(text + "x", encoded(bytes.fromhex(signature)), as_key(bytes.fromhex(key)))


@pytest.mark.slow
def test_each_change_of_a_signature_is_refused(tmp_path: Path) -> None:
    key = SigningKey(tmp_path)
    for number in range(8):
        image = f"registry.example.com/team/{number}"
        signature = key.sign(image)
        assert is_signed(image, signature, key.public)
        raw = bytearray(base64.b64decode(signature))
        raw[8 * number] ^= 1 << number
        assert not is_signed(image, encoded(bytes(raw)), key.public)


def test_a_signature_has_one_form_only(tmp_path: Path) -> None:
    """A second one with the order of the curve added would pass a check that leaves its size out."""
    key = SigningKey(tmp_path)
    raw = base64.b64decode(key.sign("image"))
    number = int.from_bytes(raw[32:], "little") + ORDER
    assert not is_signed("image", encoded(raw[:32] + number.to_bytes(32, "little")), key.public)


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
