"""Plans next to what runs: repairs the running plan or fits a new plan onto it, whichever costs less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from solvers.planning.judge import judge_services
from solvers.planning.plan import NONE_UNSERVED_SHARE, Plan, ServicePlan, Unserved, unserved_rest
from solvers.planning.problem import Instance, PlacedJob, Problem, RunningState
from solvers.planning.replan.cover import settle
from solvers.planning.replan.lines import assign, difference, predicted
from solvers.planning.replan.match import match_running
from solvers.planning.replan.replanner import priced
from solvers.planning.replan.running_board import RunningBoard, desk
from solvers.planning.replan.seat import seat
from solvers.planning.search.promise import keep, timeouts
from solvers.planning.search.tables import Tables

SAME = 1e-9  # of a value: what sums of floats may differ by
PASSES = 5
AS_IT_RUNS = "the running plan"


def beside_running(t: Tables, cold: Sequence[Instance], unserved: Sequence[Unserved]) -> ServicePlan:
    """The least cost x horizon / 60 + churn of the plan as it runs, the same repaired, and the cold plan laid over it.

    Where two cost the same, the one that changes less: a plan is a fixed point of whatever finds it again.
    """
    state = t.problem.state
    assert state
    choices = [
        ServicePlan(as_predicted(t.problem, state.running), list(unserved_rest(t.problem, state.running)), AS_IT_RUNS),
        repaired(t),
        ServicePlan(match_running(t, cold), list(unserved), ""),
    ]
    best, least = choices[-1], inf

    def weigh(choice: ServicePlan) -> None:
        nonlocal best, least
        value = _value(t, choice)
        if value < least * (1 - SAME):
            best, least = choice, value

    for choice in choices:
        weigh(choice)
    if best.unserved:
        from solvers.planning.explain import add_services

        alone = replace(t.problem, jobs={}, state=RunningState(None, state.running))
        for choice in {id(choice): choice for choice in (best, choices[1])}.values():
            weigh(add_services(alone, choice))
    return best


def as_predicted(problem: Problem, lines: Sequence[Instance]) -> list[Instance]:
    """Lines as they stand. What a State says of them has no predictions; a plan's lines do, and its reasons need them.

    Without jobs: these are placed beside a plan later.
    """
    if all(line.exec_ms > 0 for line in lines):
        return list(lines)
    if not all(_is_profiled(problem, line) for line in lines):
        return list(lines)  # the judge will refuse them as they are
    from solvers.planning.explain.applied import renewed

    order = sorted(range(len(lines)), key=lambda at: lines[at].place)  # that in which they come back
    told, _ = renewed(problem, [lines[at] for at in order], (), {line.place for line in lines})
    found = list(lines)
    for at, one in zip(order, told, strict=True):
        found[at] = replace(lines[at], exec_ms=one.exec_ms, latency_ms=one.latency_ms)
    return found


def _is_profiled(problem: Problem, line: Instance) -> bool:
    profile = problem.profile(line.service, line.variant, line.node)
    return profile is not None and line.batch in profile.latency_ms


def top_up(t: Tables, lines: Sequence[Instance], unserved: Sequence[Unserved]) -> ServicePlan:
    """Adds to a plan what still fits next to it, if that is valid and worth its price."""
    before = ServicePlan(list(lines), list(unserved), "")
    if not unserved or not lines:
        return before
    after = righted(t, lines, ())
    return replace(after, origin="") if _value(t, after) < _value(t, before) else before


def repaired(t: Tables) -> ServicePlan:
    """Repairs the running plan with the least changes that make it valid."""
    state = t.problem.state
    assert state
    staying = [job for job in state.jobs if not t.problem.jobs[job.job].is_preemptible]
    found = righted(t, state.running, state.jobs)
    if found.unserved and len(staying) < len(state.jobs):
        return righted(t, state.running, staying)
    return found


def righted(t: Tables, lines: Sequence[Instance], jobs: Sequence[PlacedJob]) -> ServicePlan:
    """These lines with the least changes that make them right; again while that serves more.

    What comes out goes in again unchanged: a plan that passed through here is a fixed point of it.
    """
    found = latest = _righted(t, lines, jobs)
    for _ in range(PASSES):
        if latest.origin == AS_IT_RUNS or not latest.unserved:
            break
        latest = _righted(t, latest.instances, jobs)
        found = replace(latest, origin=found.origin)
    return found


def _righted(t: Tables, lines: Sequence[Instance], jobs: Sequence[PlacedJob]) -> ServicePlan:
    shop, prices = priced(t, 0)
    d = desk(t, shop, jobs)
    broken = seat(d, lines)
    missing = {s: _missing(d, s) for s in range(len(t.services))}
    changing = broken | {s for s, rest in missing.items() if abs(rest) > NONE_UNSERVED_SHARE * t.rate[s]}
    changing |= {s for s in missing if d.homes[s] and _count(d, s) < t.min_instances[s]}
    left_out = sum(map(len, d.lines)) < len(lines)
    d.forget()
    left: dict[int, float] = {}
    if changing:
        settle(d, changing, prices)
        left = assign(d, changing)
        gained = any(left[s] < missing[s] - NONE_UNSERVED_SHARE * t.rate[s] or missing[s] < 0 for s in changing)
        if not broken and not gained:  # what was left unserved stays so: nothing was gained, so nothing changes
            d.restore()
            left = {s: missing[s] for s in changing}
    _stir_mistimed(d)
    changed = difference(d, changing, len(lines), left)
    same = not changed.after and not changed.before and not left_out
    unserved = [
        Unserved(t.services[s], rest) for s, rest in sorted(left.items()) if rest > NONE_UNSERVED_SHARE * t.rate[s]
    ]
    return ServicePlan(list(predicted(d)), unserved, AS_IT_RUNS if same else "the running plan with the least changes")


def _missing(d: RunningBoard, service: int) -> float:
    gpus, slots = d.seats(service)
    return float(d.t.rate[service] - d.x.rate[gpus, slots].sum())


def _count(d: RunningBoard, service: int) -> int:
    return sum(d.homes[service].values())


def _stir_mistimed(d: RunningBoard) -> None:
    """GPUs where somebody waits longer or shorter for a batch than it should are told anew."""
    t = d.t
    seats = [(gpu, slot) for gpu, lines in enumerate(d.lines) for slot, line in enumerate(lines) if line]
    lines = [d.lines[gpu][slot] for gpu, slot in seats]
    exec_ms = d.exec_ms([gpu for gpu, _ in seats], [slot for _, slot in seats])
    known = [line for line in lines if line]
    of = [t.problem.services[line.service] for line in known]
    waits = timeouts(
        [service.percentile for service in of], [line.batch for line in known], list(exec_ms * t.margin),
        [service.slo_ms for service in of], [line.rate_per_second for line in known],
    )  # fmt: skip
    for (gpu, _), line, wait in zip(seats, known, waits, strict=True):
        if wait is not None and abs(wait - line.batch_timeout_ms) > 1e-9 * max(1.0, wait):
            d.save(gpu)
            d.stirred.add(gpu)


def _value(t: Tables, choice: ServicePlan) -> float:
    """Returns the value of the services alone; infinite if the plan breaks a rule."""
    verdict = judge_services(t.problem, Plan(tuple(choice.instances), unserved=tuple(choice.unserved)), keep)
    return verdict.cost.value(t.problem.policy) if verdict.is_right else inf
