"""The hidden verb behind shell completion: what may stand in place of the last word, by the verb's own parser.

Not argcomplete: the client has one dependency, and a Tab takes as long with it (60 to 110 ms of CPU, 100 to 150 here).
Nor click: its import takes 45 ms of CPU, that of argparse 12, and `gpuwright --help` as a whole about 30.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from cli import exits
from cli.exits import Failed
from cli.kinds import WORDS, kind_of
from cli.output import plain
from cli.talk.client import ApiClient
from cli.talk.contexts import config_path, load, resolve
from cli.verb_table import BY_NAME, VERBS, parser_of
from cli.verb_table import load as load_verb

PATIENCE_SECONDS = 1.0  # a shell that waits longer for a Tab feels broken
FILES = "@files"  # the shell knows them
ACTIVE = frozenset(" :$`'\"\\")  # of these a shell makes something else
CONNECTION = ("context", "server", "token_file", "tenant")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    with suppress(Failed):  # no completion is better than an error in the middle of a command line
        for word, text in find_offers(args.words[1:]):  # after `--`
            if word == plain(word) and not ACTIVE & set(word):
                sys.stdout.write(f"{word}\t{plain(text)}\n")
    return exits.OK


def find_offers(words: list[str]) -> Iterable[tuple[str, str]]:
    """Returns what may stand in place of the last word, each with a text about it."""
    *before, current = words
    verb = ""
    parser = _parser("get")  # its flags may come before any verb
    pending: argparse.Action | None = None  # a flag whose value comes next
    given: dict[str, str] = {}
    values: list[str] = []
    for word in before:
        if pending is not None:
            given[pending.dest] = word
            pending = None
        elif word.startswith("-"):
            flag = parser._option_string_actions.get(word)
            pending = flag if flag is not None and flag.nargs != 0 else None
        elif not verb:
            verb, parser = word, _parser(word)
        else:
            position = _position(parser, len(values))
            if isinstance(position, argparse._SubParsersAction) and word in position.choices:
                parser, values = position.choices[word], []
            else:
                values.append(word)
    if pending is None and current.startswith("-"):
        shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
        return [(word, action.help or "") for action in shown for word in action.option_strings]
    if pending is None and not verb:
        return [(verb.name, verb.help) for verb in VERBS]
    wanted = pending or _position(parser, len(values))
    return [] if wanted is None else _offer(wanted, values, given)


def _parser(verb: str) -> argparse.ArgumentParser:
    if verb == "help":
        parser = argparse.ArgumentParser()
        parser.add_argument("topic", choices=("exit-codes", *(verb.name for verb in VERBS)))
        return parser
    if verb not in BY_NAME:
        raise Failed(f"unknown verb {verb}")
    return parser_of(BY_NAME[verb], load_verb(BY_NAME[verb]))


def _position(parser: argparse.ArgumentParser, at: int) -> argparse.Action | None:
    positions = parser._get_positional_actions()
    if positions and at >= len(positions) and positions[-1].nargs in ("*", "+"):
        return positions[-1]
    return positions[at] if at < len(positions) else None


def _offer(action: argparse.Action, values: list[str], given: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    match getattr(action, "completes", ""):
        case "files":
            return [(FILES, "")]
        case "kinds":
            return [(word, "") for word in sorted(WORDS)]
        case "contexts":
            return [(name, "") for name in sorted(load(config_path())["contexts"])]
        case "nodes":
            return [(name, "") for name in _names("nodes", given) if name not in values]
        case "names":
            return [(name, "") for name in _names(values[0].partition("/")[0], given)] if values else []
    if isinstance(action, argparse._SubParsersAction):
        return [(choice.dest, choice.help or "") for choice in action._choices_actions]
    return [(str(choice), "") for choice in action.choices or ()]


def _names(kind_name: str, given: Mapping[str, str]) -> list[str]:
    """Returns TENANT/NAME or NAME of the first objects of a kind."""
    kind = kind_of(kind_name)
    connection = resolve(argparse.Namespace(**{name: given[name] for name in CONNECTION if name in given}))
    with ApiClient(replace(connection, request_seconds=PATIENCE_SECONDS), tries=1) as client:
        query = {"limit": 500, "tenant": connection.tenant if kind.tenanted else ""}
        found = [item["metadata"] for item in client.get(f"/api/v1/{kind.plural}", query)["items"]]
    return [f"{entry['tenant']}/{entry['name']}" if entry.get("tenant") else entry["name"] for entry in found]
