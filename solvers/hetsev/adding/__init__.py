"""Adds what a running plan leaves unserved, by HetSev's greedy: nothing stops, moves or takes another share."""

from __future__ import annotations

from solvers.hetsev.adding.adder import METHOD, Adder, add_missing

__all__ = ["METHOD", "Adder", "add_missing"]
