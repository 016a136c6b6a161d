"""`gpuwright delete`: delete objects by name or file, what refers to others first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.manifests.model import Kind
from cli import exits, sources
from cli.arguments import add_connection_arguments, add_file_arguments, add_kind_argument, completes
from cli.exits import Failed
from cli.kinds import DELETE_ORDER, label, object_path
from cli.output import number, plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import find, read_names, split_name

EPILOG = """\
It asks first, unless --yes is given; where there is no terminal to ask on, nothing is deleted without --yes.
A node is deleted only when nothing is assigned to it and nothing runs there: drain it first. --force deletes it all the
same, and first shows which instances, services and requests that takes away.

Examples:
  gpuwright delete service shop/search
  gpuwright drain node-1 --wait && gpuwright delete node node-1
  gpuwright delete nodes node-1 node-2 --force --yes
  gpuwright get jobs -l run=old -o name | xargs gpuwright delete --yes
  gpuwright delete -f shop.yaml --ignore-not-found
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_kind_argument(parser, "kind, or KIND/NAME", optional=True)
    completes(parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    add_file_arguments(parser, required=False)
    parser.add_argument("--dry-run", action="store_true", help="let the server check and answer, but delete nothing")
    parser.add_argument("--ignore-not-found", action="store_true", help="do not fail if an object does not exist")
    parser.add_argument("--force", action="store_true", help="delete nodes together with everything that runs there")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    code = exits.OK
    with ApiClient(resolve(args)) as client:
        targets = list(
            dict.fromkeys(read_targets_of_files(client, args) if args.files else read_targets_of_names(client, args))
        )
        if not targets:
            return exits.OK
        if len(targets) > 1 and not args.ignore_not_found:
            for kind, tenant, name in targets:  # all of them before the first is deleted
                find(client, kind, f"{tenant}/{name}" if tenant else name)
        if args.force:
            show_costs(client, targets)
        if not (args.yes or args.dry_run or confirm([label(*target) for target in targets])):
            raise Failed("nothing was deleted", exits.NO)
        for kind, tenant, name in targets:
            query = {"dryRun": args.dry_run or None, "force": (args.force and kind is Kind.NODE) or None}
            try:
                client.send("DELETE", object_path(kind.plural, tenant, name), query)
            except ServerRefusal as refusal:
                if refusal.status != 404:
                    raise
                if not args.ignore_not_found:
                    say(f"gpuwright: there is no {kind} {'/'.join(part for part in (tenant, name) if part)}")
                    code = exits.NO
                continue
            print(plain(label(kind, tenant, name)), "deleted" + (" (dry run)" if args.dry_run else ""))
    return code


def read_targets_of_names(client: ApiClient, args: argparse.Namespace) -> Iterator[tuple[Kind, str, str]]:
    """Yields the objects that KIND NAME... or KIND/NAME... means."""
    if not args.kind:
        raise Failed("nothing to delete was given: use KIND NAME or -f FILE")
    targets = read_names(args.kind, args.names)
    if not targets:
        raise Failed(f"a name is missing: gpuwright delete {args.kind} NAME")
    for kind, text in targets:
        tenant, name = split_name(kind, text, client.connection.tenant)
        if kind.tenanted and not tenant:
            try:
                metadata = find(client, kind, text)["metadata"]
            except Failed as failure:
                if failure.code == exits.NO and args.ignore_not_found:
                    continue
                raise
            tenant = metadata["tenant"]
        yield kind, tenant, name


def read_targets_of_files(client: ApiClient, args: argparse.Namespace) -> list[tuple[Kind, str, str]]:
    """Returns the objects that the files name, referrers before what they refer to."""
    if args.kind:
        raise Failed("give KIND NAME or -f, not both")
    from app.manifests.faults import ManifestsRefused
    from app.manifests.model import BY_PLURAL
    from app.manifests.reader import read

    found: list[tuple[Kind, str, str]] = []
    by_value = {str(kind): kind for kind in BY_PLURAL.values()}
    for file, text in sources.read(args.files, recursive=args.recursive):
        try:
            documents = read(text.encode(), "yaml", source=file)  # JSON is YAML
        except ManifestsRefused as refused:
            raise Failed(f"{file} cannot be read", particulars=map(str, refused.faults)) from None
        for document in documents:
            value = document.value if isinstance(document.value, dict) else {}
            metadata = value.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            kind, name = by_value.get(str(value.get("kind"))), metadata.get("name")
            if kind is None or not isinstance(name, str):
                raise Failed(f"{file}: a document lacks its kind or metadata.name; nothing was deleted")
            tenant = str(metadata.get("tenant") or client.connection.tenant) if kind.tenanted else ""
            if kind.tenanted and not tenant:
                try:
                    tenant = find(client, kind, name)["metadata"]["tenant"]
                except Failed as failure:
                    if failure.code == exits.NO and args.ignore_not_found:
                        continue
                    raise
            found.append((kind, tenant, name))
    return sorted(found, key=lambda target: DELETE_ORDER.index(target[0]))


def show_costs(client: ApiClient, targets: list[tuple[Kind, str, str]]) -> None:
    """Shows on stderr what the forced deletion of each node takes away."""
    for kind, tenant, name in targets:
        if kind is not Kind.NODE:
            continue
        try:
            client.send("DELETE", object_path(kind.plural, tenant, name), {"dryRun": True})
        except ServerRefusal as refusal:
            cost = refusal.problem.get("cost")
            if isinstance(cost, dict):
                say(f"{label(kind, tenant, name)} takes with it {cost_line(cost)}")
                for line in refusal.particulars:
                    say(f"  {line}")


def cost_line(cost: Mapping[str, Any]) -> str:
    """`3 instances of shop/search and shop/rank, which the plan sends 120 requests a second`."""
    owners = [str(owner) for owner in [*cost.get("services", []), *cost.get("jobs", [])]]
    count = cost.get("instances", 0)
    instances = "one instance" if count == 1 else f"{count} instances"
    rate = number(cost.get("requestsPerSecond", 0))
    return f"{instances} of {', '.join(owners)}, to which the plan sends {rate} requests a second"


def confirm(names: Sequence[str], question: str = "delete", unchanged: str = "nothing was deleted") -> bool:
    """Shows what shall be done and asks on a terminal whether it shall; fails where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failed(f"{unchanged}: there is no terminal to ask on; give --yes")
    for name in names[:20]:
        say(f"  {name}")
    if len(names) > 20:
        say(f"  and {len(names) - 20} more")
    print(f"{question}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
