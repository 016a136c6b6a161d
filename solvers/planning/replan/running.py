"""Plans next to what runs: repairs the running plan or fits a new plan onto it, whichever costs less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from solvers.planning.drafting.drafts import prepare
from solvers.planning.fleet.predictions import predict_again
from solvers.planning.judge import judge_services
from solvers.planning.plan import NONE_UNSERVED_SHARE, Plan, ServicePlan, Unserved, list_unserved
from solvers.planning.problem import Instance, PlacedJob, Problem, RunningState
from solvers.planning.replan.cover import settle
from solvers.planning.replan.lines import assign, difference, predict_lines
from solvers.planning.replan.match import match_running
from solvers.planning.replan.replanner import price_services
from solvers.planning.replan.running_board import RunningBoard, running_board
from solvers.planning.replan.seat import seat
from solvers.planning.replan.serving import lose_least
from solvers.planning.search.promise import keep, timeouts
from solvers.planning.search.tables import Tables

SAME_SHARE = 1e-9  # of a value: what sums of floats may differ by
PASSES = 5
AS_IT_RUNS = "the running plan"


def choose_beside_running(t: Tables, found: Sequence[Instance], unserved: Sequence[Unserved]) -> ServicePlan:
    """Chooses by value: the plan as it runs, the same repaired, or what a search found, fitted onto it.

    Value is cost x horizon / 60 + churn. Of equal plans it takes the one that changes less, so that a plan is a fixed
    point of whatever finds it again.
    """
    state = t.problem.state
    assert state
    least_change = repair_running(t)
    choices = [
        ServicePlan(
            add_predictions(t.problem, state.running), list(list_unserved(t.problem, state.running)), AS_IT_RUNS
        ),
        least_change,
        fit(t, found, unserved),
    ]
    best, least = choices[-1], inf

    def weigh(choice: ServicePlan) -> None:
        nonlocal best, least
        value = value_of(t, choice)
        if value < least * (1 - SAME_SHARE):
            best, least = choice, value

    for choice in choices:
        weigh(choice)
    if best.unserved:
        from solvers.planning.explain import add_services

        alone = replace(t.problem, jobs={}, state=RunningState(None, state.running))
        for choice in {id(choice): choice for choice in (best, least_change)}.values():
            weigh(add_services(alone, choice))
    return best


def fit(t: Tables, found: Sequence[Instance], unserved: Sequence[Unserved]) -> ServicePlan:
    """Fits a new plan onto what runs: on the GPUs that run most of it, with as few new rates as possible."""
    state = t.problem.state
    assert state
    planned = ServicePlan(match_running(t, found), list(unserved), "")
    running = {line.id: line for line in state.running}
    lines = [_keep_as_it_is(line, running.get(line.id)) for line in planned.instances]
    d = running_board(t, prepare(t), state.jobs)
    seat(d, lines)
    if unserved or sum(map(len, d.lines)) < len(lines):  # beside the jobs that run it breaks a rule, so that they move
        return planned
    d.forget()
    services = range(len(t.services))
    rests = assign(d, services)
    difference(d, services, len(lines) + len(state.running), rests)
    tuned = ServicePlan(list(predict_lines(d)), [], "")
    return planned if any(rests.values()) or value_of(t, tuned) > value_of(t, planned) else tuned


def _keep_as_it_is(line: Instance, runs: Instance | None) -> Instance:
    """Returns a planned instance with the rate and the timeout that it has now."""
    if runs is None:
        return line
    return replace(line, rate_per_second=runs.rate_per_second, batch_timeout_ms=runs.batch_timeout_ms)


def add_predictions(problem: Problem, lines: Sequence[Instance]) -> list[Instance]:
    """Returns running instances with predictions, which a State lacks and the reasons of a plan need.

    Ignores jobs, which are placed next to a plan later.
    """
    if all(line.exec_ms > 0 for line in lines):
        return list(lines)
    if not all(_is_profiled(problem, line) for line in lines):
        return list(lines)  # the judge will refuse them as they are
    order = sorted(range(len(lines)), key=lambda at: lines[at].place)  # in which they come back
    predicted_lines, _ = predict_again(problem, [lines[at] for at in order], (), {line.place for line in lines})
    found = list(lines)
    for at, line in zip(order, predicted_lines, strict=True):
        found[at] = replace(lines[at], exec_ms=line.exec_ms, latency_ms=line.latency_ms)
    return found


def _is_profiled(problem: Problem, line: Instance) -> bool:
    profile = problem.profile(line.service, line.variant, line.node)
    return profile is not None and line.batch in profile.latency_ms


def top_up(t: Tables, lines: Sequence[Instance], unserved: Sequence[Unserved]) -> ServicePlan:
    """Adds to a plan what still fits next to it, if that is valid and worth its price."""
    before = ServicePlan(list(lines), list(unserved), "")
    if not unserved or not lines:
        return before
    after = repair(t, lines, ())
    return replace(after, origin="") if value_of(t, after) < value_of(t, before) else before


def repair_running(t: Tables) -> ServicePlan:
    """Repairs the running plan with the least changes that make it valid."""
    state = t.problem.state
    assert state
    staying = [job for job in state.jobs if not t.problem.jobs[job.job].is_preemptible]
    found = repair(t, state.running, state.jobs)
    if found.unserved and len(staying) < len(state.jobs):
        return repair(t, state.running, staying)
    return found


def repair(t: Tables, lines: Sequence[Instance], jobs: Sequence[PlacedJob]) -> ServicePlan:
    """Makes lines valid with the least changes, and repeats that while it serves more.

    A plan that comes out of this goes through it unchanged.
    """
    found = latest = _repair(t, lines, jobs)
    for _ in range(PASSES):
        if latest.origin == AS_IT_RUNS or not latest.unserved:
            break
        latest = _repair(t, latest.instances, jobs)
        found = replace(latest, origin=found.origin)
    return found


def _repair(t: Tables, lines: Sequence[Instance], jobs: Sequence[PlacedJob]) -> ServicePlan:
    shop, prices = price_services(t, 0)
    d = running_board(t, shop, jobs)
    broken = seat(d, lines)
    missing = {s: _missing(d, s) for s in range(len(t.services))}
    changing = broken | {s for s, rest in missing.items() if abs(rest) > NONE_UNSERVED_SHARE * t.rate[s]}
    changing |= {s for s in missing if d.homes[s] and sum(d.homes[s].values()) < t.min_instances[s]}
    left_out = sum(map(len, d.lines)) < len(lines)
    d.forget()
    rests: dict[int, float] = {}
    if changing:

        def serve_once(may_empty: bool) -> dict[int, float]:
            settle(d, changing, prices, may_empty)
            return assign(d, changing)

        rests = lose_least(d, serve_once)
        gained = any(rests[s] < missing[s] - NONE_UNSERVED_SHARE * t.rate[s] or missing[s] < 0 for s in changing)
        if not broken and not gained:  # nothing was gained, so nothing changes
            d.restore()
            rests = {s: missing[s] for s in changing}
    _stir_mistimed(d)
    changed = difference(d, changing, len(lines), rests)
    same = not changed.after and not changed.before and not left_out
    unserved = [
        Unserved(t.services[s], rest) for s, rest in sorted(rests.items()) if rest > NONE_UNSERVED_SHARE * t.rate[s]
    ]
    return ServicePlan(
        list(predict_lines(d)), unserved, AS_IT_RUNS if same else "the running plan with the least changes"
    )


def _missing(d: RunningBoard, service: int) -> float:
    gpus, slots = d.seats(service)
    return float(d.t.rate[service] - d.x.rate[gpus, slots].sum())


def _stir_mistimed(d: RunningBoard) -> None:
    """Marks the GPUs with a wrong batch timeout, so that their lines are made again."""
    t = d.t
    seats = [(gpu, slot) for gpu, lines in enumerate(d.lines) for slot, line in enumerate(lines) if line]
    lines = [d.lines[gpu][slot] for gpu, slot in seats]
    exec_ms = d.exec_ms([gpu for gpu, _ in seats], [slot for _, slot in seats])
    known = [line for line in lines if line]
    of = [t.problem.services[line.service] for line in known]
    waits = timeouts(of, [line.batch for line in known], exec_ms * t.margin, [line.rate_per_second for line in known])
    for (gpu, _), line, wait in zip(seats, known, waits, strict=True):
        if wait is not None and abs(wait - line.batch_timeout_ms) > 1e-9 * max(1.0, wait):
            d.save(gpu)
            d.stirred.add(gpu)


def value_of(t: Tables, choice: ServicePlan) -> float:
    """Returns the value of the services alone; infinite if the plan breaks a rule."""
    verdict = judge_services(t.problem, Plan(tuple(choice.instances), unserved=tuple(choice.unserved)), keep)
    return verdict.cost.value(t.problem.policy) if verdict.is_right else inf
