"""What `gpuwright simulate` prints of storms: which services kept their promises, and what each has declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.manifests.model import Kind
from cli.output import OutputTable, number

if TYPE_CHECKING:
    from app.manifests.offline import DeclaredFiles

SHOWN = {"count": "storms", "taken": "machines taken", "emptied": "empty by then", "refusals": "refused orders"}


def show_storms(figures: Mapping[str, Any], world: DeclaredFiles) -> None:
    """Prints how each service came through all storms, and how many machines they took."""
    print()
    OutputTable(("SERVICE", "STORMS KEPT", "WORST STORM", "DECLARED")).rows(
        (
            name,
            f"{found['kept']} of {figures['count']}" if figures["count"] else "-",
            "-" if found["worst"] is None else f"{100 * found['worst']:.2f} %",
            declared or "nothing: it may fall",
        )
        for name, found in figures["services"].items()
        for declared in [_describe_rules(world, name)]
    )
    print(", ".join(f"{what} {number(figures[name])}" for name, what in SHOWN.items()))
    if figures["takenByStorm"]:
        print("by storm", " ".join(number(taken) for taken in figures["takenByStorm"]))


def _describe_rules(world: DeclaredFiles, service: str) -> str:
    """Returns the rules by which a service is kept through the loss of spot nodes; empty: it has none."""
    spec: Mapping[str, Any] = next(
        item.spec for item in world.of(Kind.SERVICE) if f"{item.tenant}/{item.name}" == service
    )
    rules: Mapping[str, Any] = spec.get("availability") or {}
    words = [f"surviveNodes {rules['surviveNodes']}"] if rules.get("surviveNodes") else []
    words += [f"maxSpotShare {rules['maxSpotShare']:g}"] if rules.get("maxSpotShare", 1) < 1 else []
    return ", ".join(words)
