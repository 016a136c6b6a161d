"""Prints a proposed division of GPUs into MIG devices as an order for an operator, and writes its manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.control.answer.division.wire import TYPES_FILE, DivisionWire
from cli.exits import INTERNAL, Failed
from cli.output import format_yaml, plain, say
from cli.talk.contexts import reason

SERVICES_SHOWN = 20
NODE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")


def list_division(division: DivisionWire | None) -> Iterator[str]:
    """Yields what to divide and why, then the commands node by node; nothing where none was asked for."""
    if division is None:
        return
    for sentence in division["sentences"]:
        yield plain(sentence)
    services = division["services"]
    for service in services[:SERVICES_SHOWN]:
        yield plain(f"  {service['service']}: {service['copies']} on devices: {service['reason']}")
    if len(services) > SERVICES_SHOWN:
        yield f"  and {len(services) - SERVICES_SHOWN} more services; -o json has them all"
    for number, step in enumerate(division["steps"], start=1):
        yield plain(f"step {number}, {step['node']}:")
        for command in step["commands"]:
            yield plain(f"  {command['on'] or 'anywhere':<12} {command['command']}")
        for check in step["checks"]:
            yield plain(f"  check        {check}")
    for entry in division["leftOut"] if division["steps"] else ():
        yield plain(f"not divided: {entry['nodes']} nodes: {entry['reason']}")


def write_manifests(division: DivisionWire, folder: Path) -> None:
    """Writes the manifests that the commands apply: the types and profiles, and a file for each node."""
    if not division["steps"]:
        say(f"nothing is written to {folder}: nothing is to be divided")
        return
    files: dict[str, Sequence[Mapping[str, Any]]] = {TYPES_FILE: division["manifests"]}
    files |= {f"{step['node']}.yaml": [step["manifest"]] for step in division["steps"]}
    if odd := [step["node"] for step in division["steps"] if NODE_NAME.fullmatch(step["node"]) is None]:
        raise Failed(f"nothing is written: the server says {odd[0][:80]!r}, which is no name of a node", INTERNAL)
    try:
        for name, documents in files.items():
            (folder / name).write_text("\n---\n".join(map(format_yaml, documents)) + "\n", encoding="utf-8")
    except OSError as error:
        raise Failed(f"cannot write {folder}: {reason(error)}", INTERNAL) from None
    say(f"{len(files)} files are in {folder}: type the commands there")
