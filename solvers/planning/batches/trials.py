"""Tries batches of moves on a running plan: each is put on a board, judged, and taken back unless it is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from solvers.planning.batches.batch import Batch, BatchGroup, BatchKind, MoveLimit
from solvers.planning.batches.part import problem_of, solve_part
from solvers.planning.batches.refill import refill_part
from solvers.planning.batches.sparing import SparedChanges
from solvers.planning.judge import JudgedPlan, PlanEdit
from solvers.planning.judge.changes import moved_services
from solvers.planning.plan import Plan, ServicePlan, Unserved
from solvers.planning.problem import Instance, Problem, RunningState
from solvers.planning.replan.cover import known, settle
from solvers.planning.replan.effort import change_price
from solvers.planning.replan.lines import assign, difference, predict_lines
from solvers.planning.replan.match import lines_by_place
from solvers.planning.replan.replanner import price_services
from solvers.planning.replan.running_board import RunningBoard, running_board
from solvers.planning.replan.seat import seat
from solvers.planning.replan.serving import serve
from solvers.planning.replan.shares import restore_shares
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables

SPARE_GPUS = 2  # of each pool: a batch may open them
PART_WORK = 4  # steps of the search in a part
LEAST_SAVED_SHARE = 0.02  # of the prices of the group's GPUs
SAME_RATE_SHARE = 1e-9  # by which sums of floats may differ
ORIGIN = "the running plan with a batch of moves"


class BatchTrials:
    """A plan on a board, and its judge. Its jobs are placed again later, except for those that must stay."""

    def __init__(self, problem: Problem, plan: Plan, limit: MoveLimit | None = None) -> None:
        plan, problem = _drop_movable_jobs(problem, plan)
        t = tables(problem)
        shop, self.prices = price_services(t, 0)
        self.board: RunningBoard = running_board(t, shop, plan.jobs)
        self.closed = {place for placed in plan.jobs for place in placed.places}
        broken = seat(self.board, plan.instances)
        self.board.forget()
        self._judged = JudgedPlan(problem, plan, keep)
        self._verdict = self._judged.verdict()
        self._unserved = {entry.service: entry for entry in plan.unserved}
        self._serial = len(plan.instances) + len(problem.state.running if problem.state else ())
        self._offers = _offer_numbers(self.board)
        self._limit, self._moved = limit, frozenset[str]()
        self.is_right = self._verdict.is_right and not broken
        self._change_price = change_price(problem.policy.move_price, self._verdict.cost.resource, len(plan.instances))

    def measure(self, group: BatchGroup) -> Batch | None:
        """Returns what a batch saves and costs; None if it saves too little or breaks a rule."""
        edit = self._put_on(group)
        if edit is None:
            return None
        batch = self._judge(group, edit)
        self._take_back(edit)
        return batch

    def make(self, group: BatchGroup) -> Batch | None:
        """Makes a batch; None, with nothing changed, if it saves too little or breaks a rule."""
        edit = self._put_on(group)
        if edit is None:
            return None
        batch = self._judge(group, edit)
        if batch is None:
            self._take_back(edit)
            return None
        self.board.forget()
        self._moved |= moved_services(edit.start, edit.stop)
        self._verdict = self._judged.verdict()
        self._serial += len(edit.start)
        for name, entry in edit.unserved.items():
            self._unserved.pop(name, None)
            if entry:
                self._unserved[name] = entry
        return batch

    def services(self) -> ServicePlan:
        """Returns the services of the plan with all batches that were made."""
        return ServicePlan(list(predict_lines(self.board)), list(self._unserved.values()), ORIGIN)

    def _put_on(self, group: BatchGroup) -> PlanEdit | None:
        """Makes the moves on the board; None, with the board as it was, if there are none."""
        d = self.board
        gpus = [d.number_of[place] for place in group.places if place in d.number_of and place not in self.closed]
        leaving = self._seats_of(group.leaving)
        running = [line for gpu in gpus for line in d.lines[gpu] if line]
        running += [line for gpu, slot in leaving if gpu not in gpus and (line := d.lines[gpu][slot])]
        if len(gpus) < len(group.places) or len(leaving) < len(group.leaving) or not running:
            return None
        services = sorted({d.t.number_of[line.service] for line in running})
        if group.kind is BatchKind.SHIFTED:
            return self._edit(services) if self._shift(gpus) else None
        is_emptied = group.kind in (BatchKind.EMPTIED, BatchKind.DISPLACING)
        spare = [] if is_emptied else self._spare(gpus)
        stopped = {(gpu, slot) for gpu in gpus for slot in range(int(d.b.count[gpu]))} | set(leaving)
        for gpu, slot in sorted(stopped, reverse=True):  # the last slot first: it fills the gap
            d.stop(gpu, slot)
        if not is_emptied:
            part = problem_of(d, [*gpus, *spare], services, running)
            placed = refill_part(part, group.seed) if group.kind is BatchKind.REFILLED else solve_part(part, PART_WORK)
            if placed is None:
                d.restore()
                return None
            self._start(placed, running)
            restore_shares(d, gpus, lines_by_place(running))
        if group.kind is BatchKind.DISPLACING:
            serve(d, services, self.prices)
        else:
            settle(d, services, self.prices)
        if SparedChanges(d, services).spare():
            for service in services:
                known(d, service, float(d.w.rate[service]))
            restore_shares(d, gpus, lines_by_place(running))
        return self._edit(services)

    def _shift(self, gpus: Sequence[int]) -> bool:
        """Starts what these GPUs run on empty ones of their pools; False, with nothing changed, if there are none."""
        d, b = self.board, self.board.b
        for gpu in gpus:
            there = self._empty_like(gpu)
            if there is None:
                d.restore()
                return False
            d.save(there)
            b.clock[there] = b.clock[gpu]
            for slot in range(int(b.count[gpu])):
                new = d.start(
                    there, int(b.offer[gpu, slot]), int(b.sm[gpu, slot]), int(b.batch[gpu, slot]),
                    float(d.x.memory[gpu, slot]),
                )  # fmt: skip
                b.cap[there, new], d.x.rate[there, new] = b.cap[gpu, slot], d.x.rate[gpu, slot]
            for slot in reversed(range(int(b.count[gpu]))):
                d.stop(gpu, slot)
        return True

    def _empty_like(self, gpu: int) -> int | None:
        """Returns an empty GPU of the same pool, if possible one on which nothing runs now; None if all are used."""
        d, b = self.board, self.board.b
        d.restack()
        pools, pool = d.shop.pools, int(b.pool[gpu])
        first = int(pools.start[pool])
        empty = pools.empty[first : first + int(pools.empties[pool])].tolist()
        empty = [other for other in empty if not b.count[other] and d.place_of[other] not in self.closed]
        state = d.t.problem.state
        busy = {line.place for line in state.running} if state else set()
        return max(empty, key=lambda other: (d.place_of[other] not in busy, -other), default=None)

    def _edit(self, services: Sequence[int]) -> PlanEdit:
        """Returns the change of the plan since the board was last at rest; these services changed."""
        d = self.board
        found = difference(d, services, self._serial, assign(d, services))
        names = d.t.services
        unserved = {
            names[s]: Unserved(names[s], rate) if rate else None
            for s, rate in found.unserved.items()
            if rate or names[s] in self._unserved
        }
        return PlanEdit(stop=found.before, start=found.after, unserved=unserved)

    def _judge(self, group: BatchGroup, edit: PlanEdit) -> Batch | None:
        before, after = self._verdict.cost, self._judged.apply(edit)
        if self._limit and not self._limit.allows(self._moved | moved_services(edit.start, edit.stop)):
            return None
        gain = before.total - after.cost.total
        price = sum(self._judged.problem.nodes[node].price_per_hour for node, _ in group.places)
        saves = group.makes_room or gain >= LEAST_SAVED_SHARE * price
        if not after.is_right or not saves or self._serves_less(edit):
            return None
        relief = max(0.0, before.unserved - after.cost.unserved)
        changed = max(0, after.changes.made - self._verdict.changes.made)
        churn = max(0.0, after.cost.churn - before.churn)
        return Batch((group,), gain - relief, churn, relief, changed * self._change_price)

    def _seats_of(self, ids: Collection[str]) -> list[tuple[int, int]]:
        """Returns GPU and slot of these instances, as far as they are on the board."""
        wanted = set(ids)
        return [
            (gpu, slot)
            for gpu, lines in enumerate(self.board.lines if wanted else ())
            for slot, line in enumerate(lines)
            if line and line.id in wanted
        ]

    def _serves_less(self, edit: PlanEdit) -> bool:
        """Returns whether any service is served less than before: what another gains is no excuse."""
        for name, entry in edit.unserved.items():
            before = self._unserved.get(name)
            lacked = before.rate_per_second if before else 0.0
            if entry and entry.rate_per_second > lacked + SAME_RATE_SHARE * max(1.0, lacked):
                return True
        return False

    def _take_back(self, edit: PlanEdit) -> None:
        unserved = {name: self._unserved.get(name) for name in edit.unserved}
        self._judged.apply(PlanEdit(stop=edit.start, start=edit.stop, unserved=unserved))
        self.board.restore()

    def _spare(self, gpus: Sequence[int]) -> list[int]:
        """Returns a few empty GPUs of each pool."""
        d, found = self.board, []
        d.restack()
        pools = d.shop.pools
        for pool, count in enumerate(pools.empties.tolist()):
            first = int(pools.start[pool])
            found += pools.empty[first + max(0, count - SPARE_GPUS) : first + count].tolist()
        return [gpu for gpu in found if gpu not in gpus and d.place_of[gpu] not in self.closed]

    def _start(self, placed: Sequence[Instance], running: Sequence[Instance]) -> None:
        """Starts these instances on the board; those that ran there before stay the same."""
        d, t = self.board, self.board.t
        batch_of = {int(batch): index for index, batch in enumerate(t.batches)}
        known = {line.id: line for line in running}
        for line in placed:
            gpu = d.number_of[line.place]
            if not d.b.count[gpu]:
                d.save(gpu)
                d.b.clock[gpu] = t.problem.type_of(line.node).top_clock_mhz / line.clock_mhz
            offer = self._offers[t.number_of[line.service], line.variant, int(d.x.site[gpu])]
            slot = d.start(gpu, offer, line.sm_percent, batch_of[line.batch], line.memory_gib, known.get(line.id))
            d.b.cap[gpu, slot] = d.x.rate[gpu, slot] = line.rate_per_second


def _drop_movable_jobs(problem: Problem, plan: Plan) -> tuple[Plan, Problem]:
    """Returns both with those jobs alone that must stay where they run."""
    jobs = {name: job for name, job in problem.jobs.items() if not job.is_preemptible}
    placed = tuple(job for job in plan.jobs if job.job in jobs)
    staying = {job.job for job in placed}
    state = problem.state
    return (
        replace(plan, jobs=placed, unplaced=()),
        replace(
            problem,
            jobs={name: job for name, job in jobs.items() if name in staying},
            state=state and RunningState(state.now, state.running, tuple(j for j in state.jobs if j.job in staying)),
        ),
    )


def _offer_numbers(d: RunningBoard) -> Mapping[tuple[int, str, int], int]:
    """Returns the number of each offer by service, variant and site."""
    t = d.t
    sites = np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start))
    return {
        (int(service), variant, int(site)): offer
        for offer, (service, variant, site) in enumerate(zip(t.offer_service, t.offer_variant, sites, strict=True))
    }
