"""Signs a person in at their provider, by a code that they type in elsewhere; neither it nor the server is believed."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from agents.host.plaintext import is_loopback
from cli import exits
from cli.exits import Failed
from cli.output import plain, say
from cli.talk.client import ApiClient, ServerAnswer
from cli.talk.contexts import ServerContext

FORM = "application/x-www-form-urlencoded"
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 1.0, 60.0  # between two questions
MORE_PAUSE_SECONDS = 5.0  # added when the provider asks for it
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 1800.0  # how long a code is waited for
SHOWN = 200  # characters of what a provider says
MOST_TOKEN = 65_536  # characters of a token


@dataclass(frozen=True, slots=True)
class SignInClient:
    """What a server says of signing in: the provider, and what the command line is called there."""

    issuer: str
    client: str
    scopes: str
    groups_claim: str


@dataclass(frozen=True, slots=True)
class ProviderEndpoints:
    """The addresses that the provider's own description names."""

    device: str
    token: str


def read_client(answer: Mapping[str, Any], server: str) -> SignInClient:
    """Returns what the server says, refused where it asks for more than a sign-in needs."""
    keys = ("issuer", "clientId", "scopes", "groupsClaim")
    found = SignInClient(*(read_text(answer, key, server, SHOWN) for key in keys))
    check_address(found.issuer, f"the issuer of {server}", may_be_local=is_local(server))
    for key, text, wrong in (("clientId", found.client, " "), ("issuer", found.issuer, "?")):
        if wrong in text:
            raise Failed(f"what {server} answers is malformed: {key} {text} has {wrong!r}", exits.UNREACHABLE)
    if "offline_access" in found.scopes.split():
        raise Failed(
            f"{server} asks for the scope offline_access, a token that outlives the sign-in; no sign-in needs it",
            exits.REFUSED,
        )
    return found


def find_endpoints(client: SignInClient, verbose: bool = False) -> ProviderEndpoints:
    """Reads the provider's description of itself. A server that lies cannot send a code elsewhere."""
    issuer = client.issuer
    address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    status, answer = ask(address, None, verbose)
    if status != 200:
        raise Failed(f"{address} answered {status}: is {issuer} a provider?", exits.UNREACHABLE)
    if answer.get("issuer") != issuer:
        named = plain(str(answer.get("issuer"))[:SHOWN])
        raise Failed(f"the provider at {issuer} calls itself {named}: what it says is not used", exits.UNREACHABLE)
    found = [read_text(answer, key, issuer) for key in ("device_authorization_endpoint", "token_endpoint")]
    for endpoint in found:
        check_address(endpoint, f"an endpoint of {issuer}", may_be_local=is_local(issuer))
    return ProviderEndpoints(*found)


def sign_in(
    client: SignInClient,
    endpoints: ProviderEndpoints,
    sleep: Callable[[float], None] = time.sleep,
    verbose: bool = False,
) -> dict[str, str]:
    """Returns the tokens for the server, once the person has signed in elsewhere."""
    issuer = client.issuer
    _, begun = ask(endpoints.device, {"client_id": client.client, "scope": client.scopes}, verbose)
    if "device_code" not in begun:
        raise Failed(f"{issuer} gives no code to sign in with: {explain(begun)}", exits.REFUSED)
    code, word = read_text(begun, "device_code", issuer), read_text(begun, "user_code", issuer, SHOWN)
    ways = [read_text(begun, "verification_uri", issuer)]
    if begun.get("verification_uri_complete"):
        ways.append(read_text(begun, "verification_uri_complete", issuer))
    for address in ways:
        check_address(address, f"the address for a code of {issuer}", may_be_local=is_local(issuer))
    say(f"open {ways[0]} and type in the code {word}")
    for address in ways[1:]:
        say(f"or open {address}")
    pause = bound(begun.get("interval"), 5.0, LEAST_PAUSE_SECONDS, MOST_PAUSE_SECONDS)
    lasts, waited = bound(begun.get("expires_in"), 300.0, SHORTEST_SECONDS, LONGEST_SECONDS), 0.0
    while waited < lasts:
        sleep(pause)
        waited += pause
        form = {"grant_type": GRANT, "device_code": code, "client_id": client.client}
        _, answer = ask(endpoints.token, form, verbose)
        if "id_token" in answer:
            return select_tokens(answer, client)
        match answer.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                pause = min(pause + MORE_PAUSE_SECONDS, MOST_PAUSE_SECONDS)
            case _:
                raise Failed(f"{issuer} did not sign you in: {explain(answer)}", exits.REFUSED)
    raise Failed("nobody has typed in the code in time; run gpuwright login again", exits.REFUSED)


