"""`gpuwright audit`: who changed what, newest last; it needs an admin's token."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, duration, whole
from cli.output import OutputTable, age, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve

EPILOG = """\
Examples:
  gpuwright audit
  gpuwright audit --for shop/search -o yaml
  gpuwright audit --kind Node --verb delete --since 7d
  gpuwright audit --outcome alarm
"""
LARGEST_PAGE = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--for", dest="about", metavar="NAME", help="only changes of this object: TENANT/NAME, or a node's name"
    )
    parser.add_argument("--kind", default="", help="only changes of this kind: Service, Node, Token, Cordon, Plan")
    parser.add_argument("--verb", metavar="ACTION", default="", help="only this action: create, update, delete, revoke")
    parser.add_argument("--by", metavar="TOKEN", default="", help="only changes by the token with this id")
    parser.add_argument("--outcome", choices=("done", "refused", "alarm"), default="")
    parser.add_argument("--since", type=duration, metavar="TIME", help="only entries of the last 15m, 2h, 7d")
    parser.add_argument("--limit", type=whole(1, 100_000), metavar="N", default=50, help="how many; default 50")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    items = entries(args)
    if not print_data(items, args.output):
        if not items:
            say(_explain_nothing(args))
        OutputTable(["AGE", "BY", "ROLE", "ACTION", "OUTCOME", "OBJECT", "DETAIL"]).rows(
            [
                age(entry["at"]),
                entry["principal"],
                entry["scope"],
                entry["verb"],
                entry["outcome"],
                _object_of(entry),
                entry.get("detail") or "",
            ]
            for entry in reversed(items)
        )
    return exits.OK


def entries(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Reads page after page until there are enough entries, newest first."""
    found: list[dict[str, Any]] = []
    with ApiClient(resolve(args)) as client:
        tenant, name = client.connection.tenant, ""
        if args.about:
            first, slash, second = args.about.partition("/")
            tenant, name = (first, second) if slash else ("", first)
        since = datetime.now(UTC) - timedelta(seconds=args.since) if args.since else None
        query = {
            "kind": args.kind,
            "tenant": tenant,
            "name": name,
            "principal": args.by,
            "verb": args.verb,
            "outcome": args.outcome,
            "since": since.isoformat() if since else None,
        }
        cursor = ""
        while len(found) < args.limit:
            limit = min(LARGEST_PAGE, args.limit - len(found))
            page = client.get("/api/v1/audit", {**query, "limit": limit, "cursor": cursor})
            found += page["items"]
            cursor = page["metadata"]["next"]
            if not cursor:
                break
    return found


def _explain_nothing(args: argparse.Namespace) -> str:
    """Returns that there are no entries; where an action or a token was named, which ones the newest entries have."""
    asked = [("action", args.verb, "verb"), ("token", args.by, "principal")]
    wanted = next(((what, value, field) for what, value, field in asked if value), None)
    if wanted is None:
        return "no entries found"
    what, value, field = wanted
    with ApiClient(resolve(args)) as client:
        newest = client.get("/api/v1/audit", {"limit": LARGEST_PAGE})["items"]
    known = sorted({str(entry[field]) for entry in newest})
    if value in known:
        return f"no entries of the {what} {value} fit the other filters"
    return f"no entry of the {what} {value!r} was found; the newest entries have: {', '.join(known) or 'none'}"


def _object_of(entry: Mapping[str, Any]) -> str:
    name = "/".join(part for part in (entry.get("tenant"), entry.get("name")) if part)
    return f"{str(entry['kind']).lower()} {name}"
