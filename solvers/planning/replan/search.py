"""Searches from what runs: refills a few GPUs at a time where that saves more over the horizon than its churn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import numpy as np

from solvers.planning.drafting.drafts import NODE_PATIENCE_CYCLES, AskRivals, SearchDraft, drafts, prepare
from solvers.planning.judge import judge_services
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, RunningState
from solvers.planning.replan.effort import change_price
from solvers.planning.replan.kernels import capacities
from solvers.planning.replan.match import match_running
from solvers.planning.replan.running import repair_running
from solvers.planning.replan.running_board import running_board
from solvers.planning.replan.seat import seat
from solvers.planning.search import dive
from solvers.planning.search.arrays import Home
from solvers.planning.search.gather import gather
from solvers.planning.search.limits import enforce_limits
from solvers.planning.search.local_search import PATIENCE_CYCLES, LocalSearch
from solvers.planning.search.node_search import NodeSearch
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import NOBODY, instances, leave_out, placed_instances, prune, serves_all
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import Workshop

PRICE_ROUNDS = 8  # of the LP whose prices guide the search
_Step: TypeAlias = tuple[int, SearchDraft]  # the steps that it took

LEAST_MINUTES = 1e-3  # of a horizon


def search(t: Tables, seed: int, ask_rivals: AskRivals | None = None) -> Iterator[SearchDraft]:
    """Yields better and better drafts without end: from what runs, if anything does, or else from nothing.

    The cost of a draft beside what runs has its churn in it, as a part of the hours of the horizon.
    """
    state = t.problem.state
    if state is None or not state.running or not t.pools:
        yield from drafts(prepare(t), seed, ask_rivals)
        return
    near = _near(t, state, seed)
    first = next(near)
    yield first
    # A fleet too small may serve more in another way; on a small one a new beginning finds what this one cannot reach.
    if serves_all(t, first.placed):
        yield SearchDraft(NOBODY, np.inf, first.work, "", rivals=() if ask_rivals else None)  # hardly any is ahead
        turns: Iterator[_Step] = chain(_count_steps(near, first.work), _anew(t, seed, None))
    else:
        turns = _anew(t, seed, ask_rivals)
    work = first.work
    for steps, draft in turns:
        work += steps
        yield replace(draft, work=work)


def _anew(t: Tables, seed: int, ask_rivals: AskRivals | None) -> Iterator[_Step]:
    return _count_steps((laid_over(t, draft) for draft in drafts(prepare(t), seed, ask_rivals)), 0)


def _count_steps(made: Iterator[SearchDraft], done: int) -> Iterator[_Step]:
    """Yields drafts with the steps that each took; what others answered is of the step that asked them."""
    for draft in made:
        steps = draft.work - done
        yield steps if draft.rivals else max(1, steps), draft
        done = draft.work


def laid_over(t: Tables, draft: SearchDraft) -> SearchDraft:
    """Returns the draft at the cost that it has once it is fitted onto what runs."""
    if not draft.method or t.problem.state is None or not t.problem.state.running:
        return draft
    lines = match_running(t, instances(t, draft.placed)[0])
    churn = judge_services(t.problem, Plan(tuple(lines)), keep).cost.churn
    return replace(draft, cost=draft.cost + churn / _hours(t))


def _near(t: Tables, state: RunningState, seed: int) -> Iterator[SearchDraft]:
    """Yields drafts near what runs, the first of them what runs, repaired, until a search gains nothing for long."""
    shop = prepare(t)
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    for _ in dive.generate(shop, course, PRICE_ROUNDS):
        pass
    shop.clear_all()
    shop.home = _home(t, state.running)
    staying = [job for job in state.jobs if not t.problem.jobs[job.job].is_preemptible]
    seat_all(t, shop, repair_running(t).instances, staying)
    shop.fill(course.rate, shop.need)
    shop.restack()
    local_search, has_nodes = LocalSearch(shop, seed), bool(len(shop.nodes.gpus))
    work, least = 1, np.inf

    def make(method: str) -> SearchDraft:
        nonlocal least
        _put_right(shop)
        cost = shop.bill
        if not cost < least - 1e-9:
            return SearchDraft(NOBODY, np.inf, work, "")
        least = cost
        return SearchDraft(placed_instances(shop), cost, work, method, ends_the_beginning=True)

    yield make("the running plan with the least changes")
    if not len(shop.used) and not shop.lacking.any():
        return
    cycles = local_search.cycles(course.rate, course.extra, NODE_PATIENCE_CYCLES if has_nodes else PATIENCE_CYCLES)
    for is_plan in cycles:
        work += 1
        yield make("search from what runs") if is_plan else SearchDraft(NOBODY, np.inf, work, "")
    if has_nodes:
        with closing(NodeSearch(shop, local_search).rounds(course.rate, course.extra)) as exchanges:
            for is_plan in exchanges:
                work += 1
                yield make("search for nodes from what runs") if is_plan else SearchDraft(NOBODY, np.inf, work, "")


def _put_right(shop: Workshop) -> None:
    """Empties what is not needed or breaks a limit; on nodes that are billed whole, moves GPUs where that pays."""
    prune(shop)
    leave_out(shop)
    enforce_limits(shop)
    if len(shop.nodes.gpus):
        before, bill = shop.kept_board(), shop.bill
        gather(shop)
        if shop.bill > bill:
            shop.bring_back(before)


def _home(t: Tables, running: Sequence[Instance]) -> Home:
    """Returns what runs, with the price of its changes as a part of the hours of the horizon."""
    shop, policy = prepare(t), t.problem.policy
    d = running_board(t, shop, ())
    seat(d, running)
    b, spent = shop.board, float(shop.costs(shop.used)[0].sum())
    change = change_price(policy.move_price, spent, len(running))
    return Home(b.count, b.offer, b.sm, d.x.price * policy.move_price / 100 / _hours(t), change / _hours(t))


def _hours(t: Tables) -> float:
    return max(t.problem.policy.horizon_minutes, LEAST_MINUTES) / 60


def seat_all(t: Tables, shop: Workshop, lines: Sequence[Instance], jobs: Sequence[PlacedJob]) -> None:
    """Puts instances on the workshop's board beside these jobs, each with all that it may carry."""
    d, b = running_board(t, shop, jobs), shop.board
    seat(d, lines)
    b.cover[:] = 0.0
    for service in range(len(t.services)):
        gpus, slots = d.seats(service)
        now, best, by = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus), dtype=np.int64)
        capacities(d.w, b, d.x, gpus, slots, now, best, by)
        b.cap[gpus, slots] = now
        b.cover[service] = now.sum()
    shop.restack()
