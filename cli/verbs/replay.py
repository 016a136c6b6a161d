"""`gpuwright replay`: repeat a recorded decision offline, from its snapshot, and compare the result."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cli import exits
from cli.arguments import add_connection_arguments, completes, whole
from cli.exits import Failed
from cli.output import plain
from cli.patience import waiting
from cli.talk.client import ApiClient
from cli.talk.contexts import reason, resolve

if TYPE_CHECKING:
    from app.control.answer.replay import Replayed

EPILOG = """\
The snapshot, the seed and the steps done come from the server, or from a file; nothing else is asked of it.
Exit code 0 when the same comes out, 1 when it does not, 2 where other versions are installed than decided then.

Examples:
  gpuwright replay 1042
  gpuwright replay 1042 --save decision.json
  gpuwright replay -f decision.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("plan", nargs="?", type=whole(1), metavar="PLAN", help="generation of the plan")
    completes(parser.add_argument("-f", "--file", metavar="FILE", help="a saved record"), "files")
    completes(parser.add_argument("--save", metavar="FILE", help="also save the record to this file"), "files")
    parser.add_argument("--json", action="store_true", help="one JSON object: plan, identical, difference, message")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if (args.plan is None) == (args.file is None):
        raise Failed("name the generation of a plan, or a file with its record; see: gpuwright replay --help")
    body = _body(args)  # before the solvers are loaded, which takes long where they are compiled
    from app.control.answer.replay import ReplayRefused, read_record, replay
    from app.control.solve.inline import Inline

    try:
        record = read_record(body)
    except ReplayRefused as refused:
        raise Failed(f"{args.file or args.plan}: {refused}") from None
    try:
        with waiting("deciding again"):
            found = replay(record, Inline())
    except ReplayRefused as refused:
        raise Failed(str(refused)) from None
    _show(found, record.generation, args.json)
    return exits.OK if found.is_identical else exits.NO


def _body(args: argparse.Namespace) -> bytes:
    try:
        if args.file is not None:
            return Path(args.file).read_bytes()
        with ApiClient(resolve(args)) as client:
            body = client.send("GET", f"/api/v1/plans/{args.plan}/record").body
        if args.save:
            Path(args.save).write_bytes(body)
    except OSError as error:
        raise Failed(f"cannot use {args.file or args.save}: {reason(error)}") from None
    return body


def _show(found: Replayed, generation: int, as_json: bool) -> None:
    if as_json:
        answer = {
            "plan": generation, "identical": found.is_identical, "difference": found.difference,
            "message": found.message,
        }  # fmt: skip
        print(json.dumps(answer))
    elif found.is_identical:
        print(plain(f"plan {generation}: identical" + (f" ({found.message})" if found.message else "")))
    else:
        print(plain(f"plan {generation}: different: {found.difference}"))
