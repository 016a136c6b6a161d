"""Explains what a service pays for not knowing its profile well, and whether measuring it would pay.

A plan counts on a quantile of each uncertain latency. At the mean the same copies would carry more; the part of the
service's cost that goes into the difference is the most that a better known profile could save.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.control.answer.explain.instance import batches_at
from app.control.answer.explain.shares import costs_of_instances
from app.control.answer.explain.wire import ProfileSpreadWire
from app.control.answer.explain.wording import count, money, ms
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import Spec, profile_key, quantile_of
from app.control.formulate.problem import curve
from app.manifests.drafts import describe_draft, write_error
from app.manifests.uncertain import MEAN_QUANTILE, is_uncertain, profile_at
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem

CAMPAIGN_MEASUREMENTS = 16  # of one more profiling
NAMED_SERVICES = 5  # in sentences on a plan
NAMED_SPREADS = 2  # in sentences; the answer has all
LEAST_SAVED_SHARE = 0.01  # of a service's cost, below which it is not named


@dataclass(frozen=True, slots=True)
class UncertaintyWhy:
    """The spreads of a service's instances, and the most that knowing its profiles could save in an hour."""

    spreads: tuple[ProfileSpreadWire, ...]
    could_save_per_hour: float
    cost_per_hour: float

    @property
    def is_worth_profiling(self) -> bool:
        return self.could_save_per_hour > LEAST_SAVED_SHARE * self.cost_per_hour


def why_uncertain(problem: Problem, plan: Plan, snapshot: Snapshot, only: str = "") -> dict[str, UncertaintyWhy]:
    """Compares each instance at the planned quantile with itself at the mean; latencies only.

    Returns what is found by service: of all services, or of `only` one.
    """
    policy = next((item.spec for item in snapshot.declared if item.kind == "Policy"), {})
    quantile = quantile_of(policy)
    profiles = {profile_key(item.spec): item.spec for item in snapshot.declared if item.kind == "Profile"}
    costs = costs_of_instances(problem, plan)
    found: dict[str, UncertaintyWhy] = {}
    for instance in plan.instances:
        name = instance.service
        if only and name != only:
            continue
        known = found.get(name, UncertaintyWhy((), 0.0, 0.0))
        cost, saved, spreads = costs[instance.id], 0.0, known.spreads
        gpu_type = problem.nodes[instance.node].gpu_type
        profile = profiles.get(f"{problem.services[name].model}/{instance.variant}/{gpu_type}", {"latencyMs": {}})
        spread = exec_spread(profile, instance.batch, float(instance.sm_percent), quantile)
        if spread is not None:
            saved = cost * _spare_share(problem, instance, profile, quantile)
            spreads = spreads if spread in spreads else (*spreads, spread)
        found[name] = UncertaintyWhy(spreads, known.could_save_per_hour + saved, known.cost_per_hour + cost)
    return found


def states_spread(snapshot: Snapshot) -> bool:
    """Returns True if a latency of any profile is uncertain."""
    tables = (item.spec.get("latencyMs", {}) for item in snapshot.declared if item.kind == "Profile")
    rows = (row for table in tables for row in table.values())
    return any(is_uncertain(value) for row in rows for value in row.values())


def rank_profiling(found: Mapping[str, UncertaintyWhy]) -> list[tuple[str, UncertaintyWhy]]:
    """Returns the services that are worth profiling, the one that could save most first."""
    worth = [(name, why) for name, why in found.items() if why.is_worth_profiling]
    return sorted(worth, key=lambda pair: (-pair[1].could_save_per_hour, pair[0]))


def describe_profiling(ranked: Sequence[tuple[str, UncertaintyWhy]]) -> list[str]:
    """Names the services that are worth profiling."""
    sentences = [
        f"worth profiling: {name}: {CAMPAIGN_MEASUREMENTS} more measurements could save up to "
        f"{money(why.could_save_per_hour)} an hour"
        for name, why in ranked[:NAMED_SERVICES]
    ]
    more = len(ranked) - NAMED_SERVICES
    return sentences + ([f"and {count(more, 'more service')} worth profiling"] if more > 0 else [])


