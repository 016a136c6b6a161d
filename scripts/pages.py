"""Writes docs/api.md, docs/commands.md and docs/errors.md from the contract, the command line and the code.

Usage: .venv/bin/python scripts/pages.py [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.control.domain.events import Reason  # noqa: E402
from app.problem import TITLES  # noqa: E402
from cli.exits import MEANINGS  # noqa: E402
from cli.verb_table import OF_THE_LAB, VERBS, CommandVerb, load  # noqa: E402
from scripts.generated import table, write_or_check  # noqa: E402

DOCS = ROOT / "docs"
WRITTEN = "Written from the code by `make openapi`; do not edit it."

# What to do about a problem; each name of TITLES has its line.
MENDED = {
    "bad-request": "The detail names the faulty part: a header, a parameter, a cursor of another list.",
    "unauthorized": "The token is unknown, expired or revoked: use another. `gpuwright whoami` shows the one in use.",
    "forbidden": "Use a token whose scope allows it; [reference](reference.md) has the table.",
    "not-found": "Check the name and the tenant. Another tenant's objects answer the same.",
    "method-not-allowed": "The header `Allow` lists the allowed methods.",
    "request-timeout": "Send the body faster, or a smaller one.",
    "conflict": "The detail names the obstacle: a reference, a plan's state, another write.",
    "gone": "List again, and watch from the version of that list.",
    "precondition-failed": "Read the object again, apply your change to it, and send the new ETag.",
    "too-large": "The detail has the limit. Apply in parts.",
    "unsupported-media-type": "Send `application/json` or `application/yaml`.",
    "invalid": "`faults` lists every fault: document, field, value, what is allowed.",
    "rate-limited": "Wait for `Retry-After`. `GPUWRIGHT_RATE_PER_SECOND` is the limit of one token, "
    "`GPUWRIGHT_TENANT_CHANGES` that of a tenant's changes a day.",
    "head-too-large": "Send fewer or shorter headers.",
    "internal": "A bug: the log has it under the `requestId`. A retry with the same Idempotency-Key is safe.",
    "unavailable": "Wait for `Retry-After`; the detail says why: the database, the schema, too many waiting requests.",
}


def main() -> int:
    os.environ.pop("XDG_STATE_HOME", None)  # a default of this machine must not reach the pages
    pages = {"api.md": _api(), "commands.md": _commands(), "errors.md": _errors()}
    made = {DOCS / name: "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}
    return write_or_check(made)


def _api() -> Iterator[str]:
    yield f"# REST\n\n{WRITTEN}\n"
    yield (
        "`openapi/openapi.json` is the whole contract, with every field; a server has it at `/openapi.json`, and for "
        "people at `/docs`, without a token: both are the same on every server. `openapi/client.yaml` configures "
        "openapi-python-client, which writes a client from it.\n"
    )
    yield (
        "Requests carry `Authorization: Bearer TOKEN`. Writes take an `Idempotency-Key`: a repeated key has no second "
        "effect and gets the first answer. Objects have an ETag: `If-Match` writes "
        "over that version alone, `If-None-Match: *` only creates, and a read with a known ETag is answered 304. "
        "Lists page by `cursor`. Errors are problem documents "
        "([errors](errors.md)).\n"
    )
    by_tag: dict[str, list[tuple[str, str, str]]] = {}
    for path, methods in json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"].items():
        for method, operation in methods.items():
            for tag in operation.get("tags", ["other"])[:1]:
                by_tag.setdefault(tag, []).append((method.upper(), f"`{path}`", operation.get("summary", "")))
    for tag in sorted(by_tag):
        yield f"## {tag}\n"
        yield from table(("", "path", "what"), by_tag[tag])


def _commands() -> Iterator[str]:
    yield f"# Verbs and options\n\n{WRITTEN} [The command line](cli.md) explains how they work together.\n"
    for verb in VERBS:
        yield f"## {verb.name}\n"
        extras = " and ".join(f"`{name}`" for name in verb.extra.split(","))
        extra = f" Needs the extra{'s' if ',' in verb.extra else ''} {extras}." if verb.extra else ""
        extra += " Comes with [the lab](evaluate.md)." if verb.module == OF_THE_LAB else ""
        yield f"{_sentence(verb.help)}{extra}\n"
        yield from _options(_parser(verb), f"gpuwright {verb.name}")


def _parser(verb: CommandVerb) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"gpuwright {verb.name}")
    load(verb).add_arguments(parser)
    return parser


def _options(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    """Yields the options of a verb, then of each of its actions; those that every verb has are in cli.md."""
    rows = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = action.choices
        elif action.dest not in CONNECTION and action.help != argparse.SUPPRESS:
            rows.append(_option(action))
    if rows:
        yield from table((f"`{words}`", "what"), rows)
    for name, sub in below.items():
        yield from _options(sub, f"{words} {name}")


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
        "Every error of the server is `application/problem+json` of type `urn:gpuwright:problem:NAME`, with a "
        "readable `detail`, the `requestId` for the log, and for `invalid` every fault at once.\n"
    )
    yield from table(
        ("name", "status", "what", "what to do"),
        ((f"`{name}`", status, title, MENDED[name]) for name, (status, title) in TITLES.items()),
    )
    yield "## Exit codes\n"
    yield from table(("code", "meaning"), MEANINGS)
    yield "## Alarms\n"
    yield "These are events of severity `alarm`; `gpuwright events --severity alarm` shows them.\n"
    yield from table(("reason", "what"), ((f"`{r}`", r.sentence) for r in Reason if r.severity == "alarm"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


if __name__ == "__main__":
    raise SystemExit(main())
