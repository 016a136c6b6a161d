"""`gpuwright get`: list objects page by page, or show one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, add_kind_argument, add_selector_arguments, completes
from cli.exits import Failed
from cli.kinds import kinds_of
from cli.output import OutputTable, format_json, format_yaml, plain, say
from cli.talk.client import BUSY, ApiClient
from cli.talk.contexts import resolve
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import find, list_objects, name_of, read_names, tenant_of
from cli.views.columns import CORDON, columns, list_headings

EPILOG = """\
Kinds: services (svc), jobs (jo), nodes (no), pools (pl), gputypes (gt), models (mo), profiles (pr), policies (po),
tenants (ten); several with commas, or `all`.

Examples:
  gpuwright get services
  gpuwright get svc shop/search -o yaml --manifest
  gpuwright get services -l team=search,tier!=test --tenant shop
  gpuwright get services --field-selector spec.model=resnet50 -o name
  gpuwright get nodes --watch
"""
DECLARED = ("name", "tenant", "labels")  # of the metadata
Pages = Iterable[list[dict[str, Any]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, several with commas, or all; or KIND/NAME", many=True)
    completes(parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml", "name"), default="table")
    add_selector_arguments(parser)
    parser.add_argument("-A", "--all-tenants", action="store_true", help="every tenant, instead of the context's")
    parser.add_argument("--no-headers", action="store_true", help="omit the headings of tables")
    parser.add_argument("--manifest", action="store_true", help="only what was declared, to edit and apply")
    parser.add_argument("-w", "--watch", action="store_true", help="keep showing changes as they happen")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    if "/" in args.kind:  # get service/shop/search
        targets = read_names(args.kind, args.names)
        args.kind, args.names = ",".join({kind.plural: None for kind, _ in targets}), [name for _, name in targets]
    kinds = kinds_of(args.kind)
    if args.names and len(kinds) > 1:
        raise Failed("names can be given for one kind at a time")
    if args.names and (args.selector or args.field_selector):
        raise Failed("give names or selectors, not both")
    if args.manifest:
        if args.output not in ("yaml", "json", "table") or args.watch:
            raise Failed("--manifest is for -o yaml and -o json, without --watch")
        args.output = "yaml" if args.output == "table" else args.output
    if args.watch:
        from cli.verbs.watch import follow_kinds

        return follow_kinds(args, kinds)
    with ApiClient(resolve(args)) as client:
        if args.names:
            items = [_shown(args, find(client, kinds[0], name)) for name in args.names]
            show(client, args, kinds[0], _add_current(client, args, kinds[0], [items]), single=len(items) == 1)
            return exits.OK
        shown = 0
        if args.output == "json":
            every = (chunk for kind in kinds for chunk in list_objects(client, args, kind, many=len(kinds) > 1))
            shown = show_json([_shown(args, item) for item in chunk] for chunk in every)
        else:
            for kind in kinds:
                pages = (
                    [_shown(args, item) for item in page]
                    for page in list_objects(client, args, kind, many=len(kinds) > 1)
                )
                rows = _add_current(client, args, kind, pages)
                shown += show(client, args, kind, rows, several=shown > 0)
    if not shown and args.output in ("table", "wide"):
        what = "objects" if args.kind == "all" else ", ".join(kind.plural for kind in kinds)
        tenant = tenant_of(args, client)
        say(f"no {what} found" + (f" in tenant {tenant} (-A shows all)" if tenant else ""))
    return exits.OK


def show(
    client: ApiClient,
    args: argparse.Namespace,
    kind: Kind,
    pages: Pages,
    *,
    single: bool = False,
    several: bool = False,
) -> int:
    """Print the objects as they come; how many there were."""
    if args.output == "json":
        items = [item for page in pages for item in page]
        print(format_json(items[0] if single else items))
        return len(items)
    wanted = columns(kind, wide=args.output == "wide")
    if kind is Kind.NODE and args.output in ("table", "wide"):
        wanted.insert([column.heading for column in wanted].index("HEALTHY") + 1, CORDON)
    table: OutputTable | None = None
    shown = 0
    for page in pages:
        if several and page and not shown and args.output in ("table", "wide"):
            print()
        if args.output == "name":
            for item in page:
                print(plain(name_of(item)))
        elif args.output == "yaml":
            for at, item in enumerate(page, start=shown):
                print("---\n" * (several or at > 0) + format_yaml(item))
        else:
            table = table or OutputTable(list_headings(wanted, client.currency), heading=not args.no_headers)
            table.rows([[column.cell(item) for column in wanted] for item in page])
        shown += len(page)
    return shown


def _shown(args: argparse.Namespace, item: dict[str, Any]) -> dict[str, Any]:
    """Returns the object, or with --manifest only the parts of it that a person declares."""
    if not args.manifest:
        return item
    declared = {name: value for name, value in item["metadata"].items() if name in DECLARED and value}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": declared, "spec": item["spec"]}


def _add_current(client: ApiClient, args: argparse.Namespace, kind: Kind, pages: Pages) -> Pages:
    """Adds to the rows of a table what changes between cycles: cordons of nodes, copies of services.

    Where the token may not read that, or a busy server does not say it, rows show what the planner last wrote.
    """
    if kind not in (Kind.NODE, Kind.SERVICE) or args.output not in ("table", "wide"):
        return pages
    try:
        if kind is Kind.NODE:
            cordons = client.get("/api/v1/cordons", tries=1)["items"]
            return ([{**item, "cordons": _select_cordons(cordons, item)} for item in page] for page in pages)
        services = client.get("/api/v1/overview", tries=1).get("services") or ()
        copies = {each["service"]: (each["instances"], each["routed"], each["silentCopies"]) for each in services}
        return ([_add_copies(item, copies) for item in page] for page in pages)
    except Failed as failure:
        if isinstance(failure, ServerRefusal) and failure.status not in (403, *BUSY):
            raise
        return pages


def _select_cordons(cordons: list[dict[str, Any]], item: dict[str, Any]) -> list[dict[str, Any]]:
    return [known for known in cordons if known["node"] == item["metadata"]["name"]]


def _add_copies(item: dict[str, Any], known: dict[str, tuple[int, int, int]]) -> dict[str, Any]:
    """Returns the service with its copies; one that was never planned has none, rather than 0 of 0."""
    status = item.get("status") or {}
    copies = known.get(f"{item['metadata']['tenant']}/{item['metadata']['name']}")
    if copies is None or not (copies[0] or "copies" in status):
        return item
    return {**item, "status": {**status, "copies": dict(zip(("planned", "routed", "silent"), copies, strict=True))}}


def show_json(pages: Pages) -> int:
    """Prints a JSON array page by page; `apply -f -` takes it back."""
    shown = 0
    for page in pages:
        for item in page:
            text = json.dumps(item, indent=2).replace("\n", "\n  ")
            sys.stdout.write(("[\n  " if shown == 0 else ",\n  ") + text)
            shown += 1
    print("\n]" if shown else "[]")
    return shown
