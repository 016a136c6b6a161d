"""Morak's knobs of a GPU: knees, the options of a GPU by watts, and the knapsack that chooses among them."""

from __future__ import annotations

from solvers.morak.power.knees import Knee, knee, share_at_knee

__all__ = ["Knee", "knee", "share_at_knee"]
