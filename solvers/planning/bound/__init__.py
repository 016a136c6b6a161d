"""The bound of the joint plan: no valid plan costs less, whichever prices it was computed from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from solvers.planning.bound.convergence import Convergence
from solvers.planning.bound.fleet import BoundFleet, fleet
from solvers.planning.bound.kept import is_of
from solvers.planning.bound.master import MetPatterns
from solvers.planning.bound.scope import left_out, why_not
from solvers.planning.bound.search import BoundSearch, Round
from solvers.planning.bound.start import first_prices
from solvers.planning.kept_search import KeptSearch
from solvers.planning.search.tables import Tables

__all__ = ["MetPatterns", "Round", "left_out", "rounds", "rounds_of", "why_not"]


def rounds(
    tables: Tables, work: int | None = None, kept: KeptSearch | None = None, met: MetPatterns | None = None
) -> Iterator[Round]:
    """Yields better and better bounds, until prices are as good as rows allow, or `work` is done.

    A linear programme takes good patterns as they are found, which are written into `met`, and names the next prices
    to look at. With what a search at other rates has kept, it goes on from there. Yields nothing if `why_not` gives a
    reason.
    """
    if why_not(tables) is None:
        yield from rounds_of(fleet(tables), work, kept, met)


def rounds_of(
    f: BoundFleet, work: int | None = None, kept: KeptSearch | None = None, met: MetPatterns | None = None
) -> Iterator[Round]:
    """Yields better and better bounds of what these GPUs and all that is unserved cost."""
    s = BoundSearch(f, sum(len(m.classes) * f.work_of_class(m) for m in f.markets), work)
    if kept is not None and is_of(kept, f) and len(f.need) and f.markets:
        patterns = s.resume(kept)
        yield s.best
        yield from Convergence(s, patterns, is_continued=True).run(work)
        return
    evaluation = s.look(first_prices(f))
    yield s.best
    if not len(f.need) or not f.markets:
        yield replace(s.best, converged=True, programme=s.rough)
        return
    if not s.fleet.scales:
        evaluation = s.shrink(evaluation)
        yield s.best
    yield from Convergence(s, evaluation.patterns, met=met).run(work)
