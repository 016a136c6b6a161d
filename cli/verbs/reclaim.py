"""`gpuwright reclaim`: say that the cloud takes nodes back soon, so that everything leaves them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, completes, duration
from cli.exits import Failed
from cli.output import plain, print_data, span
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find_all

EPILOG = """\
New copies start elsewhere before the old ones end, as in a drain, and nothing new is placed there. When the time has
come, a silent node is lost at once; one that still reports stays empty until the notice is withdrawn.
`gpuwright cordon` lists the notices in force.

Examples:
  gpuwright reclaim spot-7
  gpuwright reclaim spot-7 spot-8 --in 30s -m "rebalance recommendation"
  gpuwright reclaim spot-7 --withdraw
"""
USUAL_SECONDS = 120  # what most clouds leave


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    completes(parser.add_argument("nodes", nargs="+", metavar="NODE", help="a node"), "nodes")
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--in",
        dest="seconds",
        type=duration,
        metavar="TIME",
        default=USUAL_SECONDS,
        help="when the node goes: 30s, 2m; default: 2m",
    )
    when.add_argument("--withdraw", action="store_true", help="it does not go: plans may use it again")
    parser.add_argument("-m", "--message", metavar="TEXT", default="", help="why, for the record")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        for node in args.nodes:
            if "/" in node:
                raise Failed(f"{node!r} is not a node: a cloud takes whole nodes back; drain a single GPU instead")
        find_all(client, Kind.NODE, args.nodes)
        answers = [ask(client, args, node) for node in args.nodes]
    if not print_data(answers, args.output):
        for node in args.nodes:
            print(plain(f"{node} is not reclaimed" if args.withdraw else f"{node} {_read_given(args, node)}"))
    return exits.OK


def ask(client: ApiClient, args: argparse.Namespace, node: str) -> Any:
    """Gives or withdraws the notice of a node."""
    path = f"/api/v1/nodes/{node}/reclaim"
    if args.withdraw:
        return client.send("DELETE", path).json()
    body = {"seconds": args.seconds, "message": args.message}
    return client.send("POST", path, body=json.dumps(body).encode()).json()


def _read_given(args: argparse.Namespace, node: str) -> str:
    return f"goes in {span(args.seconds)}, and is being emptied; see: gpuwright describe node {node}"
