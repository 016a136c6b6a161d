"""Finds every dimension's least change; the planner itself names the least of all."""

from __future__ import annotations

from math import inf

from solvers.planning.explain.applied import RelaxedCase
from solvers.planning.explain.proposals import Relaxation, confirm
from solvers.planning.explain.relaxations import DIMENSIONS


def every_change(case: RelaxedCase) -> list[Relaxation]:
    """Returns the least change of each dimension that helps, each searched as if it were the first."""
    proposals = [proposal for find in DIMENSIONS if (proposal := find(case, inf))]
    changes = [change for proposal in proposals if (change := confirm(proposal))]
    assert len(changes) == len(proposals)  # the judge refused none
    return changes
