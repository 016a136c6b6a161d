"""The hidden verb behind shell completion: names of a kind, quickly or not at all."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from cli import exits
from cli.client import ApiClient
from cli.contexts import config_path, load, resolve
from cli.exits import Failed
from cli.kinds import kind_of
from cli.output import plain

PATIENCE_SECONDS = 1.0  # a shell that waits longer for a Tab feels broken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what")
    for flag in ("--context", "--server", "--token-file", "--tenant"):
        parser.add_argument(flag)


def run(args: argparse.Namespace) -> int:
    try:
        for name in names(args):
            if name == plain(name) and not any(char in name for char in " :"):
                sys.stdout.write(name + "\n")
    except Failed:  # no completion is better than an error in the middle of a command line
        pass
    return exits.OK


def names(args: argparse.Namespace) -> list[str]:
    """Context names, or TENANT/NAME or NAME of the first objects of a kind."""
    if args.what == "contexts":
        return sorted(load(config_path())["contexts"])
    kind = kind_of(args.what)
    connection = replace(resolve(args), request_seconds=PATIENCE_SECONDS)
    with ApiClient(connection, tries=1) as client:
        query = {"limit": 500, "tenant": connection.tenant if kind.tenanted else ""}
        found = [item["metadata"] for item in client.get(f"/api/v1/{kind.plural}", query)["items"]]
    return [f"{entry['tenant']}/{entry['name']}" if entry.get("tenant") else entry["name"] for entry in found]
