"""`gpuwright apply`: send files to the server, which applies all or nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli import exits, sources
from cli.arguments import add_connection_arguments, add_file_arguments
from cli.exits import Failed
from cli.kinds import label
from cli.output import colour, plain, print_data, say
from cli.talk.client import FILES_MEDIA, ApiClient
from cli.talk.contexts import resolve
from cli.verbs.delete import confirm

EPILOG = """\
Examples:
  gpuwright apply -f fleet.yaml
  gpuwright apply -f fleet/ --dry-run          what the server would do, without doing it
  gpuwright apply -f shop/ --set shop --prune  also delete what was applied as this set and is no longer in the files
  gpuwright get service shop/search -o yaml | gpuwright apply -f -
"""
COLOUR = {"created": "green", "updated": "yellow", "deleted": "red", "unchanged": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="let the server check and answer, but store nothing")
    add_set_arguments(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before --prune deletes")
    parser.add_argument("-o", "--output", choices=("name", "json", "yaml"), help="instead of one line for each object")
    add_connection_arguments(parser)


def add_set_arguments(parser: argparse.ArgumentParser) -> None:
    """`--set`, `--prune` and `--allow-empty`, as apply and diff have them."""
    parser.add_argument("--set", metavar="NAME", help="apply as this set: label the objects gpuwright.io/set=NAME")
    parser.add_argument("--prune", action="store_true", help="delete what the set has and the files lack; needs --set")
    parser.add_argument(
        "--allow-empty", action="store_true", help="let --prune delete the whole set, if no file is left"
    )


def run(args: argparse.Namespace) -> int:
    files = read_files(args)
    asks = args.prune and not (args.dry_run or args.yes)
    fingerprint = ask_to_prune(submit(args, files, dry_run=True)) if asks else ""
    answer = submit(args, files, dry_run=args.dry_run, prune_fingerprint=fingerprint)
    if not print_data(answer, args.output):
        report(answer, names_only=args.output == "name")
    return exits.OK


def read_files(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns name and text of each file; none where all of them are empty, and `--allow-empty` lets them be."""
    if args.prune and not args.set:
        raise Failed("--prune deletes what left a set; name the set: --set NAME")
    if args.allow_empty and not args.prune:
        raise Failed("--allow-empty is for --prune: give both")
    files = sources.read(args.files, recursive=args.recursive, allow_empty=args.allow_empty)
    return [] if args.allow_empty and not any(text.strip() for _, text in files) else files


def ask_to_prune(answer: Mapping[str, Any]) -> str:
    """Asks before anything is deleted; `answer` is that of a dry run. Returns the fingerprint of what may go."""
    doomed = [change for change in answer["changes"] if change["action"] == "deleted"]
    named = [label(change["kind"], change.get("tenant"), change["name"]) for change in doomed]
    if named and not confirm(named):
        raise Failed("nothing was applied or deleted", exits.NO)
    return str(answer.get("pruneFingerprint", ""))


def submit(
    args: argparse.Namespace, files: Sequence[tuple[str, str]], *, dry_run: bool, prune_fingerprint: str = ""
) -> dict[str, Any]:
    """Sends the files as one request and returns the server's answer. `prune_fingerprint`: of what may be deleted."""
    body = json.dumps({"files": [{"name": name, "text": text} for name, text in files]}, ensure_ascii=False)
    query = {
        "dryRun": dry_run or None,
        "set": args.set,
        "prune": args.prune or None,
        "allowEmpty": args.allow_empty or None,
        "pruneFingerprint": prune_fingerprint or None,
    }
    with ApiClient(resolve(args)) as client:
        answer = client.send("POST", "/api/v1/apply", query, body.encode(), FILES_MEDIA).json()
    if not isinstance(answer, dict) or "changes" not in answer:
        raise Failed("the answer does not come from a gpuwright server; is the address right?", exits.UNREACHABLE)
    return answer


def report(answer: dict[str, Any], *, names_only: bool) -> None:
    """Prints a line for each object; warnings go to stderr."""
    note = " (dry run)" if answer.get("dryRun") else ""
    for change in answer["changes"]:
        name = plain(label(change["kind"], change.get("tenant"), change["name"]))
        action = str(change["action"])
        print(name if names_only else f"{name} {colour(plain(action), COLOUR.get(action, 'bold'))}{note}")
    warn(answer)


def warn(answer: dict[str, Any]) -> None:
    """Prints the server's warnings about what it accepted."""
    for warning in answer.get("warnings") or []:
        say(f"warning: {warning}")
