"""Asks the provider: where its parts are, its keys, an ID token for a code, the groups that the token leaves out."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlencode, urlsplit

from joserfc.jwk import KeySet

from app.http.lanes import RETURN
from app.http.outgoing import exchange
from app.people.claims import ClaimRefused, Claims, Expected, KeyUnknown, Person, check_token, describe, read_keys
from app.settings import Settings, is_plain_loopback

ANSWER_SECONDS = 10.0
MOST_BYTES = 1024 * 1024
KEPT_SECONDS = 3600.0  # how long its description and its keys are believed
RETRY_SECONDS = 30.0  # between two looks for a key that is not there
AT_ONCE = 4  # requests that wait for the provider; more would take the threads of others

Document = Mapping[str, object]


class ProviderFailed(Exception):
    """The provider did not answer as it should; the message says what was asked and what came."""


class ProviderBusy(Exception):
    """Too many sign-ins wait for the provider already."""


class Provider:
    """The provider that the settings name. Safe for any number of threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Document | ProviderFailed]] = {}

    @property
    def name(self) -> str:
        return urlsplit(self._settings.oidc_issuer).hostname or ""

    @property
    def command_line_id(self) -> str:
        return self._settings.oidc_command_line_id or self._settings.oidc_client_id

    def begin_address(self, state: str, nonce: str, verifier: str) -> str:
        """Returns where a browser signs in, and comes back from with a code."""
        asked = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": self._return_address,
            "scope": self._settings.oidc_scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge(verifier),
            "code_challenge_method": "S256",
        }
        address = self._endpoint("authorization_endpoint")
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}"

    def redeem(self, code: str, verifier: str, nonce: str) -> Person:
        """Returns who has signed in, for the code that their browser brought back."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._return_address,
            "code_verifier": verifier,
        }
        headers = {}
        if self._settings.oidc_client_secret_file:
            secret = self._settings.oidc_client_secret_file.read_text(encoding="utf-8").strip()
            pair = f"{quote(self._settings.oidc_client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = self._settings.oidc_client_id
        answer = self._fetch(self._endpoint("token_endpoint"), form, headers)
        return self._identify(answer, self._settings.oidc_client_id, nonce)

    def identify(self, id_token: str, access_token: str) -> Person:
        """Returns who has signed in by the command line, which brings what the provider gave it."""
        return self._identify({"id_token": id_token, "access_token": access_token}, self.command_line_id, "")

    def _identify(self, answer: Document, client: str, nonce: str) -> Person:
        text, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(text, str):
            raise ProviderFailed("the provider gave no ID token; is `openid` among oidc_scopes?")
        claims = self._check(text, client, nonce)
        groups = self._settings.oidc_groups_claim
        if groups not in claims and isinstance(access, str) and access:
            claims = {**claims, groups: self._read_groups(access, claims, groups)}
        return describe(claims, groups, text)

    def _check(self, text: str, client: str, nonce: str) -> Claims:
        expected = Expected(self._settings.oidc_issuer, client, nonce, time.time())
        try:
            return check_token(text, self._keys(KEPT_SECONDS), expected)
        except KeyUnknown:
            return check_token(text, self._keys(RETRY_SECONDS), expected)  # the provider may have made a new one

    def _read_groups(self, access: str, claims: Claims, groups: str) -> object:
        """Returns the groups that the provider tells at its userinfo endpoint, if it has one."""
        address = self._describe().get("userinfo_endpoint")
        if not isinstance(address, str):
            return None
        told = self._fetch(address, None, {"Authorization": f"Bearer {access}"})
        if told.get("sub") != claims["sub"]:
            raise ClaimRefused("the provider tells the groups of somebody else")
        return told.get(groups)

    def _keys(self, seconds: float) -> KeySet:
        address = self._endpoint("jwks_uri")
        return read_keys(self._keep(address, seconds))

    def _endpoint(self, name: str) -> str:
        address = self._describe().get(name)
        if not isinstance(address, str):
            raise ProviderFailed(f"the description of {self._settings.oidc_issuer} names no {name}")
        return address

    def _describe(self) -> Document:
        issuer = self._settings.oidc_issuer
        found = self._keep(f"{issuer.rstrip('/')}/.well-known/openid-configuration", KEPT_SECONDS)
        if found.get("issuer") != issuer:
            raise ProviderFailed(f"the provider calls itself {str(found.get('issuer'))[:200]!r}, not {issuer!r}")
        return found

    def _keep(self, address: str, seconds: float) -> Document:
        """Returns the document at this address, as it was within the last `seconds`; a failure is kept, too."""
        with self._lock:
            at, kept = self._kept.get(address, (float("-inf"), None))
            age = time.monotonic() - at
            if isinstance(kept, ProviderFailed) and age <= RETRY_SECONDS:
                raise kept
            if kept is not None and not isinstance(kept, ProviderFailed) and age <= seconds:
                return kept
        try:
            found: Document | ProviderFailed = self._fetch(address, None, {})
        except ProviderFailed as failed:
            found = failed
        with self._lock:
            self._kept[address] = time.monotonic(), found
        if isinstance(found, ProviderFailed):
            raise found
        return found

    def _fetch(self, address: str, form: Mapping[str, str] | None, headers: Mapping[str, str]) -> Document:
        """Returns the provider's answer; only addresses that keep secrets are asked, and no redirect is followed."""
        is_loopback = is_plain_loopback(self._settings.oidc_issuer) and is_plain_loopback(address)
        parts = urlsplit(address)
        if parts.scheme != "https" and not is_loopback:
            raise ProviderFailed(f"the provider names an address that is not https: {address[:200]!r}")
        data = None if form is None else urlencode(form).encode()
        where = f"{'GET' if data is None else 'POST'} {address.partition('?')[0]}"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"Accept": "application/json", "User-Agent": "gpuwright", **headers}
        if data is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)
            with self._place():
                status, content = exchange(
                    connection, "POST" if form else "GET", target, data, sent,
                    seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES,
                )  # fmt: skip
        except (OSError, ValueError, HTTPException) as error:
            raise ProviderFailed(f"{where}: {error or type(error).__name__}") from None
        if status == 400 and form is not None and _read_error(content) == "invalid_grant":
            raise ClaimRefused("the provider does not know this code, or it has been used")
        if status != 200:
            raise ProviderFailed(f"{where}: {status} {_read_error(content)}".rstrip())
        document = _read_object(content[:MOST_BYTES])
        if document is None or len(content) > MOST_BYTES:
            raise ProviderFailed(f"{where}: the answer is not a JSON object of at most {MOST_BYTES} bytes")
        return document

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise ProviderBusy
        try:
            yield
        finally:
            self._places.release()

    @property
    def _return_address(self) -> str:
        return self._settings.public_url.rstrip("/") + RETURN

    def describe_devices(self) -> Mapping[str, str]:
        """Returns what the command line signs in with; it asks the provider itself for the rest."""
        return {
            "issuer": self._settings.oidc_issuer,
            "clientId": self.command_line_id,
            "scopes": self._settings.oidc_scopes,
            "groupsClaim": self._settings.oidc_groups_claim,
        }


def challenge(verifier: str) -> str:
    """Returns what the provider hears of a secret that it is shown later (PKCE, S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _read_object(content: bytes) -> Document | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _read_error(content: bytes) -> str:
    """Returns the code of an OAuth error, which is made of few characters; never the provider's page."""
    found = (_read_object(content) or {}).get("error")
    return found[:60] if isinstance(found, str) and found.replace("_", "").isalnum() else ""
