"""Compares answers with the recorded ones: what is worse, what is merely another decision, and what takes more work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose

from tests.net.answers import Answer

# What is compared: DECISIONS, or FIGURES once decisions may differ as long as cost, bound, unserved load and hand-overs
# are no worse.
DECISIONS, FIGURES = "decisions", "figures"
COMPARED = DECISIONS

SAME_SHARE = 1e-9  # of a cost: answers closer than this are equally good
COST_SHARE = 0.002  # by which another decision may cost more
BOUND_SHARE = 0.002  # by which another bound may be lower
UNSERVED_SHARE = 1e-6  # of the recorded unserved load
WORK_SHARE = 0.1
LEAST_COUNT = 200  # a count below this is too small to say anything by its share


@dataclass(frozen=True, slots=True)
class Comparison:
    """How strictly answers are compared."""

    compared: str = COMPARED
    is_same_origin: bool = True  # the same kind of processor and the same libraries as the recorded answers'

    @property
    def wants_same_decisions(self) -> bool:
        return self.compared == DECISIONS and self.is_same_origin


def find_faults(then: Answer, now: Answer, comparison: Comparison) -> list[str]:
    """Returns what is wrong with an answer, a sentence each; nothing where it is as good as the recorded one."""
    faults = [*_find_broken(then, now), *_find_worse(then, now, comparison)]
    if comparison.wants_same_decisions and (changed := find_changed(then, now)):
        faults += [f"another decision: {changed}"]
    return faults + list(_find_more_work(then.counts, now.counts))


def find_changed(then: Answer, now: Answer) -> str:
    """Returns how a decision differs; nothing where it is the same, or another one that is exactly as good."""
    if then.outcome != now.outcome:
        return f"{now.outcome}, recorded {then.outcome}"
    differing = [
        f"{what} {_text(after)}, recorded {_text(before)}"
        for what, before, after in _list_amounts(then, now)
        if not _is_same(before, after)
    ]
    if not differing:
        return ""
    gone, new = sorted({*then.placements} - {*now.placements}), sorted({*now.placements} - {*then.placements})
    first = [f"no longer {gone[0]}"] if gone else []
    first += [f"now {new[0]}"] if new else []
    return "; ".join([*differing, *first])


def _list_amounts(then: Answer, now: Answer) -> list[tuple[str, float | None, float | None]]:
    return [
        ("cost", then.cost, now.cost),
        ("unserved", then.unserved, now.unserved),
        ("jobs", then.job, now.job),
        ("churn", then.churn, now.churn),
    ]


def _find_broken(then: Answer, now: Answer) -> Iterator[str]:
    new = [rule for rule in now.broken if rule not in then.broken]
    yield from (f"breaks {rule}" for rule in new)
    is_right = now.cost is not None and not now.broken
    if is_right and now.bound is not None and now.bound > now.total * (1 + SAME_SHARE) + SAME_SHARE:
        yield f"bound {now.bound:.9g} is above the cost {now.total:.9g} of a right plan"


def _find_worse(then: Answer, now: Answer, comparison: Comparison) -> Iterator[str]:
    if (then.cost is None) != (now.cost is None):
        yield f"{now.outcome}, recorded {then.outcome}"
        return
    if now.unserved > then.unserved * (1 + UNSERVED_SHARE) + SAME_SHARE:
        yield f"unserved load costs {now.unserved:.9g}, recorded {then.unserved:.9g}"
    elif now.total > then.total * (1 + COST_SHARE) + SAME_SHARE:
        yield f"cost {now.total:.9g}, recorded {then.total:.9g}"
    if then.bound is not None and (now.bound is None or now.bound < then.bound * (1 - BOUND_SHARE) - SAME_SHARE):
        yield f"bound {_text(now.bound)}, recorded {_text(then.bound)}"
    if comparison.compared == FIGURES and now.hand_overs > then.hand_overs:
        yield f"{now.hand_overs} hand-overs, recorded {then.hand_overs}"


def _find_more_work(then: Mapping[str, int], now: Mapping[str, int]) -> Iterator[str]:
    for name, before in then.items():
        after = now.get(name)
        if after is not None and after > max(LEAST_COUNT, before * (1 + WORK_SHARE)):
            yield f"work: {after:,} {name}, recorded {before:,}"


def _is_same(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return isclose(before, after, rel_tol=SAME_SHARE, abs_tol=SAME_SHARE)


def _text(amount: float | None) -> str:
    return "none" if amount is None else f"{amount:.9g}"