def select_tokens(answer: Mapping[str, Any], client: SignInClient) -> dict[str, str]:
    """Returns the ID token; and the access token, which may do more, only if the ID token leaves the groups out."""
    text = read_text(answer, "id_token", client.issuer, MOST_TOKEN)
    if client.groups_claim in read_claims(text, client.issuer) or answer.get("access_token") is None:
        return {"idToken": text}
    return {"idToken": text, "accessToken": read_text(answer, "access_token", client.issuer, MOST_TOKEN)}


def read_claims(token: str, issuer: str) -> Mapping[str, Any]:
    """Returns what an ID token says. The server verifies it; here it only decides what is sent."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise Failed(f"the ID token of {issuer} is malformed", exits.UNREACHABLE)
    return claims


def ask(address: str, form: Mapping[str, str] | None, verbose: bool) -> tuple[int, Mapping[str, Any]]:
    """Returns status and object that the provider answers, refusals included; no redirect is followed."""
    parts = urlsplit(address)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        with ApiClient(ServerContext(f"{parts.scheme}://{parts.netloc}", verbose=verbose)) as provider:
            answer = _send(provider, path, form)
    except (ValueError, http.client.HTTPException):  # a host name that no request can carry
        raise Failed(f"no request can be sent to {address}", exits.UNREACHABLE) from None
    if 300 <= answer.status < 400:
        raise Failed(f"{address} leads elsewhere, and no secret follows it", exits.UNREACHABLE)
    said = answer.json()
    if not isinstance(said, dict):
        raise Failed(f"{address} answered {answer.status} without JSON", exits.UNREACHABLE)
    return answer.status, said


def _send(provider: ApiClient, path: str, form: Mapping[str, str] | None) -> ServerAnswer:
    if form is None:
        return provider.attempt("GET", path)
    return provider.attempt("POST", path, body=urlencode(form).encode(), media=FORM)


def check_address(address: str, what: str, *, may_be_local: bool) -> None:
    """Refuses an address that keeps no secret, and this machine unless it was named by an address of this machine."""
    try:
        parts = urlsplit(address)
        is_whole = bool(parts.hostname) and parts.port != 0 and not set(address) & set(" @#\\")
    except ValueError:
        is_whole = False
    if not is_whole:
        raise Failed(f"{what} is no address: {plain(address[:SHOWN])}", exits.UNREACHABLE)
    local = is_local(address)
    if local and not may_be_local:
        raise Failed(f"{what} is on this machine: {address[:SHOWN]}", exits.UNREACHABLE)
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise Failed(f"{what} is not https: {address[:SHOWN]}", exits.UNREACHABLE)


def is_local(address: str) -> bool:
    """Returns whether only this machine answers at this address."""
    return is_loopback(urlsplit(address).hostname or "")


def read_text(answer: Mapping[str, Any], key: str, whose: str, most: int = 2048) -> str:
    """Returns a string of an answer, of printable ASCII and of a length that is sensible."""
    value = answer.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most or not (value.isascii() and value.isprintable()):
        wanted = f"is not a text of 1..{most} printable ASCII characters"
        raise Failed(f"what {whose} answers is malformed: {key} {wanted}", exits.UNREACHABLE)
    return value


def explain(answer: Mapping[str, Any]) -> str:
    said = [str(answer[key])[:SHOWN] for key in ("error", "error_description") if key in answer]
    return plain(": ".join(said)) or "its answer says neither a code nor an error"


def bound(value: object, otherwise: float, least: float, most: float) -> float:
    """Returns a provider's number within these bounds, before it becomes a float: JSON has no largest number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        value = otherwise
    return float(min(max(value, least), most))
