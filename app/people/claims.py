"""What a provider says of a person: an ID token, checked by its signature and its claims.

Nothing of it is believed before the signature holds, and only public-key signatures do: with a shared secret everybody
who knows a client's would be the provider.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEY_TYPES = ("RSA", "EC", "OKP")
LONGEST = 64 * 1024
SKEW_SECONDS = 60.0  # between the provider's clock and ours
FRESH_SECONDS = 600.0  # an ID token is for signing in at once, not for later
LONGEST_NAME = 80

Claims = Mapping[str, object]


class ClaimRefused(Exception):
    """The provider's answer is not believed; the message says why and repeats no secret."""


class KeyUnknown(ClaimRefused):
    """The token is signed with a key that is not among those read: perhaps a newer one."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom the provider knows."""

    issuer: str
    subject: str  # their name at the provider, which never changes
    name: str  # as people call them
    groups: Sequence[str]
    mark: bytes  # of what the provider signed: the same for the same ID token, however its signature is spelt


@dataclass(frozen=True, slots=True)
class Expected:
    """What an ID token must say."""

    issuer: str
    client: str
    nonce: str  # empty where none was sent
    now: float


def read_keys(document: Mapping[str, object]) -> KeySet:
    """Returns the public keys of a provider that verify signatures."""
    listed = document.get("keys")
    keys = [key for key in listed if isinstance(key, dict) and _signs(key)] if isinstance(listed, list) else []
    if not keys:
        raise ClaimRefused("the provider names no key of the kinds RSA, EC or OKP")
    try:
        return KeySet.import_key_set({"keys": keys})
    except (JoseError, ValueError, TypeError) as error:
        raise ClaimRefused(f"the provider's keys cannot be read: {type(error).__name__}") from None


def check_token(text: str, keys: KeySet, expected: Expected) -> Claims:
    """Returns the claims of an ID token whose signature and claims hold."""
    if len(text) > LONGEST:
        raise ClaimRefused(f"the ID token is longer than {LONGEST} bytes")
    try:
        claims = jwt.decode(text, keys, algorithms=ALGORITHMS).claims
    except InvalidKeyIdError:
        raise KeyUnknown("the ID token is signed with a key that the provider does not name") from None
    except (JoseError, ValueError, TypeError) as error:
        raise ClaimRefused(f"the ID token cannot be verified: {type(error).__name__}") from None
    if refusal := _find_refusal(claims, expected):
        raise ClaimRefused(refusal)
    return claims


def describe(claims: Claims, groups_claim: str, token: str) -> Person:
    """Returns the person of checked claims. Their name is for reading; it decides nothing."""
    is_doubtful = claims.get("email_verified") is False
    named = (claims.get(key) for key in ("preferred_username" if is_doubtful else "email", "preferred_username", "sub"))
    name = next(text for text in named if isinstance(text, str) and text)
    readable = "".join(char if char.isprintable() else "?" for char in name)[:LONGEST_NAME]
    told = claims.get(groups_claim)
    groups = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    held = tuple(group for group in groups if isinstance(group, str))
    mark = hashlib.sha256(token.rpartition(".")[0].encode()).digest()
    return Person(str(claims["iss"]), str(claims["sub"]), readable, held, mark)


def _signs(key: Mapping[str, object]) -> bool:
    return key.get("kty") in KEY_TYPES and key.get("use", "sig") == "sig"


def _find_refusal(claims: Claims, expected: Expected) -> str:
    """Returns why the claims do not say that this person signs in here and now; empty where they do."""
    if claims.get("iss") != expected.issuer:
        return "the ID token comes from another issuer"
    told = claims.get("aud")
    audience = told if isinstance(told, list) else [told]
    if expected.client not in audience:
        return "the ID token is meant for another client"
    party = claims.get("azp")
    if party != expected.client and (party is not None or len(audience) > 1):
        return "the ID token was given to another client"
    issued, expires = _read_moment(claims, "iat"), _read_moment(claims, "exp")
    if issued is None or expires is None:
        return "the ID token does not say when it was made and when it ends"
    if expires <= expected.now - SKEW_SECONDS:
        return "the ID token has expired"
    if not expected.now - FRESH_SECONDS <= issued <= expected.now + SKEW_SECONDS:
        return "the ID token was not made just now; if it was, the clocks of provider and server differ"
    begins = _read_moment(claims, "nbf") if "nbf" in claims else issued
    if begins is None or begins > expected.now + SKEW_SECONDS:
        return "the ID token is not valid yet"
    if expected.nonce and not hmac.compare_digest(str(claims.get("nonce", "")).encode(), expected.nonce.encode()):
        return "the ID token belongs to another sign-in"
    subject = claims.get("sub")
    return (
        ""
        if isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isascii()
        else "the ID token does not say whose it is"
    )


def _read_moment(claims: Claims, name: str) -> float | None:
    """Returns the seconds since 1970 of a claim; None if it says no such number."""
    value = claims.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]
