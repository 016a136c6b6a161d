"""`gpuwright logs`: what a service or a job prints, from the nodes that run it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, completes
from cli.exits import Failed
from cli.output import plain, print_data
from cli.patience import waiting
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find

EPILOG = """\
Nodes keep the last 1 to 2 MiB of each process; of a job also those of its last processes, so that a failure can be
read. The first answer has the last 64 KiB of each instance. With several instances each line begins with its own.

Examples:
  gpuwright logs job lab/finetune
  gpuwright logs service shop/search --follow
"""
KINDS = {"service": Kind.SERVICE, "job": Kind.JOB}
WAIT_SECONDS = 20.0
PAUSE_SECONDS = 1.0  # while nothing runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("what", metavar="service|job", help="service or job")
    completes(parser.add_argument("name", nargs="?", metavar="TENANT/NAME", help="its name"), "names")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what it prints from now on")
    parser.add_argument("--json", action="store_true", help="one answer of the server, as JSON")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    if args.what not in KINDS or not args.name:
        name = args.name or (args.what if args.what not in KINDS else "TENANT/NAME")
        raise Failed(f"name what it is and its name: gpuwright logs service {name}, or: gpuwright logs job {name}")
    if args.json and args.follow:
        raise Failed("--json is one answer; leave out --follow")
    with ApiClient(resolve(args)) as client:
        metadata = find(client, KINDS[args.what], args.name)["metadata"]
        path = f"/api/v1/logs/{KINDS[args.what].plural}/{metadata['tenant']}/{metadata['name']}"
        with waiting("reading logs"):
            found = client.get(path)
        if print_data(found, "json" if args.json else "text"):
            return exits.OK
        if not found["items"]:
            print(f"{args.what} {args.name} has not run yet", file=sys.stderr)
        if found["items"] and not args.follow and not any(item["answered"] for item in found["items"]):
            raise Failed(_explain_silence(f"{args.what} {args.name}", found["items"]), exits.NO)
        _print(found["items"], sys.stderr if not args.follow else None)
        while args.follow:
            after = found["after"]
            found = client.get(path, {"after": after, "waitSeconds": WAIT_SECONDS} if after else None)
            _print(found["items"], None)
            if not any(item["answered"] for item in found["items"]):
                time.sleep(PAUSE_SECONDS)
    return exits.OK


NO_AGENT = "a node without an agent does not answer: one that is away, or that `gpuwright up` simulates"


def _explain_silence(what: str, items: Sequence[Mapping[str, Any]]) -> str:
    nodes = ", ".join(sorted({str(item["node"]) for item in items}))
    return f"nothing was read of {what}: no answer from {nodes}; {NO_AGENT}"


def _print(items: Sequence[Mapping[str, Any]], notes: Any) -> None:
    """Prints the lines of each instance; `notes` gets the nodes that did not answer."""
    several = len(items) > 1
    for item in items:
        for line in item["text"].splitlines():
            print(f"{item['instance']}: {plain(line)}" if several else plain(line), flush=True)
        if notes is not None and not item["answered"]:
            print(f"node {item['node']} does not answer for {item['instance']}", file=notes)
    if notes is not None and not all(item["answered"] for item in items):
        print(NO_AGENT, file=notes)
