"""A node for reading: its devices, what runs on it at which stage, what it holds back and where it left the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cli.output import OutputTable, age, gib, number
from cli.talk.client import ApiClient
from cli.talk.refusals import ServerRefusal

Entry = Mapping[str, Any]


def state_of(client: ApiClient, node: str) -> Entry | None:
    """Returns the last report of the node; None without a report or without the right to read it."""
    try:
        found: Entry = client.get(f"/api/v1/nodes/{node}/state")
    except ServerRefusal as refusal:
        if refusal.status in (403, 404):
            return None
        raise
    return found


def show_gpus(gpus: Sequence[Entry]) -> None:
    _table(
        "GPUs",
        ["INDEX", "UUID", "HEALTH", "FENCED", "REASON", "MEMORY", "SMS", "ADDRESS"],
        (
            [
                number(gpu.get("index")),
                gpu.get("uuid", ""),
                gpu.get("health", ""),
                "yes" if gpu.get("fenced") else "no",
                gpu.get("reason", ""),
                gib(gpu.get("memoryGib")),
                number(gpu.get("smCount")),
                gpu.get("address", ""),
            ]
            for gpu in gpus
        ),
    )


def show_running(state: Entry) -> None:
    """The tables of a node's state; those with nothing in them are left out."""
    _table(
        "Copies",
        ["COPY", "OF", "GPU", "STAGE", "SM%", "MEMORY", "ROUTED", "REASON"],
        (
            [
                copy.get("id", ""),
                _owner(copy),
                number(copy.get("gpu")),
                copy.get("stage", ""),
                number(copy.get("smPercent")),
                gib(copy.get("memoryGib")),
                "yes" if copy.get("routed") else "no",
                ": ".join(filter(None, (copy.get("reason", ""), copy.get("message", "")))),
            ]
            for copy in state.get("copies", [])
        ),
    )
    _table(
        "Held back",
        ["INSTANCE", "OF", "REASON", "NEEDS", "MESSAGE"],
        (
            [held.get("instance", ""), _owner(held), held.get("reason", ""), _needs(held), held.get("message", "")]
            for held in state.get("heldBack", [])
        ),
    )
    _table(
        "Excursions",
        ["KNOB", "GPU", "INSTANCE", "PLANNED", "VALUE", "REASON", "SINCE"],
        (
            [
                moved.get("knob", ""),
                number(moved.get("gpu")),
                moved.get("instance", ""),
                number(moved.get("planned")),
                number(moved.get("value")),
                moved.get("reason", ""),
                age(moved.get("since", "")),
            ]
            for moved in state.get("excursions", [])
        ),
    )
    if state.get("repartition"):
        which = ", ".join(number(gpu) for gpu in state["repartition"])
        print(f"Needs a new partition: GPU {which} (it cannot keep both its power cap and its latencies)")


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    filled = [list(row) for row in rows]
    if filled:
        print(f"{title}:")
        OutputTable([f"  {headings[0]}", *headings[1:]]).rows([[f"  {row[0]}", *row[1:]] for row in filled])


def _owner(entry: Entry) -> str:
    name = entry.get("service") or entry.get("job") or ""
    return f"{entry['tenant']}/{name}" if entry.get("tenant") else str(name)


def _needs(held: Entry) -> str:
    wanted = []
    if held.get("needsSmPercent"):
        wanted.append(f"{number(held['needsSmPercent'])} SM%")
    if held.get("needsMemoryGib"):
        wanted.append(gib(held["needsMemoryGib"]))
    return ", ".join(wanted)
