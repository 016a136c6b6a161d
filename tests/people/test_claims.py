"""No ID token is believed that its provider has not signed, just now, for this client and this sign-in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from app.people.claims import ClaimRefused, Expected, KeyUnknown, check_token, describe, read_keys

NOW = 1_800_000_000.0
ISSUER, CLIENT, NONCE = "https://id.example.com", "console", "a-nonce"
EXPECTED = Expected(ISSUER, CLIENT, NONCE, NOW)
OURS = ECKey.generate_key("P-256", {"kid": "ours", "use": "sig", "alg": "ES256"})
OTHER = ECKey.generate_key("P-256", {"kid": "ours", "use": "sig", "alg": "ES256"})
PUBLISHED = {"keys": [OURS.as_dict(private=False)]}
KEYS = read_keys(PUBLISHED)
GOOD: dict[str, Any] = {
    "iss": ISSUER, "aud": CLIENT, "sub": "anna", "nonce": NONCE, "iat": NOW - 5, "exp": NOW + 300, "groups": ["staff"],
}  # fmt: skip


def sign(claims: dict[str, Any], key: ECKey = OURS, **header: str) -> str:
    return jwt.encode({"alg": "ES256", "kid": "ours", **header}, claims, key)


def pack(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_what_the_provider_has_signed_is_believed() -> None:
    person = describe(check_token(sign(GOOD), KEYS, EXPECTED), "groups", "a.b.c")
    assert (person.subject, person.name, person.groups) == ("anna", "anna", ("staff",))
    several = {**GOOD, "aud": ["another", CLIENT], "azp": CLIENT, "email": "anna@example.com\n\x1b[31m", "groups": "x"}
    person = describe(check_token(sign(several), KEYS, EXPECTED), "groups", "a.b.c")
    assert (person.name, person.groups) == ("anna@example.com??[31m", ("x",))
    assert describe({**GOOD, "roles": [1, None, "a"]}, "roles", "").groups == ("a",)
    assert describe(GOOD, "roles", "").groups == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"iss": "https://id.example.com/"}, "another issuer"),
        ({"aud": "another"}, "another client"),
        ({"aud": []}, "another client"),
        ({"aud": None}, "another client"),
        ({"aud": [CLIENT, "another"]}, "another client"),  # and no azp
        ({"azp": "another"}, "another client"),
        ({"exp": NOW - 61}, "expired"),
        ({"exp": "never"}, "when it ends"),
        ({"exp": True}, "when it ends"),
        ({"iat": NOW - 601}, "just now"),
        ({"iat": NOW + 61}, "just now"),
        ({"iat": float("nan")}, "when it was made"),
        ({"exp": float("nan")}, "when it ends"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"nbf": "soon"}, "not valid yet"),
        ({"nonce": "another"}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"sub": ""}, "whose"),
        ({"sub": 7}, "whose"),
        ({"sub": "ännä"}, "whose"),
        ({"sub": "x" * 256}, "whose"),
    ],
)
def test_a_claim_that_does_not_fit_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ClaimRefused, match=said):
        check_token(sign({**GOOD, **changed}), KEYS, EXPECTED)


def test_a_name_that_the_provider_has_not_verified_is_not_shown_and_a_mark_is_of_what_was_signed() -> None:
    claims = {**GOOD, "email": "boss@example.com", "email_verified": False, "preferred_username": "anna"}
    assert describe(claims, "groups", "").name == "anna"
    assert describe(GOOD, "groups", "h.p.s").mark == describe(GOOD, "groups", "h.p.t").mark
    assert describe(GOOD, "groups", "h.p.s").mark != describe(GOOD, "groups", "h.q.s").mark


@pytest.mark.parametrize("missing", ["iss", "aud", "sub", "nonce", "iat", "exp"])
def test_a_claim_that_is_missing_is_refused(missing: str) -> None:
    with pytest.raises(ClaimRefused):
        check_token(sign({name: value for name, value in GOOD.items() if name != missing}), KEYS, EXPECTED)


def test_only_the_providers_own_signature_counts() -> None:
    head, claims, signature = sign(GOOD).split(".")
    secret = json.dumps(PUBLISHED["keys"][0]).encode()  # what everybody can read, taken for a shared secret
    bare = f"{pack({'alg': 'HS256', 'kid': 'ours'})}.{claims}"
    digest = hmac.digest(secret, bare.encode(), hashlib.sha256)
    forged = {
        "of another key": sign(GOOD, OTHER),
        "without one": f"{pack({'alg': 'none'})}.{claims}.",
        "called none": f"{pack({'alg': 'None', 'kid': 'ours'})}.{claims}.{signature}",
        "by the public key": f"{bare}.{base64.urlsafe_b64encode(digest).decode()}",
        "of other claims": f"{head}.{pack({**GOOD, 'sub': 'bert'})}.{signature}",
        "cut": f"{head}.{claims}.{signature[:-4]}",
        "twice": f"{head}.{claims}.{signature}.{signature}",
        "none": "",
        "long": "x" * 100_000,
    }
    for how, token in forged.items():
        with pytest.raises(ClaimRefused):
            check_token(token, KEYS, EXPECTED)
            raise AssertionError(how)
    with pytest.raises(KeyUnknown):
        check_token(sign(GOOD, kid="newer"), KEYS, EXPECTED)


def test_a_key_inside_the_token_is_not_a_providers() -> None:
    token = jwt.encode({"alg": "ES256", "jwk": OTHER.as_dict(private=False)}, GOOD, OTHER)
    with pytest.raises(ClaimRefused):
        check_token(token, KEYS, EXPECTED)


@settings(max_examples=25)
@given(text=st.text(max_size=200) | st.tuples(st.text(), st.text(), st.text()).map(".".join))
def test_any_text_is_refused_and_none_breaks_it(text: str) -> None:
    with pytest.raises(ClaimRefused):
        check_token(text, KEYS, EXPECTED)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"keys": None},
        {"keys": []},
        {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]},
        {"keys": [{"kty": "EC"}]},
        {"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]},
        {"keys": [{**OURS.as_dict(private=False), "use": "enc"}]},
        {"keys": ["a", 7]},
    ],
)
def test_keys_that_verify_no_signature_are_no_keys(document: dict[str, object]) -> None:
    with pytest.raises(ClaimRefused):
        read_keys(document)


def test_keys_of_other_kinds_beside_ours_do_no_harm() -> None:
    mixed = {"keys": [{"kty": "oct", "k": "c2VjcmV0"}, {"kty": "new"}, *PUBLISHED["keys"]]}
    assert isinstance(read_keys(mixed), KeySet)
    assert check_token(sign(GOOD), read_keys(mixed), EXPECTED)["sub"] == "anna"
