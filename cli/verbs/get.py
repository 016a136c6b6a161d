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
from cli.client import ApiClient
from cli.columns import columns
from cli.contexts import resolve
from cli.exits import Failed
from cli.kinds import kinds_of
from cli.output import OutputTable, as_json, as_yaml, plain, say
from cli.selection import find, listed, name_of, named, tenant_of

EPILOG = """\
Kinds: services (svc), jobs (jo), nodes (no), gputypes (gt), models (mo), profiles (pr), policies (po),
tenants (ten); several with commas, or `all`.

Examples:
  gpuwright get services
  gpuwright get svc shop/search -o yaml
  gpuwright get services -l team=search,tier!=test --tenant shop
  gpuwright get services --field-selector spec.model=resnet50 -o name
  gpuwright get nodes --watch
"""
Pages = Iterable[list[dict[str, Any]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, several with commas, or all; or KIND/NAME", many=True)
    completes(parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    parser.add_argument("-o", "--output", choices=("table", "wide", "json", "yaml", "name"), default="table")
    add_selector_arguments(parser)
    parser.add_argument("-A", "--all-tenants", action="store_true", help="every tenant, instead of the context's")
    parser.add_argument("--no-headers", action="store_true", help="omit the headings of tables")
    parser.add_argument("-w", "--watch", action="store_true", help="keep showing changes as they happen")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    if "/" in args.kind:  # get service/shop/search
        targets = named(args.kind, args.names)
        args.kind, args.names = ",".join({kind.plural: None for kind, _ in targets}), [name for _, name in targets]
    kinds = kinds_of(args.kind)
    if args.names and len(kinds) > 1:
        raise Failed("names can be given for one kind at a time")
    if args.names and (args.selector or args.field_selector):
        raise Failed("give names or selectors, not both")
    if args.watch:
        from cli.verbs.watch import follow_kinds

        return follow_kinds(args, kinds)
    with ApiClient(resolve(args)) as client:
        if args.names:
            items = [find(client, kinds[0], name) for name in args.names]
            show(args, kinds[0], [items], single=len(items) == 1)
            return exits.OK
        shown = 0
        if args.output == "json":
            shown = show_json(chunk for kind in kinds for chunk in listed(client, args, kind, many=len(kinds) > 1))
        else:
            for kind in kinds:
                shown += show(args, kind, listed(client, args, kind, many=len(kinds) > 1), several=shown > 0)
    if not shown and args.output in ("table", "wide"):
        what = "objects" if args.kind == "all" else ", ".join(kind.plural for kind in kinds)
        tenant = tenant_of(args, client)
        say(f"no {what} found" + (f" in tenant {tenant} (-A shows all)" if tenant else ""))
    return exits.OK


def show(args: argparse.Namespace, kind: Kind, pages: Pages, *, single: bool = False, several: bool = False) -> int:
    """Print the objects as they come; how many there were."""
    if args.output == "json":
        items = [item for page in pages for item in page]
        print(as_json(items[0] if single else items))
        return len(items)
    wanted = columns(kind, wide=args.output == "wide")
    table = OutputTable([column.heading for column in wanted], heading=not args.no_headers)
    shown = 0
    for page in pages:
        if several and page and not shown and args.output in ("table", "wide"):
            print()
        if args.output == "name":
            for item in page:
                print(plain(name_of(item)))
        elif args.output == "yaml":
            for at, item in enumerate(page, start=shown):
                print("---\n" * (several or at > 0) + as_yaml(item))
        else:
            table.rows([[column.cell(item) for column in wanted] for item in page])
        shown += len(page)
    return shown


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
