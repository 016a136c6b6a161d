"""`gpuwright describe`: one object with its conditions, for reading."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.arguments import add_connection_arguments, add_kind_argument, completes
from cli.currency import name_currency
from cli.exits import Failed
from cli.output import OutputTable, age, colour, format_yaml, labels, plain
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find, read_names
from cli.views.running import show_gpus, show_running, state_of

ALARMS = ("InventoryMismatch", "Degraded")  # conditions that should not hold
USUAL = {("Finished", "NotYet"), ("Placed", "Finished")}  # False, and nothing is wrong: type, reason


def is_wrong(condition: Mapping[str, Any]) -> bool:
    """Returns True if a person should look at the condition."""
    kind = condition.get("type")
    return condition.get("status") == str(kind in ALARMS) and (kind, condition.get("reason")) not in USUAL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Example:\n  gpuwright describe service shop/search\n"
    add_kind_argument(parser, "kind, or KIND/NAME")
    completes(parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or TENANT/NAME"), "names")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    targets = read_names(args.kind, args.names)
    if not targets:
        raise Failed(f"describe needs a name; see: gpuwright get {args.kind}")
    with ApiClient(resolve(args)) as client:
        for at, (kind, name) in enumerate(targets):
            if at:
                print()
            item = find(client, kind, name)
            show(item, client.currency)
            if kind is Kind.NODE:
                state = state_of(client, item["metadata"]["name"])
                if state is not None:
                    show_running(state)
    return exits.OK


def show(item: dict[str, Any], currency: str = "") -> None:
    """Facts, then what was declared, then what the control plane makes of it."""
    metadata = item["metadata"]
    facts = {
        "Name": metadata["name"],
        "Kind": item["kind"],
        "Tenant": metadata.get("tenant", ""),
        "Labels": labels(metadata.get("labels")),
        "Created": f"{metadata.get('createdAt', '')} ({age(metadata.get('createdAt', ''))} ago)",
        "Updated": f"{metadata.get('updatedAt', '')} ({age(metadata.get('updatedAt', ''))} ago)",
        "Generation": metadata.get("generation", ""),
        "Version": metadata.get("resourceVersion", ""),
        "UID": metadata.get("uid", ""),
    }
    for heading, value in facts.items():
        if value not in ("", None):
            print(f"{heading + ':':<12}{plain(value)}")
    print("Spec:")
    print(indent_text(format_yaml(item.get("spec", {}))))
    status = dict(item.get("status") or {})
    conditions = status.pop("conditions", [])
    gpus = status.pop("gpus", [])
    if status:
        print("Status:")
        print(indent_text(format_yaml(status)))
    show_gpus(gpus)
    if conditions:
        print("Conditions:")
        table = OutputTable(["  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"])
        table.rows(
            [
                f"  {entry.get('type')}",
                entry.get("status", ""),
                entry.get("reason", ""),
                age(entry.get("lastTransitionTime", "")),
                name_currency(entry.get("message", ""), currency),
            ]
            for entry in conditions
        )
        bad = [entry for entry in conditions if is_wrong(entry)]
        if bad:
            print(colour(f"{len(bad)} of {len(conditions)} conditions need attention", "red"))


def indent_text(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
