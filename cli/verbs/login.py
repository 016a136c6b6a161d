"""`gpuwright login`: sign in at the people's provider, and keep the token that the server gives for it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from agents.host.plaintext import plaintext_refusal
from cli import exits
from cli.arguments import add_connection_arguments
from cli.exits import Failed
from cli.output import plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import ServerContext, config_path, load, remember, resolve

FORM = "application/x-www-form-urlencoded"
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
LEAST_PAUSE, MORE_PAUSE = 1.0, 5.0  # seconds between two questions; the second is added when the provider asks for it
SHORTEST_SECONDS = 60.0
SHOWN = 200  # characters of what a provider says

EPILOG = """\
You open the address that is printed, in any browser, and type in the code. Your groups at the provider decide what you
may do. The token is kept in the context, and ends after some hours; then sign in again.

Examples:
  gpuwright login --server https://gpus.example.com
  gpuwright login --context prod --tenant shop     to one of several tenants
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    found = find_context(args)
    if refusal := plaintext_refusal(found.server):
        raise Failed(refusal)
    with ApiClient(found) as server:
        where = server.get("/api/v1/people")
        brought = ask_provider(where, found)
        asked = {key: brought.get(name, "") for key, name in (("idToken", "id_token"), ("accessToken", "access_token"))}
        tenant = {"tenant": args.tenant} if args.tenant else {}
        given = server.send("POST", "/api/v1/people", body=json.dumps({**asked, **tenant}).encode()).json()
    name = keep(found, given)
    bound = f", of tenant {given['tenant']}" if given["tenant"] else ""
    say(f"signed in as {given['name']}, scope {given['scope']}{bound}, until {given['expiresAt']}")
    print(plain(f"context {name} is in use"))
    return exits.OK


def find_context(args: argparse.Namespace) -> ServerContext:
    """Returns the server to sign in to. Its context may be new, and no token is sent."""
    wanted = args.context
    if wanted and wanted not in load(config_path())["contexts"]:
        if not args.server:
            raise Failed(f"context {wanted} is new: it needs --server URL")
        args.context = None
    return replace(resolve(args), token="", context=wanted or resolve(args).context)


def keep(found: ServerContext, given: Mapping[str, Any]) -> str:
    """Keeps the token in the context of the server; returns its name. Another server gets a context of its own."""
    contexts = load(config_path())["contexts"]
    name = found.context
    if not name or contexts.get(name, {}).get("server", found.server).rstrip("/") != found.server:
        name = next((each for each, entry in contexts.items() if entry.get("server") == found.server), "")
    name = name or (urlsplit(found.server).hostname or "server").replace(":", ".")
    entry = {key: value for key, value in contexts.get(name, {}).items() if key != "tokenFile"}
    remember(name, {**entry, "server": found.server, "token": given["token"]}, select=True)
    return name


def ask_provider(
    where: Mapping[str, Any], found: ServerContext, sleep: Callable[[float], None] = time.sleep
) -> Mapping[str, Any]:
    """Returns what the provider gives once the user has signed in elsewhere."""
    begun = post(where["deviceEndpoint"], {"client_id": where["clientId"], "scope": where["scopes"]}, found)
    try:
        code, word, address = begun["device_code"], begun["user_code"], begun["verification_uri"]
    except KeyError:
        raise Failed(f"{where['issuer']} gives no code to sign in with: {explain(begun)}", exits.REFUSED) from None
    say(f"open {plain(str(address))[:SHOWN]} and type in the code {plain(str(word))[:SHOWN]}")
    if complete := begun.get("verification_uri_complete"):
        say(f"or open {plain(str(complete))[:SHOWN]}")
    pause = max(LEAST_PAUSE, number(begun.get("interval"), 5.0))
    ends = time.monotonic() + max(SHORTEST_SECONDS, number(begun.get("expires_in"), 300.0))
    while time.monotonic() < ends:
        sleep(pause)
        form = {"grant_type": GRANT, "device_code": code, "client_id": where["clientId"]}
        answer = post(where["tokenEndpoint"], form, found)
        if "id_token" in answer:
            return answer
        match answer.get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                pause += MORE_PAUSE
            case _:
                raise Failed(f"{where['issuer']} did not sign you in: {explain(answer)}", exits.REFUSED)
    raise Failed("nobody has typed in the code in time; run gpuwright login again", exits.REFUSED)


def post(address: str, form: Mapping[str, str], found: ServerContext) -> Mapping[str, Any]:
    """Returns the provider's answer, refusals included."""
    parts = urlsplit(str(address))
    base = ServerContext(urlunsplit((parts.scheme, parts.netloc, "", "", "")), verbose=found.verbose)
    if refusal := plaintext_refusal(base.server):
        raise Failed(f"the provider's address {plain(base.server)} keeps no secret: {refusal}")
    with ApiClient(base) as provider:
        answer = provider.attempt("POST", parts.path, body=urlencode(form).encode(), media=FORM)
    said = answer.json()
    if not isinstance(said, dict):
        raise Failed(f"{plain(base.server)} answered {answer.status} without JSON", exits.UNREACHABLE)
    return said


def explain(answer: Mapping[str, Any]) -> str:
    said = [str(answer[key])[:SHOWN] for key in ("error", "error_description") if key in answer]
    return plain(": ".join(said)) or "its answer says neither a code nor an error"


def number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else otherwise
