"""`gpuwright drain`: move everything off nodes and GPUs, and wait until that is done."""

from __future__ import annotations

import argparse
import time
from typing import Any

from cli import exits
from cli.arguments import duration
from cli.exits import Failed
from cli.output import plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.refusals import ServerRefusal
from cli.verbs import cordon

__all__ = ["add_arguments", "run"]

LOOK_SECONDS = 2.0
MOST_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cordon.arguments(parser, "drain")
    parser.add_argument("--wait", action="store_true", help="return once nothing runs there any more")
    parser.add_argument(
        "--timeout", type=duration, default=900, metavar="TIME", help="how long --wait waits; default 15m"
    )


def run(args: argparse.Namespace) -> int:
    code = cordon.run(args)
    deadline = time.monotonic() + args.timeout
    with ApiClient(resolve(args)) as client:
        for place in args.places:
            if args.wait:
                await_empty(client, place, deadline, args.timeout)
            elif left := len(copies_on(client, place)):
                say(f"{place}: {_copies(left)} to move; with --wait this returns after the last one")
    return code


def await_empty(client: ApiClient, place: str, deadline: float, seconds: float) -> None:
    """Waits until nothing runs on the node or GPU, and reports how much is left."""
    before = None
    while left := copies_on(client, place):
        if time.monotonic() >= deadline:
            named = ", ".join(left[:MOST_NAMED]) + (
                f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
            )
            node = place.partition("/")[0]
            raise Failed(
                f"{place} is not empty after {seconds:g} s: {named}; why: gpuwright events --for {node}", exits.NO
            )
        if len(left) != before:
            before = len(left)
            say(f"{place}: {_copies(before)} left")
        time.sleep(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
    print(plain(f"{place} is empty"))


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def copies_on(client: ApiClient, place: str) -> list[str]:
    """Returns what still runs on a node or on one of its GPUs, by the node's last report."""
    node, slash, gpu = place.partition("/")
    try:
        copies: list[dict[str, Any]] = client.get(f"/api/v1/nodes/{node}/state").get("copies", [])
    except ServerRefusal as refusal:
        if refusal.status == 404:  # no agent has reported from there
            return []
        raise
    return [
        f"{copy.get('tenant', '')}/{copy.get('service') or copy.get('job')} ({copy.get('stage')})"
        for copy in copies
        if copy.get("stage") != "gone" and (not slash or copy.get("gpu") == int(gpu))
    ]
