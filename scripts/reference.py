"""Writes docs/reference.md from the code: kinds and fields, who may do what, problems, settings, a node.

Usage: .venv/bin/python scripts/reference.py [--check]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agents.run.metrics import families  # noqa: E402
from agents.run.view import AgentView  # noqa: E402
from app.access import TABLE, AccessVerb, Noun, Role  # noqa: E402
from app.manifests.kinds import schema  # noqa: E402
from app.manifests.model import STORED, Kind  # noqa: E402
from app.problem import TITLES  # noqa: E402
from app.settings import PREFIX, UNPREFIXED, Settings  # noqa: E402
from cli.verbs import agent, gateway  # noqa: E402
from scripts.generated import table, write_or_check  # noqa: E402

FILE = ROOT / "docs" / "reference.md"
UNBOUNDED = 1e12  # every number's outer bound; stated once, not in each row
HEAD = """\
# Reference

Written from the code by `make openapi`; do not edit it. The REST routes are in `openapi/openapi.json`, the command
line in [cli.md](cli.md), whole manifests in `examples/`.
"""


def main() -> int:
    text = "\n".join([HEAD, *_kinds(), *_access(), *_problems(), *_settings(), *_options(), *_metrics()])
    return write_or_check({FILE: text})


def _kinds() -> Iterator[str]:
    yield "## Kinds\n"
    yield (
        "Every manifest has `apiVersion: gpuwright/v1`, `kind`, `metadata` (`name`, `labels`, and `tenant` for kinds "
        "that have one) and `spec`. Names are DNS labels. Numbers are at most 1e12. Fields in bold are required.\n\n"
        "Your editor completes fields and marks mistakes: `gpuwright schema > gpuwright.schema.json`, and `# "
        "yaml-language-server: $schema=gpuwright.schema.json` as the first line of a manifest.\n"
    )
    for kind in STORED:
        whole = schema(kind)
        yield f"### {kind}\n"
        where = "belongs to a tenant" if kind.tenanted else "cluster-wide"
        yield f"{whole['description']} `/api/v1/{kind.plural}`, {where}.\n"
        yield from _fields(whole)
        for name, part in whole.get("$defs", {}).items():
            yield f"`{name}`: {part['description']}\n"
            yield from _fields(part)


def _fields(of: Mapping[str, Any]) -> Iterator[str]:
    required = set(of.get("required", ()))
    yield from table(
        ("field", "what", "allowed", "default"),
        (
            (
                f"**{name}**" if name in required else name,
                field.get("description", ""),
                _describe_allowed(field),
                _default(field.get("default")),
            )
            for name, field in of["properties"].items()
        ),
    )


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _describe_allowed(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return f"`{field['$ref'].rsplit('/', 1)[1]}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            allowed = (_describe_allowed(choice) for choice in field[several] if choice.get("type") != "null")
            return " or ".join(dict.fromkeys(allowed))
    if "x-allowed" in field:
        return str(field["x-allowed"])
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    describe = ALLOWED_OF_TYPE.get(field.get("type", ""))
    return describe(field) if describe else ""


def _map(field: Mapping[str, Any]) -> str:
    values = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
    inner = next((value for value in values if isinstance(value, dict)), None)
    return f"a map to: {_describe_allowed(inner)}" if inner else "a map"


ALLOWED_OF_TYPE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "array": lambda field: f"a list of: {_describe_allowed(field['items'])}",
    "object": _map,
    "integer": lambda field: "whole number" + _bounds(field),
    "number": lambda field: "number" + _bounds(field),
    "string": lambda field: "a moment, RFC 3339" if field.get("format") == "date-time" else "text",
    "boolean": lambda field: "true or false",
}


def _bounds(field: Mapping[str, Any]) -> str:
    low, over, high = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    high = None if high is not None and high >= UNBOUNDED else high
    if (below := field.get("exclusiveMaximum")) is not None:
        return f", {low:g}..{below:g}, without {below:g}"
    if low is not None and high is not None:
        return f", {low:g}..{high:g}"
    if over is not None:
        return f" over {over:g}" + (f", at most {high:g}" if high is not None else "")
    return f", {low:g} or more" if low is not None else ""


def _access() -> Iterator[str]:
    yield "## Who may do what\n"
    yield (
        "`all`, or `own` (the tenant's, or the node's), or `admitted` (models that admit the tenant, and their "
        "profiles). An empty cell means refused. Another tenant's objects answer 404.\n"
    )
    things = [*STORED, *Noun]
    yield from table(
        ("", *(str(role) for role in Role)),
        ((str(thing), *(_grants(role, thing) for role in Role)) for thing in things),
    )


def _grants(role: Role, thing: Kind | Noun) -> str:
    granted = ((verb, TABLE[role].get((thing, verb))) for verb in AccessVerb)
    return ", ".join(f"{verb} {reach}" for verb, reach in granted if reach)


def _problems() -> Iterator[str]:
    yield "## Problems\n"
    yield "Every error is `application/problem+json` of type `urn:gpuwright:problem:<name>`.\n"
    yield from table(("name", "status", "title"), ((name, status, title) for name, (status, title) in TITLES.items()))


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield "The server reads its environment once, when it starts.\n"
    comments = dict(re.findall(r"^    (\w+): [^#\n]+?  # (.+)$", (ROOT / "app/settings.py").read_text(), re.MULTILINE))
    yield from table(
        ("variable", "default", "what"),
        (
            (
                f"`{field.name.upper() if field.name in UNPREFIXED else PREFIX + field.name.upper()}`",
                _default(None if field.default in (MISSING, "") else field.default),
                comments.get(field.name, ""),
            )
            for field in fields(Settings)
        ),
    )


def _options() -> Iterator[str]:
    yield "## Options of a node\n"
    yield "Options of `gpuwright agent run` and `gpuwright gateway`; [verbs](commands.md) has all others.\n"
    os.environ.pop("XDG_STATE_HOME", None)  # a default of this machine must not reach the page
    of_agent, of_gateway = argparse.ArgumentParser(), argparse.ArgumentParser()
    agent.add_arguments(of_agent)
    gateway.add_arguments(of_gateway)
    (verbs,) = (action for action in of_agent._actions if isinstance(action, argparse._SubParsersAction))
    for name, parser in (("agent run", verbs.choices["run"]), ("gateway", of_gateway)):
        options = [action for action in parser._actions if action.option_strings and action.dest != "help"]
        yield from table((f"`{name}`", "default", "what"), map(_option, options))


def _option(option: argparse.Action) -> tuple[str, str, str]:
    given = str(option.metavar or "|".join(option.choices or ()))
    what = (option.help or "").removesuffix("default %(default)s").rstrip(" ;")
    home = str(Path.home())
    return (
        f"`{f'{option.option_strings[0]} {given}'.rstrip()}`",
        _default(option.default or None).replace(home, "~"),
        what,
    )


def _metrics() -> Iterator[str]:
    yield "## Metrics of a node\n"
    yield "`gpuwright agent run --metrics HOST:PORT` serves these; [gateway.md](gateway.md) has the gateway's.\n"
    yield from table(
        ("metric", "kind", "what"),
        ((f"`{family.name}`", family.kind, family.help) for family in families(AgentView("node"))),
    )


if __name__ == "__main__":
    raise SystemExit(main())
