"""`gpuwright login`: sign in at the people's provider, and keep the token that the server gives for it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from agents.host.plaintext import plaintext_refusal
from cli import exits
from cli.arguments import add_connection_arguments
from cli.exits import Failed
from cli.output import plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import (
    ServerContext,
    check_name,
    check_token,
    config_path,
    is_same_server,
    load,
    read_server,
    remember,
    resolve,
)
from cli.talk.provider import SHOWN, find_endpoints, read_client, sign_in

DEFAULT_PORTS = {"http": 80, "https": 443}
MOST_NAME = 50  # characters of a context's name that a host gives

EPILOG = """\
You open the address that is printed, in any browser, and type in the code. Look first whether the provider, the client
and the server are those that you mean: who types in a code signs in the one who began. Your groups at the provider
decide what you may do. The token is kept in the context, and ends after some hours; then sign in again.

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
        client = read_client(server.get("/api/v1/people"), found.server)
        endpoints = find_endpoints(client, found.verbose)
        say(f"sign in at {client.issuer} as client {client.client} for {found.server} (scopes {client.scopes})")
        tokens = sign_in(client, endpoints, verbose=found.verbose)
        tenant = {"tenant": args.tenant} if args.tenant else {}
        given = server.send("POST", "/api/v1/people", body=json.dumps({**tokens, **tenant}).encode()).json()
    token, signed_in = read_given(given, found.server)
    name = keep(found, token)
    say(signed_in)
    print(plain(f"context {name} is in use"))
    return exits.OK


def find_context(args: argparse.Namespace) -> ServerContext:
    """Returns the server to sign in to. Its context may be new; no token is sent."""
    wanted, contexts = args.context, load(config_path())["contexts"]
    if wanted and wanted not in contexts:
        if not args.server:
            raise Failed(f"context {wanted} is new: it needs --server URL")
        check_name(wanted)
        args.context = None
    found = resolve(args)
    return replace(found, token="", context=wanted or found.context)


def read_given(given: Mapping[str, Any], server: str) -> tuple[str, str]:
    """Returns the token that the server gives, and who it is for in a sentence."""
    wanted = {"token": str, "name": str, "scope": str, "tenant": str | None, "expiresAt": str | None}
    for key, kind in wanted.items():
        if not isinstance(given.get(key), kind):
            raise Failed(f"what {server} answers is malformed: {key}", exits.UNREACHABLE)
    try:
        token = check_token(given["token"], f"the answer of {server}")
    except Failed as failed:
        raise Failed(failed.message, exits.UNREACHABLE) from None
    name, scope, tenant, ends = (str(given[key] or "")[:SHOWN] for key in ("name", "scope", "tenant", "expiresAt"))
    sentence = f"signed in as {name}, scope {scope}" + (f", of tenant {tenant}" if tenant else "")
    return token, sentence + (f", until {ends}" if ends else "")


def keep(found: ServerContext, token: str) -> str:
    """Keeps the token in a context of this server, and returns its name. No other server's context is changed."""
    contexts = load(config_path())["contexts"]
    name = choose_name(contexts, found)
    entry = {key: value for key, value in contexts.get(name, {}).items() if key != "tokenFile"}
    remember(name, {**entry, "server": found.server, "token": token}, select=True)
    return name


def choose_name(contexts: Mapping[str, Mapping[str, str]], found: ServerContext) -> str:
    """Returns the context asked for, else another one of the server, else a free name."""
    wanted = found.context
    if wanted and (wanted not in contexts or is_same_server(read_server(contexts[wanted]), found.server)):
        return wanted
    for known, entry in contexts.items():
        if is_same_server(read_server(entry), found.server):
            return known
    first, number = name_server(found.server), 1
    name = first
    while name in contexts:
        number += 1
        name = f"{first}-{number}"
    return name


def name_server(server: str) -> str:
    """Returns the server's host, and its port unless that is the usual one, as a context's name may be."""
    parts = urlsplit(server)
    port = "" if parts.port in (None, DEFAULT_PORTS.get(parts.scheme)) else f"-{parts.port}"
    host = re.sub(r"[^A-Za-z0-9._-]", ".", parts.hostname or "")[:MOST_NAME].strip("._-")
    return f"{host or 'server'}{port}"
