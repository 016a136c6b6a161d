"""Keeps one GPU's power cap and its instances' SLOs by clock and batch, inside their frames."""

from __future__ import annotations

from agents.power.seen import Move, SeenGpu, State
from agents.power.settings import Settings


def step(state: State, seen: SeenGpu, settings: Settings) -> Move:
    """One period of one GPU. The caller sets what differs from what is in force, and keeps the state."""
    planned = seen.frame.planned if seen.frame else None
    return Move(state, None if planned is None else int(planned), {one.id: one.batch for one in seen.instances})
