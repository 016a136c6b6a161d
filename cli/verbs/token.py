"""`gpuwright token`: create, list and revoke tokens, and tokens with which nodes join."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli import exits
from cli.arguments import add_connection_arguments, completes, duration
from cli.exits import Failed
from cli.output import OutputTable, age, format_json, plain, print_data, say, span
from cli.talk.client import ApiClient
from cli.talk.contexts import reason, resolve
from cli.talk.refusals import ServerRefusal

EPILOG = """\
A new token is shown once, alone on stdout (or put into --out FILE); the server keeps only its hash.

Examples:
  gpuwright token create --scope operator --tenant shop --expires 90d --out shop.token
  gpuwright token join --node node-7 --expires 10m
  gpuwright token list
  gpuwright token revoke 8k2m4q
  gpuwright token revoke --made-by person:3f9c0a1b2c3d4e5f    somebody left who signed in: all of theirs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="create|list|revoke|join")
    create = actions.add_parser("create", help="a token for a person or program")
    create.add_argument(
        "--scope",
        required=True,
        choices=("viewer", "operator", "admin", "node", "gateway"),
        help="what the token may do",
    )
    create.add_argument("--tenant", metavar="TENANT", help="it sees and writes this tenant's things only")
    create.add_argument("--node", metavar="NODE", help="the node that the token is for (scope node)")
    create.add_argument("--gateway", metavar="NAME", help="the gateway that the token is for (scope gateway)")
    create.add_argument("--label", metavar="TEXT", help="a note on what the token is for")
    join = actions.add_parser("join", help="a one-time token with which a node joins")
    join.add_argument("--node", metavar="NODE", help="only the node of this name may use it")
    for sub in (create, join):
        sub.add_argument("--expires", type=duration, metavar="TIME", help="like 10m, 12h, 90d")
        completes(
            sub.add_argument("--out", metavar="FILE", help="write it to this file, readable by you only"), "files"
        )
        sub.add_argument("-o", "--output", choices=("text", "json"), default="text")
        add_connection_arguments(sub)
    listing = actions.add_parser("list", help="tokens, without their secrets")
    listing.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_connection_arguments(listing)
    revoke = actions.add_parser("revoke", help="make tokens worthless at once")
    revoke.add_argument("ids", nargs="*", metavar="ID")
    revoke.add_argument(
        "--made-by",
        metavar="MAKER",
        help="all that are valid of this person, or made by this token; see MADE BY of list",
    )
    add_connection_arguments(revoke)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        if args.action == "list":
            return show(client, args)
        if args.action == "revoke":
            if bool(args.ids) == bool(args.made_by):
                raise Failed("name the tokens, or who made them: --made-by MAKER")
            refuse_unknown(client, args.ids)
            for token_id in args.ids or find_made(client, args.made_by):
                print(plain(f"{end(client, token_id)}/{token_id} revoked"))
            return exits.OK
        return create(client, args)


def find_made(client: ApiClient, maker: str) -> list[str]:
    """Returns the valid tokens of a maker; a person's sign-ins come first, so that they make no more meanwhile."""
    items = [item for page in client.pages("/api/v1/tokens", {}) for item in page["items"]]
    made = [item for item in items if name_maker(item) == maker and state(item) == "valid"]
    if not made:
        raise Failed(f"no valid token was made by {maker}; see: gpuwright token list", exits.NO)
    return [item["id"] for item in sorted(made, key=lambda item: str(item["createdBy"]).endswith("/token"))]


def name_maker(item: Mapping[str, Any]) -> str:
    """Returns the person whose token it is, else the token that made it."""
    maker = str(item.get("createdBy") or "")
    return maker.partition("/")[0] if maker.startswith("person:") else maker


