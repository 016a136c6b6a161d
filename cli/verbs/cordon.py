"""`gpuwright cordon`, `uncordon` and `drain`: keep plans off a node or a GPU, and let them use it again."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, completes, duration
from cli.exits import Failed
from cli.kinds import words
from cli.output import OutputTable, age, ahead, plain, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find_all

EPILOGS = {
    "cordon": """\
Nothing new is placed there; what runs stays. Without a name: what is cordoned now.

Examples:
  gpuwright cordon node-7
  gpuwright cordon node-7/2 -m "fan is loud"
  gpuwright cordon
""",
    "uncordon": """\
Of a node: also of each of its GPUs.

Example:
  gpuwright uncordon node-7
""",
    "drain": """\
Everything is moved off, new copies before old ones end; what cannot leave stays and is named, with the reason:
see `gpuwright events` and `gpuwright plan show`.

Examples:
  gpuwright drain node-7
  gpuwright drain node-7/2 --deadline 30m
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments(parser, "cordon")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """Adds the arguments of this verb."""
    parser.epilog = EPILOGS[verb]
    nargs = "*" if verb == "cordon" else "+"
    place = parser.add_argument("places", nargs=nargs, metavar="NODE[/GPU]", help="a node, or one of its GPUs")
    completes(place, "nodes")
    if verb == "drain":
        parser.add_argument(
            "--deadline",
            type=duration,
            metavar="TIME",
            help="when it must be empty: 30m, 2h; default: as soon as possible",
        )
    if verb != "uncordon":
        parser.add_argument("-m", "--message", metavar="TEXT", default="", help="why, for the record")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.set_defaults(verb=verb)
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        if not args.places:
            return show(client, args)
        places = [read_place(place) for place in args.places]
        for (node, gpu), found in zip(places, find_nodes(client, args), strict=True):
            if gpu is not None and gpu >= found["spec"]["gpus"]:
                raise Failed(
                    f"node {node} has {found['spec']['gpus']} GPUs; there is no GPU {gpu}; nothing was changed"
                )
        answers = [ask(client, args, node, gpu) for node, gpu in places]
    if not print_data(answers, args.output):
        for place in args.places:
            print(plain(f"{place} {DONE[args.verb].format(node=place.partition('/')[0])}"))
    return exits.OK


def find_nodes(client: ApiClient, args: argparse.Namespace) -> list[Any]:
    """Returns the node of each place."""
    try:
        return find_all(client, Kind.NODE, [place.partition("/")[0] for place in args.places])
    except Failed as failure:
        if args.places[0] in words(Kind.NODE) and len(args.places) > 1:
            meant = " ".join(args.places[1:])
            raise Failed(f"every place is a node already; did you mean gpuwright {args.verb} {meant}?") from failure
        raise


DONE = {
    "cordon": "cordoned",
    "uncordon": "uncordoned",
    "drain": "is being drained; what is still on it: gpuwright describe node {node}",
}


def read_place(place: str) -> tuple[str, int | None]:
    """Returns the node, and the GPU if it is one."""
    if "," in place:
        raise Failed(f"{place!r} is not a node or GPU; several have spaces between them: {place.replace(',', ' ')}")
    node, slash, gpu = place.partition("/")
    if not node or (slash and not gpu.isdecimal()):
        raise Failed(f"{place!r} is not a node or GPU: use NODE or NODE/INDEX, like node-7/2")
    return node, int(gpu) if slash else None


def ask(client: ApiClient, args: argparse.Namespace, node: str, gpu: int | None) -> Any:
    """Sends the request for a node or GPU."""
    body: dict[str, Any] = {} if gpu is None else {"gpu": gpu}
    if getattr(args, "message", ""):
        body["message"] = args.message
    if getattr(args, "deadline", None):
        body["deadline"] = (datetime.now(UTC) + timedelta(seconds=args.deadline)).isoformat()
    return client.send("POST", f"/api/v1/nodes/{node}/{args.verb}", body=json.dumps(body).encode()).json()


def show(client: ApiClient, args: argparse.Namespace) -> int:
    """Prints what is cordoned, drained or to be reclaimed now."""
    items = client.get("/api/v1/cordons")["items"]
    if not print_data(items, args.output):
        if not items:
            say("nothing is cordoned")
        OutputTable(["PLACE", "MODE", "SINCE", "DEADLINE", "MESSAGE"]).rows(
            [
                item["node"] if item["gpu"] is None else f"{item['node']}/{item['gpu']}", item["mode"],
                age(item["askedAt"]),
                ahead(item["deadline"]) if item["deadline"] else "", item["message"],
            ]
            for item in items
        )  # fmt: skip
    return exits.OK
