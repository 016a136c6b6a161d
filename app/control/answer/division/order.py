"""Orders a division: one node after the other, so that the rest of the fleet carries everything meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from app.control.answer.division.divided import divide_fleet
from app.control.answer.division.layouts import DivisibleNodes, MigLayout
from app.control.answer.whatif.compare import FindPlan
from app.control.formulate.availability import relax_availability
from app.control.formulate.min_instances import relax_min_instances
from solvers.planning.problem import Instance, Problem, RunningState

SMALL_SHARE = 1e-5  # of a rate


@dataclass(frozen=True, slots=True)
class DrainedCopies:
    """Copies of a service that leave a node, and the nodes where others start before."""

    service: str
    copies: int
    to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DivisionStep:
    """A node that is emptied and divided; `lacking` has the requests a second that nothing carries meanwhile."""

    node: str
    layout: MigLayout
    drained: tuple[DrainedCopies, ...]
    lacking: Mapping[str, float]
    is_known: bool = True  # False: there was no time to look where its copies go


def order_steps(
    problem: Problem, division: Mapping[str, MigLayout], alike: Sequence[DivisibleNodes], solve: FindPlan,
    is_late: Callable[[], bool],
) -> list[DivisionStep]:  # fmt: skip
    """Returns the nodes in the order of their division: those first that the rest of the fleet can spare.

    A node on which copies run gives its place to one like it that is empty by then.
    """
    running: Sequence[Instance] = problem.state.running if problem.state else ()
    allowed = _find_lacking(problem, running)
    left, done = dict(division), dict[str, MigLayout]()
    steps: list[DivisionStep] = []
    while left:
        if is_late():
            return [*steps, *(_leave_open(name, left[name], running) for name in sorted(left))]
        copies = Counter(line.node for line in running)
        for name in [name for name in left if copies[name]]:
            if (empty := _find_empty(name, alike, {*left, *done, *copies})) is not None:
                left[empty] = left.pop(name)
        tried: list[tuple[DivisionStep, Sequence[Instance]]] = []
        for name in sorted(left, key=lambda node: (copies[node], node)):
            tried.append(_empty_node(problem, name, left[name], done, running, solve, allowed))
            if not tried[-1][0].lacking or is_late():
                break
        step, running = min(tried, key=lambda entry: sum(entry[0].lacking.values()))
        steps.append(step)
        done[step.node] = left.pop(step.node)
        if left and not is_late():  # plans use the new devices before the next node is emptied
            running = _plan_on(problem, done, running, solve)
    return steps


def _find_empty(name: str, alike: Sequence[DivisibleNodes], taken: Set[str]) -> str | None:
    """Returns a node like this one on which nothing runs, and that is not to be divided already."""
    group = next((group for group in alike if name in group.nodes), None)
    return next((other for other in group.nodes if other not in taken), None) if group else None


def _plan_on(
    problem: Problem, done: Mapping[str, MigLayout], running: Sequence[Instance], solve: FindPlan
) -> Sequence[Instance]:
    """Returns what runs once the fleet with these nodes divided is planned again."""
    divided = divide_fleet(problem, done)
    plan = solve(replace(divided, state=replace(problem.state or RunningState(), running=tuple(running))))
    return running if plan is None else plan.instances


def _leave_open(name: str, layout: MigLayout, running: Sequence[Instance]) -> DivisionStep:
    leaving = [line for line in running if line.node == name]
    return DivisionStep(name, layout, _list_drained(leaving, (), ()), {}, is_known=not leaving)


def _empty_node(
    problem: Problem, name: str, layout: MigLayout, done: Mapping[str, MigLayout], running: Sequence[Instance],
    solve: FindPlan, allowed: Mapping[str, float],
) -> tuple[DivisionStep, Sequence[Instance]]:  # fmt: skip
    """Returns the step that empties this node, and what runs then."""
    leaving = [line for line in running if line.node == name]
    if not leaving:
        return DivisionStep(name, layout, (), {}), running
    rest = {node: facts for node, facts in problem.nodes.items() if node != name}
    staying = tuple(line for line in running if line.node != name)
    if not rest:
        return DivisionStep(name, layout, _list_drained(leaving, staying, ()), _sum_rates(leaving)), staying
    divided = divide_fleet(problem, done)
    now = problem.state or RunningState()
    during = replace(divided, nodes={node: divided.nodes[node] for node in rest}, state=replace(now, running=staying))
    plan = solve(_relax(during))
    if plan is None:  # it is not known what nothing would carry
        return _leave_open(name, layout, running), staying
    after = plan.instances
    lacking = {
        service: rate for service, rate in _find_lacking(problem, after).items()
        if rate > allowed.get(service, 0.0) + SMALL_SHARE * problem.services[service].rate_per_second
    }  # fmt: skip
    return DivisionStep(name, layout, _list_drained(leaving, staying, after), lacking), after


def _relax(problem: Problem) -> Problem:
    """Returns the problem with the rules that so few nodes cannot keep relaxed, as in every drain."""
    services, _ = relax_availability(problem)
    services, _ = relax_min_instances(replace(problem, services=services))
    return replace(problem, services=services)


def _find_lacking(problem: Problem, lines: Sequence[Instance]) -> dict[str, float]:
    """Returns by service the requests a second that these copies do not carry."""
    carried = _sum_rates(lines)
    found = {name: service.rate_per_second - carried.get(name, 0.0) for name, service in problem.services.items()}
    return {name: rate for name, rate in found.items() if rate > SMALL_SHARE * problem.services[name].rate_per_second}


def _sum_rates(lines: Sequence[Instance]) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in lines:
        found[line.service] = found.get(line.service, 0.0) + line.rate_per_second
    return found


def _list_drained(
    leaving: Sequence[Instance], staying: Sequence[Instance], after: Sequence[Instance]
) -> tuple[DrainedCopies, ...]:
    """Returns what leaves, by service, and the nodes that have more copies of it afterwards."""
    before = Counter((line.service, line.node) for line in staying)
    then = Counter((line.service, line.node) for line in after)
    found = []
    for service, copies in sorted(Counter(line.service for line in leaving).items()):
        more = {node for (name, node), number in then.items() if name == service and number > before[name, node]}
        found.append(DrainedCopies(service, copies, tuple(sorted(more))))
    return tuple(found)