def refuse_unknown(client: ApiClient, ids: Sequence[str]) -> None:
    """Refuses all where one is not there, or is revoked, before the first of them is revoked."""
    if len(ids) < 2:
        return
    paths = ("/api/v1/tokens", "/api/v1/jointokens")
    known = {item["id"]: item for path in paths for page in client.pages(path, {}) for item in page["items"]}
    for token_id in ids:
        if token_id not in known:
            raise Failed(f"there is no token {token_id}; none was revoked; see: gpuwright token list", exits.NO)


def end(client: ApiClient, token_id: str) -> str:
    """Revoke a token, or a join token if there is no token of that id; returns which of them it was."""
    quoted = quote(token_id, safe="")
    try:
        client.send("DELETE", f"/api/v1/tokens/{quoted}")
    except ServerRefusal as refusal:
        if refusal.status != 404:
            raise
        try:
            client.send("DELETE", f"/api/v1/jointokens/{quoted}")
        except ServerRefusal as second:
            raise second if second.status != 404 else refusal from None
        return "jointoken"
    return "token"


def create(client: ApiClient, args: argparse.Namespace) -> int:
    """Ask for a token and hand it over once."""
    joining = args.action == "join"
    wanted: dict[str, Any] = {"node": args.node, "expiresInSeconds": args.expires}
    if not joining:
        wanted |= {"scope": args.scope, "tenant": args.tenant, "gateway": args.gateway, "label": args.label}
    file = reserve(args.out) if args.out else None
    try:
        path = "/api/v1/jointokens" if joining else "/api/v1/tokens"
        body = format_json({key: value for key, value in wanted.items() if value is not None}).encode()
        answer = client.send("POST", path, None, body).json()
        if file:
            file.write_text(answer["token"] + "\n", encoding="utf-8")
    except BaseException:
        if file:
            file.unlink(missing_ok=True)
        raise
    if print_data({**answer, "token": None, "tokenFile": str(file)} if file else answer, args.output):
        return exits.OK
    expiry = f", expires {answer['expiresAt']}" if answer.get("expiresAt") else ""
    say(f"{'join token' if joining else 'token'} {answer['id']}{expiry}; the server does not show it again")
    print(plain(f"written to {file}" if file else answer["token"]))
    return exits.OK


def reserve(name: str) -> Path:
    """Returns a new file that only the user can read: made before the token, so that no token is lost to a bad path."""
    path = Path(name).expanduser()
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise Failed(f"cannot write {name}: {reason(error)}; no token was created") from None
    return path


def show(client: ApiClient, args: argparse.Namespace) -> int:
    """Tokens, and after them the tokens with which nodes join."""
    items = [item for page in client.pages("/api/v1/tokens", {}) for item in page["items"]]
    items += [{"scope": "join"} | item for page in client.pages("/api/v1/jointokens", {}) for item in page["items"]]
    if print_data(items, args.output):
        return exits.OK
    table = OutputTable(["ID", "SCOPE", "TENANT", "NODE", "LABEL", "EXPIRES", "LAST USED", "STATE", "AGE", "MADE BY"])
    table.rows(
        [
            item["id"],
            item.get("scope", ""),
            item.get("tenant") or "",
            item.get("node") or item.get("gateway") or "",
            item.get("label") or "",
            spell_time_left(item.get("expiresAt")),
            age(item.get("lastUsedAt") or ""),
            state(item),
            age(item.get("createdAt") or ""),
            name_maker(item),
        ]
        for item in items
    )
    return exits.OK


def state(item: Mapping[str, Any]) -> str:
    """Returns whether a token is valid: an expired one is not, whatever else the server says of it."""
    state = item.get("state") or ("revoked" if item.get("revokedAt") else "valid")
    return "expired" if state == "valid" and spell_time_left(item.get("expiresAt")) == "expired" else str(state)


def spell_time_left(moment: str | None) -> str:
    """`in 5d` or `expired`."""
    from cli.output import seconds_since

    seconds = seconds_since(moment) if moment else None
    if seconds is None:
        return "never"
    return "expired" if seconds >= 0 else f"in {span(-seconds)}"
