"""Writes docs/api.md, docs/commands.md and docs/errors.md from the contract, the command line and the code.

Usage: .venv/bin/python scripts/pages.py [--check]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.control.domain.events import Reason  # noqa: E402
from app.problem import TITLES  # noqa: E402
from cli.exits import MEANINGS  # noqa: E402
from cli.main import VERBS, Verb  # noqa: E402

DOCS = ROOT / "docs"
WRITTEN = "Written from the code by `make openapi`; do not edit it."

# What whoever meets a problem does about it; each name of TITLES has its line.
MENDED = {
    "bad-request": "The detail names the part: a header, a parameter, a cursor of another list.",
    "unauthorized": "Another token: it is unknown, expired or revoked. `gpuwright whoami` tries the one in use.",
    "forbidden": "A token of a scope that may; [reference](reference.md) has the table.",
    "not-found": "Look at the name and the tenant. What belongs to another tenant answers the same.",
    "method-not-allowed": "The header `Allow` lists what is.",
    "request-timeout": "Send the body faster, or a smaller one.",
    "conflict": "The detail names what stands against it: a reference, a plan's state, another write.",
    "gone": "List anew, and watch from the version that the list gives.",
    "precondition-failed": "Read the object, make the change on what it is now, send the new ETag.",
    "too-large": "The limit stands in the detail. Apply in parts.",
    "unsupported-media-type": "`application/json` or `application/yaml`.",
    "invalid": "Every fault is listed in `faults`: document, field, value, what is allowed.",
    "rate-limited": "Wait for `Retry-After`. `GPUWRIGHT_RATE_PER_SECOND` is the limit of one token.",
    "head-too-large": "Fewer or shorter headers.",
    "internal": "A fault of ours: the log has it under the `requestId`. A retry with the same Idempotency-Key is safe.",
    "unavailable": "Wait for `Retry-After`; the detail says for what: the database, the schema, too many waiting.",
}


def main() -> int:
    os.environ.pop("XDG_STATE_HOME", None)  # a default of whoever runs this is none of everybody's
    pages = {"api.md": _api(), "commands.md": _commands(), "errors.md": _errors()}
    made = {DOCS / name: "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}
    drifted = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in drifted:
            print(f"{path.relative_to(ROOT)} has drifted from the code; run: make openapi", file=sys.stderr)
        return 1 if drifted else 0
    for path in drifted:
        path.write_text(made[path])
    return 0


def _api() -> Iterator[str]:
    yield f"# REST\n\n{WRITTEN}\n"
    yield "The whole contract, with every field, is `openapi/openapi.json`; a server has it at `/openapi.json`.\n"
    yield (
        "Requests carry `Authorization: Bearer TOKEN`. Writes take an `Idempotency-Key`: the same key again has one "
        "effect and gets the first answer. Objects have an ETag. Lists page by `cursor`. Refusals are problems "
        "([errors](errors.md)).\n"
    )
    by_tag: dict[str, list[tuple[str, str, str]]] = {}
    for path, methods in json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"].items():
        for method, operation in methods.items():
            for tag in operation.get("tags", ["other"])[:1]:
                by_tag.setdefault(tag, []).append((method.upper(), f"`{path}`", operation.get("summary", "")))
    for tag in sorted(by_tag):
        yield f"## {tag}\n"
        yield from _table(("", "path", "what"), by_tag[tag])


def _commands() -> Iterator[str]:
    yield f"# Verbs and options\n\n{WRITTEN} How they go together is told in [the command line](cli.md).\n"
    for verb in VERBS:
        yield f"## {verb.name}\n"
        extra = f" Needs `gpuwright[{verb.extra}]`." if verb.extra else ""
        yield f"{_sentence(verb.help)}{extra}\n"
        yield from _options(_parser(verb), f"gpuwright {verb.name}")


def _parser(verb: Verb) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"gpuwright {verb.name}")
    importlib.import_module(verb.module).add_arguments(parser)
    return parser


def _options(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    """Those of a verb, then of each of its actions; what every verb has beside is said once, in cli.md."""
    rows = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices
        elif action.dest not in CONNECTION and action.help != argparse.SUPPRESS:
            rows.append(_option(action))
    if rows:
        yield from _table((f"`{words}`", "what"), rows)
    for name, one in below.items():
        yield from _options(one, f"{words} {name}")


CONNECTION = {"help", "context", "server", "token_file", "tenant", "request_timeout", "verbose"}


def _option(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    if isinstance(value, tuple):
        value = " ".join(value)
    if not action.option_strings:
        return f"`{value or action.dest.upper()}`", _help(action)
    takes = action.nargs != 0
    return f"`{', '.join(action.option_strings)}{f' {value or action.dest.upper()}' if takes else ''}`", _help(action)


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    return re.sub(r"%\(default\)s", str(action.default), text).replace(str(Path.home()), "~")


def _errors() -> Iterator[str]:
    yield f"# Errors\n\n{WRITTEN}\n"
    yield "## Problems\n"
    yield (
        "Every refusal of the server is `application/problem+json` of type `urn:gpuwright:problem:NAME`, with "
        "`detail` in words, the `requestId` under which the log has it, and for `invalid` every fault at once.\n"
    )
    yield from _table(
        ("name", "status", "what", "what to do"),
        ((f"`{name}`", status, title, MENDED[name]) for name, (status, title) in TITLES.items()),
    )
    yield "## Exit codes\n"
    yield from _table(("code", "meaning"), MEANINGS)
    yield "## Alarms\n"
    yield "Events of severity `alarm`, as `gpuwright events --severity alarm` shows them.\n"
    yield from _table(("reason", "what"), ((f"`{r}`", r.sentence) for r in Reason if r.severity == "alarm"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _table(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    heading = list(heading)
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


if __name__ == "__main__":
    raise SystemExit(main())
