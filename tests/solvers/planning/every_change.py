"""Every dimension's least change, where the planner itself names the least of all."""

from __future__ import annotations

from math import inf

from solvers.planning.explain.applied import RelaxedCase
from solvers.planning.explain.proposals import Relaxation, confirm
from solvers.planning.explain.relaxations import DIMENSIONS


def every_change(case: RelaxedCase) -> list[Relaxation]:
    """The least change of each dimension in which one helps, each looked for as if it were the first."""
    proposals = [proposal for find in DIMENSIONS if (proposal := find(case, inf))]
    changes = [change for proposal in proposals if (change := confirm(proposal))]
    assert len(changes) == len(proposals)  # the judge refused none
    return changes
