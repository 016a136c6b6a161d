"""`gpuwright watch`: follows changes as they happen."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from app.manifests.model import STORED, Kind
from cli import exits
from cli.arguments import MOST_VERSION, add_connection_arguments, add_kind_argument, add_selector_arguments, whole
from cli.exits import Failed
from cli.kinds import kinds_of
from cli.output import OutputTable, colour, format_yaml, plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.following import WatchedChange, follow
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import find, list_objects, name_of, tenant_of
from cli.views.columns import TableColumn, columns, list_headings

EPILOG = """\
A lost connection is resumed where it broke off; Ctrl-C ends it.

Examples:
  gpuwright watch services
  gpuwright watch all --tenant shop -o name
  gpuwright watch nodes -o json | jq -r '.type, .object.metadata.name'     one event a line
"""
EVENT = "EVENT   "  # as wide as the widest event
COLOUR = {"added": "green", "modified": "yellow", "deleted": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, several with commas, or all", many=True)
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml", "name"), default="table")
    add_selector_arguments(parser, fields=False)
    parser.add_argument("-A", "--all-tenants", action="store_true", help="every tenant, instead of the context's")
    parser.add_argument("--no-headers", action="store_true", help="omit the headings of tables")
    since = "start after this version instead of now"
    parser.add_argument("--resource-version", type=whole(0, MOST_VERSION), metavar="N", help=since)
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    kinds = kinds_of(args.kind)
    with ApiClient(resolve(args)) as client:
        printer = Printer(client, args, kinds)
        try:
            for event in changes(client, args, kinds, args.resource_version):
                printer.show([(event.type, event.object)])
        except ServerRefusal as refusal:
            if refusal.status == 410:
                raise Failed(f"{refusal.message}; list again with: gpuwright get {args.kind} --watch") from None
            raise
    return exits.OK


def follow_kinds(args: argparse.Namespace, kinds: Sequence[Kind]) -> int:
    """Runs `get --watch`: prints the objects, then their changes; lists again after falling too far behind."""
    if args.field_selector:
        raise Failed("--watch selects by labels (-l), not by fields")
    with ApiClient(resolve(args)) as client:
        wanted = {find(client, kinds[0], name)["metadata"]["uid"] for name in args.names}
        news = ShownObjects(wanted)
        printer = Printer(client, args, kinds)
        while True:
            # the version first, then the lists: what changes while they are read comes twice rather than never
            first = client.get(f"/api/v1/{kinds[0].plural}", {"limit": 1})
            present: set[str] = set()
            for kind in kinds:
                for page in list_objects(client, args, kind, many=len(kinds) > 1):
                    present.update(item["metadata"]["uid"] for item in page)
                    printer.show([("", item) for item in page if news.of("listed", item)])
            printer.show(news.gone(present))
            try:
                for event in changes(client, args, kinds, int(first["metadata"]["resourceVersion"])):
                    if news.of(event.type, event.object):
                        printer.show([(event.type, event.object)])
            except ServerRefusal as refusal:
                if refusal.status != 410:
                    raise
                say("the watch fell too far behind and lists all objects again")


class ShownObjects:
    """The objects shown so far, so that a list after a gap shows only new ones."""

    def __init__(self, wanted: set[str]) -> None:
        self._wanted = wanted  # uids; empty: all
        self._known: dict[str, dict[str, Any]] = {}

    def of(self, event: str, item: dict[str, Any]) -> bool:
        """Returns True for an object not shown yet, and remembers it."""
        metadata = item["metadata"]
        uid, version = metadata["uid"], metadata["resourceVersion"]
        if self._wanted and uid not in self._wanted:
            return False
        if event == "deleted":
            return self._known.pop(uid, None) is not None
        if uid in self._known and self._known[uid]["metadata"]["resourceVersion"] >= version:
            return False
        self._known[uid] = item
        return True

    def gone(self, present: set[str]) -> list[tuple[str, dict[str, Any]]]:
        """Returns the deletions of objects that were shown and no longer exist."""
        return [("deleted", self._known.pop(uid)) for uid in [uid for uid in self._known if uid not in present]]


def changes(
    client: ApiClient, args: argparse.Namespace, kinds: Sequence[Kind], version: int | None
) -> Iterator[WatchedChange]:
    """Yields the events that were asked for, heartbeats left out."""
    tenant = tenant_of(args, client)
    query = {
        "kinds": "" if set(kinds) == set(STORED) else ",".join(kind.plural for kind in kinds),  # all: what we may see
        "labelSelector": args.selector,
        "tenant": tenant if all(kind.tenanted for kind in kinds) else "",
    }
    for event in follow(client, query, version):
        owner = event.object.get("metadata", {}).get("tenant", "")
        if event.type != "heartbeat" and (not tenant or owner in ("", tenant)):
            yield event


class Printer:
    """Shows events: a table of one kind, else a line each."""

    def __init__(self, client: ApiClient, args: argparse.Namespace, kinds: Sequence[Kind]) -> None:
        self._client = client
        self._heading = not args.no_headers
        self._output = args.output
        self._columns: list[TableColumn] = columns(kinds[0], wide=args.output == "wide") if len(kinds) == 1 else []
        self._table: OutputTable | None = None  # until the first answer, which names the currency
        self._kinds = {str(kind) for kind in STORED}

    def show(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Prints events at once: a reader behind a pipe waits for them."""
        if self._output == "json":
            for kind, item in rows:
                print(json.dumps({"type": kind or "listed", "object": item}))
        elif self._output == "yaml":
            for _, item in rows:
                print("---\n" + format_yaml(item))
        elif self._output == "name":
            for kind, item in rows:
                print(plain(name_of(item)), colour(plain(kind or "listed"), COLOUR.get(kind, "dim")))
        else:
            self._table = self._table or OutputTable(self._list_headings(), heading=self._heading)
            self._table.rows([[kind, *self._list_cells(item)] for kind, item in rows])
        sys.stdout.flush()

    def _list_headings(self) -> list[str]:
        return [EVENT, *(list_headings(self._columns, self._client.currency) if self._columns else ["OBJECT"])]

    def _list_cells(self, item: dict[str, Any]) -> list[str]:
        return [column.cell(item) for column in self._columns] if self._columns else [name_of(item)]
