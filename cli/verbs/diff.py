"""`gpuwright diff`: what apply would change, field by field, judged by the server."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, add_file_arguments
from cli.exits import Failed
from cli.kinds import label
from cli.output import colour, plain, print_data
from cli.verbs.apply import add_set_arguments, read_files, submit, warn

EPILOG = """\
Exit codes: 0 no difference, 1 differences, 2 any error.

Examples:
  gpuwright diff -f fleet/
  gpuwright diff -f shop/ --set shop --prune || echo "the world is not as shop/ says"
"""
SIGNS = {"created": ("+", "green"), "deleted": ("-", "red"), "updated": ("~", "yellow")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    add_set_arguments(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        answer = submit(args, read_files(args), dry_run=True)
    except Failed as failure:  # 1 means differences here, so that every error is 2
        raise Failed(failure.message, exits.BAD_INPUT, failure.particulars) from failure
    changed = [change for change in answer["changes"] if change["action"] != "unchanged"]
    if not print_data(changed, args.output):
        for change in changed:
            for line in lines(change):
                print(line)
        warn(answer)
    return exits.NO if changed else exits.OK


def lines(change: Mapping[str, Any]) -> Iterator[str]:
    """Yields the object, then each field that would differ."""
    sign, tint = SIGNS.get(change["action"], ("?", "bold"))
    name = label(change["kind"], change.get("tenant"), change["name"])
    yield colour(plain(f"{sign} {name} would be {change['action']}"), tint)
    for entry in change.get("diff") or []:
        path, before, after = entry["path"], entry.get("before"), entry.get("after")
        if before is None:
            yield colour(plain(f"    + {path}: {shown(after)}"), "green")
        elif after is None:
            yield colour(plain(f"    - {path}: {shown(before)}"), "red")
        else:
            yield (plain(f"    ~ {path}: ") + colour(shown(before), "red") + " -> " + colour(shown(after), "green"))


def shown(value: object) -> str:
    """Returns a value in JSON, in ASCII."""
    return json.dumps(value)
