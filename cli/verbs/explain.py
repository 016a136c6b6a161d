"""`gpuwright explain`: why a service, an instance, a job, a node, a pool, a tenant, a plan or a profile is as it is."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn
from urllib.parse import quote

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, completes, whole
from cli.currency import head_amounts, name_currency
from cli.exits import Failed
from cli.output import OutputTable, number, plain, print_data
from cli.patience import waiting
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find, find_by_name, find_near

EPILOG = """\
Of a service or an instance: why this GPU, this batch, this share of its SMs, and why not cheaper (the runner-up and
what it would cost); of what is not served, the reason and the smallest change that serves it, which was tried. Of a
plan: what it changes and holds back, its proof, and why nothing changed since. Of a profile: the declared time of each
point, what measurements have made of it, from how many minutes of instances, and when.

Examples:
  gpuwright explain shop/search
  gpuwright explain job lab/finetune
  gpuwright explain plan              the plan in force
  gpuwright explain instance search-84eaa3c4
  gpuwright explain profile resnet50-v100
  gpuwright explain node a100-1       what runs on each GPU, what is free, what keeps plans off it
  gpuwright explain pool burst        why it has as many nodes, what it waits for, its last orders
  gpuwright explain tenant shop       what it has, what it lacks and why, its limits
"""
WHAT = ("service", "instance", "job", "node", "pool", "tenant", "plan", "profile")
OF_A_PLAN = ("service", "instance", "job")
MOST = 2**53
ALTERNATIVES_SHOWN = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "what", metavar="|".join(WHAT), help="what to explain; or TENANT/NAME of a service or a job alone"
    )
    completes(parser.add_argument("name", nargs="?", metavar="NAME", help="TENANT/NAME, an id, a generation"), "names")
    parser.add_argument("--plan", type=whole(1, MOST), metavar="PLAN", help="the plan; default the one in force")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.add_argument("--json", action="store_true", help="the same as -o json")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        _understand(client, args)
        path = _path(client, args)
        with waiting("explaining"):
            explanation = client.get(path, {"plan": args.plan} if args.what in OF_A_PLAN else None)
    if not print_data(explanation, "json" if args.json else args.output):
        for line in lines(explanation, client.currency):
            print(line)
        if "regions" in explanation:
            _regions(explanation["regions"])
    return exits.OK


def _understand(client: ApiClient, args: argparse.Namespace) -> None:
    """Takes `shop/search` alone, or `service/shop/search`, for the kind and name that it means."""
    if args.what in WHAT:
        return
    first, slash, rest = args.what.partition("/")
    if slash and first in WHAT and args.name is None:
        args.what, args.name = first, rest
        return
    if args.name is not None:
        _not_understood(args.what)
    tenant, name = (first, rest) if slash else (client.connection.tenant, first)
    for what, kind in (("service", Kind.SERVICE), ("job", Kind.JOB)):
        owners = {item["metadata"]["tenant"] for item in find_by_name(client, kind, name)}
        if tenant in owners or (owners and not tenant):
            args.what, args.name = what, args.what
            return
    if not slash:
        _not_understood(args.what, ": no service or job has this name")
    near = find_near(client, (Kind.SERVICE, Kind.JOB), args.what)
    meant = f"did you mean {near}?" if near else "see: gpuwright get services,jobs -A"
    raise Failed(f"there is no service or job {args.what}; {meant}", exits.NO)


def _not_understood(word: str, why: str = "") -> NoReturn:
    near = ["node"] if word == "gpu" else get_close_matches(word, WHAT, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise Failed(f"explain {word!r} is not understood{why}{meant}; it takes {', '.join(WHAT)}, or TENANT/NAME")


def _path(client: ApiClient, args: argparse.Namespace) -> str:
    if args.what == "plan":
        name = args.name or args.plan or 0
        if not str(name).isdecimal():
            raise Failed(f"{name!r} is not a plan: use its generation (see: gpuwright plan history)")
        return f"/api/v1/explain/plans/{name}"
    if not args.name:
        raise Failed(f"explain {args.what} needs a name; see: gpuwright explain --help")
    if args.what == "instance":
        return f"/api/v1/explain/instances/{quote(args.name, safe='/')}"
    if args.what in ("node", "pool", "tenant"):
        if args.plan:
            raise Failed(f"explain {args.what} is about the plan in force; leave out --plan")
        if "/" in args.name:
            whole = f"gpuwright explain {args.what} {args.name.partition('/')[0]}"
            each = ", which tells of each of its GPUs" if args.what == "node" else ""
            raise Failed(f"{args.name!r} is not a {args.what}; use: {whole}{each}")
        return f"/api/v1/explain/{args.what}s/{quote(args.name, safe='')}"
    if args.what == "profile":
        return f"/api/v1/explain/profiles/{find(client, Kind.PROFILE, args.name)['metadata']['name']}"
    kind = Kind.SERVICE if args.what == "service" else Kind.JOB
    metadata = find(client, kind, args.name)["metadata"]
    return f"/api/v1/explain/{kind.plural}/{metadata['tenant']}/{metadata['name']}"


def lines(explanation: Mapping[str, Any], currency: str = "") -> Iterator[str]:
    """Yields the sentences, wrapped, the first on its own; then what else was looked at."""
    for at, sentence in enumerate(explanation["sentences"]):
        text = plain(name_currency(sentence, currency))
        yield from textwrap.wrap(text, 110, initial_indent="" if at == 0 else "  ", subsequent_indent="    ")
    if explanation.get("lately"):
        yield "lately:"
        for sentence in explanation["lately"]:
            yield f"  {plain(name_currency(sentence, currency))}"
    shapes = explanation.get("shapes") or ([explanation] if explanation.get("alternatives") else [])
    for shape in shapes:
        _alternatives(shape, currency)


def _regions(regions: Sequence[Mapping[str, Any]]) -> None:
    """Prints a table of a profile's points."""
    OutputTable(["  BATCH", "SM%", "DECLARED MS", "FACTOR", "PLANNED MS", "N", "AT", "SOURCE"]).rows(
        [
            f"  {point['batch']}", point["smPercent"], number(point["declaredMs"]), number(point["factor"]),
            number(point["plannedMs"]), point["n"] or "", point["at"] or "", point["source"],
        ]
        for point in regions
    )  # fmt: skip


def _alternatives(shape: Mapping[str, Any], currency: str) -> None:
    """Prints a table of what else was judged in the instance's place."""
    right = [choice for choice in shape.get("alternatives") or () if choice["right"]][:ALTERNATIVES_SHOWN]
    if not right:
        return
    instance = shape["instance"]
    print(plain(f"instead of {instance['service']} on {instance['node']}/{instance['gpu']}:"))
    adds = head_amounts("ADDS/H", currency)
    OutputTable(["  GPU TYPE", "INSTANCES", "VARIANT", "BATCH", "SM%", "NEW GPUS", adds]).rows(
        [
            f"  {choice['gpuType']}", choice["instances"], choice["variant"], choice["batch"], choice["smPercent"],
            "yes" if choice["opensGpus"] else "no", number(choice["addsPerHour"]),
        ]
        for choice in right
    )  # fmt: skip
