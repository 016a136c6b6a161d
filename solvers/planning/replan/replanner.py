"""Changes a running plan as rates change: each change touches only what it must, and only that is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from solvers.compiled import read_all
from solvers.planning.drafting.drafts import LEVEL_SHARES, prepare
from solvers.planning.fleet.grids import Floats
from solvers.planning.judge import JudgedPlan, PlanEdit, Verdict
from solvers.planning.plan import NONE_UNSERVED_SHARE, Certificate, Changes, Plan, Unserved
from solvers.planning.problem import Problem, RunningState
from solvers.planning.replan.lines import Difference, difference, predict_lines
from solvers.planning.replan.running_board import RunningBoard, running_board
from solvers.planning.replan.seat import seat
from solvers.planning.replan.serving import lose_least, serve
from solvers.planning.search import dive
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import Tables, tables
from solvers.planning.search.workshop import Workshop, tabulated, usual_levels

DRIFT_SHARE = 0.0125  # of the cost: beyond it the estimate says that a full plan would be cheaper by about 2 %
ROUNDS = 6  # of pricing
GUESS_SM_PERCENT = 4  # step width of the rates by which room is guessed
HELD_PARTS = (1.0, 0.9, 0.7, 0.4)  # of what they carried, where no small change is valid


@dataclass
class Replanner:
    """A valid plan in a warm process. `change` follows new rates; `plan` is the result so far."""

    problem: Problem
    board: RunningBoard
    prices: Floats
    judged_plan: JudgedPlan
    base: Plan
    per_worth: float  # what a full plan cost for each unit of its rates' worth at the prices
    unserved: dict[str, Unserved]
    serial: int
    broken: set[int] = field(default_factory=set)  # services that were invalid from the beginning
    wrong: frozenset[tuple[str, str]] = frozenset()  # the rules that the plan breaks before any change, and where

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> Replanner:
        """Takes a while, because prices are computed from scratch."""
        read_all()  # or the first change would wait for the compiled loops
        now = problem.state.now if problem.state else None
        problem = replace(problem, state=RunningState(now=now))
        t = tables(problem)
        shop, prices = price_services(t, ROUNDS)
        made = running_board(t, shop, plan.jobs)
        broken = seat(made, plan.instances)
        made.forget()
        judged_plan = JudgedPlan(problem, plan, keep)
        judged_plan.settle()
        judged = judged_plan.verdict()
        cost = judged.cost.resource
        worth = float((prices * t.rate).sum())
        unserved = {entry.service: entry for entry in plan.unserved}
        missed = sum(float(prices[t.number_of[name]]) * entry.rate_per_second for name, entry in unserved.items())
        per_worth = cost / (worth - missed) if worth > missed else 1.0
        return cls(
            problem, made, prices, judged_plan, plan, per_worth, unserved, len(plan.instances), broken,
            frozenset((violation.where, violation.rule) for violation in judged.violations),
        )  # fmt: skip

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Changes the plan to follow new rates of these services; returns why a full plan is due."""
        d, before = self.board, self.problem
        problem = before.change_rates(rates)
        new = {d.t.number_of[name] for name, rate in rates.items() if rate != before.services[name].rate_per_second}
        services = sorted(new | self.broken)
        for name, rate in rates.items():
            number = d.t.number_of[name]
            d.w.rate[number], d.w.most_rate[number] = rate, rate / d.t.min_instances[number]
        unserved = lose_least(d, lambda may_empty: serve(d, services, self.prices, may_empty))
        found = difference(d, services, self.serial, unserved)
        verdict, edit = self._judge(found, problem)
        reasons: list[str] = []
        if verdict.violations:
            reasons.append(f"small changes give no valid plan: {verdict.violations[0]}")
        for part in HELD_PARTS:
            # A rule that was broken before is not the fault of the change: carrying less would not mend it.
            if all((violation.where, violation.rule) in self.wrong for violation in verdict.violations):
                break
            self.judged_plan.apply(_inverse(edit, self.unserved), before)
            d.restore()
            found = self._held(services, part)
            verdict, edit = self._judge(found, problem)
        self.broken = set()
        self.wrong = frozenset((violation.where, violation.rule) for violation in verdict.violations)
        d.forget()
        self.judged_plan.settle()
        self.problem = problem
        self.serial += len(found.after)
        for name, entry in edit.unserved.items():
            self.unserved.pop(name, None)
            if entry:
                self.unserved[name] = entry
        # Unserved rates are reported each time: small changes do not return to them, and a full plan may serve them.
        reasons += [
            f"{self.unserved[name].rate_per_second:g}/s of {name} stay unserved" for name in self._list_missed()
        ]
        return (*reasons, *self._find_drifted(verdict))

    @property
    def plan(self) -> Plan:
        """Returns the current plan."""
        verdict = self.judged_plan.verdict()
        certificate = Certificate(verdict.cost, None, "the running plan with changed rates", 0, 0.0)
        return replace(
            self.base, instances=predict_lines(self.board), changes=Changes(), certificate=certificate, releasable=(),
            unserved=tuple(self.unserved[name] for name in sorted(self.unserved)),
        )  # fmt: skip

    def _judge(self, found: Difference, problem: Problem) -> tuple[Verdict, PlanEdit]:
        names = self.board.t.services
        unserved = {
            names[s]: Unserved(names[s], rate, "small changes give no room; a full plan is due") if rate else None
            for s, rate in found.unserved.items()
            if rate or names[s] in self.unserved
        }
        change = PlanEdit(stop=found.before, start=found.after, unserved=unserved)
        return self.judged_plan.apply(change, problem), change

    def _held(self, services: Iterable[int], most: float) -> Difference:
        """Starts, stops and grows nothing: lower rates are followed, and what is more stays unserved.

        A budget of watts may want them to carry even less: `most` of what they did.
        """
        d, unserved = self.board, {}
        for service in services:
            gpus, slots = d.seats(service)
            d.touched.add(service)
            carried = d.x.rate[gpus, slots]
            part = min(most, d.w.rate[service] / max(float(carried.sum()), 1e-300))
            d.x.rate[gpus, slots] = carried * part
            rest = float(d.w.rate[service] - (carried * part).sum())
            unserved[service] = rest if rest > 1e-5 * d.w.rate[service] else 0.0
        return difference(d, services, self.serial, unserved)

    def _list_missed(self) -> list[str]:
        """Returns the services that are not served whole, the most expensive first."""
        services, price = self.problem.services, self.board.t.unserved_price
        missed = {
            name: float(price[self.board.t.number_of[name]]) * max(entry.rate_per_second, 1.0)
            for name, entry in self.unserved.items()
            if entry.rate_per_second > NONE_UNSERVED_SHARE * services[name].rate_per_second
        }
        return sorted(missed, key=lambda name: (-missed[name], name))

    def _find_drifted(self, verdict: Verdict) -> list[str]:
        worth = float((self.prices * self.board.w.rate).sum())
        expected = worth * self.per_worth
        now = verdict.cost.resource
        if now > expected * (1 + DRIFT_SHARE):
            return [f"it costs {now:.6g}; by the prices, a full plan would cost about {expected:.6g}"]
        used = int((self.board.b.count > 0).sum())
        if 0 < used * DRIFT_SHARE < 1:  # a full plan of so few takes no time
            return [f"one of {used} GPUs is {1 / used:.1%} of the fleet: a full plan would probably save it"]
        return []


def price_services(t: Tables, rounds: int) -> tuple[Workshop, Floats]:
    """Returns an empty workshop, and the worth of a request a second of each service."""
    shop = prepare(t)
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate.copy(), extra)
    if len(t.services):
        for _ in dive.generate(shop, course, rounds):
            pass
    shop.clear_all()
    shop.pools.extra[:] = course.extra
    # Rates will rise: an instance must be able to carry more than today's.
    w = shop.w._replace(most_rate=np.full(len(t.services), np.inf))
    shop.read(tabulated(t, w, GUESS_SM_PERCENT, usual_levels(t, LEVEL_SHARES)))
    return shop, np.maximum(course.rate, 0.5 * rate)


def _inverse(change: PlanEdit, unserved: Mapping[str, Unserved]) -> PlanEdit:
    return PlanEdit(
        stop=change.start, start=change.stop, unserved={name: unserved.get(name) for name in change.unserved}
    )
