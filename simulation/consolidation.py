"""Karpenter's rule for nodes, to compare ours with: one comes when something waits, one goes when it can be spared.

It knows the load of now alone. What the planner cannot place is what pods would be that wait: nodes are ordered at once
on which it can. Once nothing has changed on a node for `consolidateAfter`, the node goes if it is empty, or if all that
runs on it fits on the others; nodes that hold the least go first, one at a time. Headroom is what its users add, by
placeholder pods or a lower target, so that load that rises meets nodes that are up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from app.control.domain.ports import PlanSolver
from app.control.rent.question import SOLVER_SECONDS, SOLVER_STEPS, list_used, pose_renting
from app.control.rent.rule import RentDecision, RentMoment
from app.control.rent.states import RentedNode, RentState
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

SPARED_SHARE = 1e-6  # of all requests: as little counts as none


@dataclass(slots=True)
class ConsolidationRule:
    """Orders nodes for what waits, and gives back those that are empty or whose load fits elsewhere."""

    after_seconds: float  # consolidateAfter
    headroom_share: float = 0.0  # of each service's rate
    _settled: dict[str, tuple[frozenset[str], float]] = field(default_factory=dict)  # what a node holds, since when

    def decide(self, moment: RentMoment, solver: PlanSolver) -> RentDecision | None:
        """Returns what is ordered and what leaves."""
        rates = {
            name: service.rate_per_second * (1 + self.headroom_share)
            for name, service in moment.problem.services.items()
        }
        question, pool_of = pose_renting(moment.problem, moment.list_offers(), rates, frozenset())
        there = _keep_nodes(question, question.nodes.keys() - pool_of.keys())
        waiting = self._count_waiting(solver, there)
        joined = [row for pool in moment.pools for row in moment.live(pool) if row.state is RentState.JOINED]
        ready = self._list_settled(joined, moment)
        if waiting > 0:
            return RentDecision(self._count_orders(moment, solver, question, pool_of), ())
        orders = {name: max(0, pool.least - len(moment.live(name))) for name, pool in moment.pools.items()}
        return RentDecision(orders, self._spare(moment, solver, there, ready))

    def _count_orders(
        self, moment: RentMoment, solver: PlanSolver, question: Problem, pool_of: Mapping[str, str]
    ) -> dict[str, int]:
        answer = _solve(solver, question)
        used = Counter(pool_of[name] for name in list_used(answer) & pool_of.keys()) if answer else Counter[str]()
        return {
            name: max(
                pool.least - len(moment.live(name)),
                min(used[name] - moment.count_coming(name), pool.most - len(moment.live(name))),
                0,
            )
            for name, pool in moment.pools.items()
        }

    def _list_settled(self, joined: Iterable[RentedNode], moment: RentMoment) -> list[RentedNode]:
        """Returns the nodes on which nothing has changed for long enough, those that hold the least first."""
        now, holds = moment.now.timestamp(), dict[str, frozenset[str]]()
        for row in joined:
            holds[row.node] = frozenset(line.id for line in moment.plan.instances if line.node == row.node)
            if self._settled.get(row.node, (None, 0.0))[0] != holds[row.node]:
                self._settled[row.node] = (holds[row.node], now)
        settled = [row for row in joined if now - self._settled[row.node][1] >= self.after_seconds]
        return sorted(settled, key=lambda row: (len(holds[row.node]), row.asked_at, row.node))

    def _spare(
        self, moment: RentMoment, solver: PlanSolver, there: Problem, ready: Iterable[RentedNode]
    ) -> list[RentedNode]:
        """Returns the empty nodes, or else the first without which everything is served."""
        may_go = [row for row in ready if len(moment.live(row.pool)) > moment.pools[row.pool].least]
        empty = [row for row in may_go if row.node in moment.idle]
        if empty:
            spare = Counter({name: len(moment.live(name)) - pool.least for name, pool in moment.pools.items()})
            kept: list[RentedNode] = []
            for row in empty:
                if spare[row.pool] > 0:
                    spare[row.pool] -= 1
                    kept.append(row)
            return kept
        for row in may_go:
            rest = _keep_nodes(there, there.nodes.keys() - {row.node})
            if rest.nodes and self._count_waiting(solver, rest) <= 0:
                return [row]
        return []

    def _count_waiting(self, solver: PlanSolver, question: Problem) -> float:
        """Returns the rate that the planner cannot place."""
        asked = sum(service.rate_per_second for service in question.services.values())
        answer = _solve(solver, question) if question.nodes else None
        unserved = sum(rest.rate_per_second for rest in answer.unserved) if answer else asked
        return unserved if unserved > SPARED_SHARE * asked else 0.0


def _solve(solver: PlanSolver, question: Problem) -> Plan | None:
    return solver.solve(question, seconds=SOLVER_SECONDS, work=SOLVER_STEPS).plan


def _keep_nodes(question: Problem, names: Iterable[str]) -> Problem:
    """Returns the problem with these nodes alone; what ran on others runs nowhere."""
    kept = frozenset(names)
    state = question.state and replace(
        question.state,
        running=tuple(line for line in question.state.running if line.node in kept),
        jobs=tuple(line for line in question.state.jobs if line.node in kept),
    )
    nodes = {name: node for name, node in question.nodes.items() if name in kept}
    return replace(question, nodes=nodes, state=state)