def exec_spread(profile: Spec, batch: int, sm_percent: float, quantile: float) -> ProfileSpreadWire | None:
    """Returns the spread of a declared profile's latency; None where it is certain."""
    row = profile.get("latencyMs", {}).get(str(batch), {})
    cells = [row[share] for share in _find_points_around(row, sm_percent) if is_uncertain(row[share])]
    if not cells:
        return None
    mean, planned = (
        value_at(curve(profile_at(profile, level)["latencyMs"][str(batch)]), sm_percent)
        for level in (MEAN_QUANTILE, quantile)
    )
    return {
        "gpuType": str(profile["gpuType"]),
        "batch": batch,
        "smPercent": sm_percent,
        "meanMs": mean,
        "plannedMs": planned,
        "quantile": quantile,
        "n": max((cell["n"] for cell in cells if "n" in cell), default=None),
        "at": max((str(cell["at"]) for cell in cells if "at" in cell), default=None),
        "source": str(cells[0].get("source", "declared")),
        "draft": describe_draft(profile),
    }


def describe_uncertainty(why: UncertaintyWhy) -> list[str]:
    """Returns a sentence for each spread, and one if the service is worth profiling."""
    sentences = [_describe(spread) for spread in why.spreads[:NAMED_SPREADS]]
    if why.is_worth_profiling:
        saved = money(why.could_save_per_hour)
        sentences.append(
            f"worth profiling: {CAMPAIGN_MEASUREMENTS} more measurements could save up to {saved} an hour, the price "
            "of what its instances would carry more at the mean"
        )
    return sentences


def _describe(spread: ProfileSpreadWire) -> str:
    level = f"q{100 * spread['quantile']:.3g}"
    known = [f"from {spread['n']} measurements"] if spread["n"] else []
    known += [f"of {spread['at'][:10]}"] if spread["at"] else []
    origin = " ".join(known) or spread["source"]
    state = f"a {spread['draft']}" if spread["draft"] else "uncertain"
    longer = write_error(spread["plannedMs"] / spread["meanMs"] - 1.0)
    return (
        f"its profile on {spread['gpuType']} is {state}: batch {spread['batch']} at {spread['smPercent']:g} % of the "
        f"SMs is planned at {ms(spread['plannedMs'])} for a mean of {ms(spread['meanMs'])}: {longer} at {level} "
        f"{origin}"
    )


def _find_points_around(row: Mapping[str, object], sm_percent: float) -> Sequence[str]:
    """Returns the points of a curve on both sides of a share."""
    shares = sorted(row, key=int)
    below = [share for share in shares if int(share) <= sm_percent][-1:]
    above = [share for share in shares if int(share) >= sm_percent][:1]
    return list(dict.fromkeys([*below, *above]))


def _spare_share(problem: Problem, instance: Instance, profile: Spec, quantile: float) -> float:
    """Returns the share of what an instance could carry at the mean that the plan does not count on."""
    key = (str(profile["model"]), str(profile["variant"]), str(profile["gpuType"]))
    planned = problem.profiles[key]
    expected = {
        int(batch): _ratios(profile, batch, quantile, planned.latency_ms[int(batch)]) for batch in profile["latencyMs"]
    }
    at_mean = replace(problem, profiles={**problem.profiles, key: replace(planned, latency_ms=expected)})
    sm = int(instance.sm_percent)
    faster = value_at(expected[instance.batch], sm) / value_at(planned.latency_ms[instance.batch], sm)
    likely = replace(instance, exec_ms=instance.exec_ms * faster)
    counted = max((batch.rate_per_second for batch in batches_at(problem, instance, sm)), default=0.0)
    possible = max((batch.rate_per_second for batch in batches_at(at_mean, likely, sm)), default=0.0)
    return max(0.0, 1.0 - counted / possible) if possible > 0.0 else 0.0


def _ratios(
    profile: Mapping[str, object], batch: str, quantile: float, planned: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """Returns a planned curve at the mean: what was learned since multiplies both alike."""
    mean = dict(curve(profile_at(profile, MEAN_QUANTILE)["latencyMs"][batch]))
    upper = dict(curve(profile_at(profile, quantile)["latencyMs"][batch]))
    return tuple((share, value * mean[share] / upper[share]) for share, value in planned)
