"""The integer programme that counts instances of language models by shape and group of nodes, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from solvers.integer_program import IntegerProgram
from solvers.planning.fleet.token_shapes import TokenShape
from solvers.planning.judge.billing import gpu_price, is_billed_whole, whole_price
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Instance, Place, Problem, Service
from solvers.planning.wide.groups import LinkedNodes

MOST_NODES = 5_000  # of branch and bound: the same answer on every machine
GAP_SHARE = 1e-6
MOST_SECONDS = 20.0  # a guard: the programme of a fleet takes far less
TIE_SHARE = 1e-7  # of a price: among equal plans, the one with fewer GPUs of preferred types wins


@dataclass(frozen=True, slots=True)
class Choice:
    """So many new instances of a shape on a group of nodes, or a running one that stays; they carry `rate` together."""

    shape: TokenShape
    group: LinkedNodes
    count: int
    rate_per_second: float
    kept: Instance | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best counts found, what they leave unserved, and a bound on the cost of any."""

    choices: tuple[Choice, ...]
    unserved: Mapping[str, float]
    bound: float


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a choice: a plan counts churn and what runs, a bound does not."""

    value: Mapping[str, float] = field(default_factory=dict)  # GPU type -> what others would pay beyond its price
    whole_nodes: bool = True  # instances on a node that is billed whole pay all of it
    kept: Sequence[tuple[Instance, TokenShape, LinkedNodes]] = ()
    churn: bool = False
    need_share: float = 1.0  # of the rates


@dataclass(slots=True)
class _Column:
    """A variable of the programme that counts instances, and the one of their rate."""

    shape: TokenShape
    group: LinkedNodes
    count: int
    rate: int
    kept: Instance | None = None


def choose(
    problem: Problem, groups: Sequence[LinkedNodes], shapes: Sequence[TokenShape], terms: Terms
) -> Chosen | None:
    """Returns the cheapest counts; None if the programme has no solution in its limits."""
    rows = IntegerProgram()
    columns = _columns(problem, rows, groups, shapes, terms)
    _pack(problem, rows, groups, columns, terms)
    unserved = {
        name: _serve(problem, rows, service, [column for column in columns if column.shape.service == name], terms)
        for name, service in sorted(problem.services.items())
        if service.tokens is not None
    }
    _limit(problem, rows, columns)
    solved = rows.solve(MOST_NODES, GAP_SHARE, MOST_SECONDS)
    if solved is None:
        return None
    values, bound = solved.values, solved.bound
    choices = [
        Choice(column.shape, column.group, round(values[column.count]), values[column.rate], column.kept)
        for column in columns
        if round(values[column.count])
    ]
    return Chosen(tuple(choices), {name: values[at] for name, at in unserved.items()}, bound)


def hourly_price(problem: Problem, group: LinkedNodes, shape: TokenShape, terms: Terms) -> float:
    """Returns what one instance adds to the cost by its GPUs, besides what a node billed whole costs."""
    policy, node = problem.policy, group.node
    whole = is_billed_whole(node, policy)
    price = 0.0 if whole and terms.whole_nodes else (node.price_per_hour if whole else gpu_price(node))
    gpu = problem.gpu_types[shape.gpu_type]
    energy = (gpu.idle_w + shape.busy_w) / 1000 * policy.energy_price_per_kwh
    return shape.degree * (price * policy.money_weight + energy)


def _columns(
    problem: Problem, rows: IntegerProgram, groups: Sequence[LinkedNodes], shapes: Sequence[TokenShape], terms: Terms
) -> list[_Column]:
    policy, found = problem.policy, list[_Column]()
    for group in groups:
        for shape in shapes:
            if not admits(problem, group, shape):
                continue
            cost = hourly_price(problem, group, shape, terms) + shape.degree * terms.value.get(shape.gpu_type, 0.0)
            cost += _tie(problem, group, shape)
            if terms.churn:
                cost += policy.move_price * shape.degree * group.node.price_per_hour * 60 / policy.horizon_minutes
            most = slots(problem, group, shape) * len(group.nodes)
            found.append(_Column(shape, group, rows.variable(cost, most, is_whole=True), rows.variable(0.0)))
    for instance, shape, group in terms.kept:
        cost = hourly_price(problem, group, shape, terms) + shape.degree * terms.value.get(shape.gpu_type, 0.0)
        found.append(_Column(shape, group, rows.variable(cost, 1, is_whole=True), rows.variable(0.0), instance))
    for column in found:
        rows.row([(column.rate, 1.0), (column.count, -column.shape.rate_per_second)], most=0.0)
    return found


def drawn_w(problem: Problem, shape: TokenShape) -> float:
    """Returns the watts that each GPU of an instance draws."""
    return problem.gpu_types[shape.gpu_type].idle_w + shape.busy_w


def allows(problem: Problem, shape: TokenShape, places: Iterable[Place]) -> bool:
    """Returns whether each of these GPUs may draw the watts of an instance of this shape."""
    return all(is_at_most(drawn_w(problem, shape), problem.type_at(place).max_w) for place in places)


def slots(problem: Problem, group: LinkedNodes, shape: TokenShape) -> int:
    """Returns how many instances of this shape alone fit onto a node of the group."""
    return group.slots_for(shape.degree, drawn_w(problem, shape))


def admits(problem: Problem, group: LinkedNodes, shape: TokenShape) -> bool:
    """Returns whether nodes of this group may run an instance of this shape at all."""
    node, cells = group.node, problem.services[shape.service].cells
    return (
        node.gpu_type == shape.gpu_type
        and slots(problem, group, shape) > 0
        and (node.templates is None or shape.template is None or shape.template in node.templates)
        and (cells is None or node.cell in cells)
        and shape.cpu_cores <= node.cpu_cores
        and shape.host_memory_gib <= node.host_memory_gib
    )


def _tie(problem: Problem, group: LinkedNodes, shape: TokenShape) -> float:
    preferred = problem.services[shape.service].gpu_types or ()
    rank = preferred.index(shape.gpu_type) if shape.gpu_type in preferred else 0
    return TIE_SHARE * group.node.price_per_hour * shape.degree * (1 + rank)


def _pack(
    problem: Problem, rows: IntegerProgram, groups: Sequence[LinkedNodes], columns: Sequence[_Column], terms: Terms
) -> None:
    """Adds that each node holds what fits: degrees are powers of two, so counts of at least each degree are exact."""
    for group in groups:
        here = [column for column in columns if column.group is group]
        nodes: list[tuple[int, float]] = []
        count = float(len(group.nodes))
        if terms.whole_nodes and is_billed_whole(group.node, problem.policy) and here:
            cost = whole_price(group.node) * problem.policy.money_weight
            nodes, count = [(rows.variable(cost, count, is_whole=True), 1.0)], 0.0
        for degree in sorted({column.shape.degree for column in here}):
            taken = [(c.count, c.shape.degree / degree) for c in here if c.shape.degree >= degree]
            _add_limit(rows, taken, group.slots(degree), nodes, count)
            for cap_w in sorted({cap_w for link in group.caps_w for cap_w in link}):
                hot = [
                    (c.count, c.shape.degree / degree)
                    for c in here
                    if c.shape.degree >= degree and not is_at_most(drawn_w(problem, c.shape), cap_w)
                ]
                _add_limit(rows, hot, group.slots(degree, cap_w), nodes, count)
        _add_limit(rows, [(c.count, c.shape.cpu_cores) for c in here], group.node.cpu_cores, nodes, count)
        _add_limit(rows, [(c.count, c.shape.host_memory_gib) for c in here], group.node.host_memory_gib, nodes, count)


def _add_limit(
    rows: IntegerProgram, taken: list[tuple[int, float]], each: float, nodes: Sequence[tuple[int, float]], count: float
) -> None:
    """Adds: what is taken <= what each node has x the nodes, which are a variable or a number."""
    if any(factor for _, factor in taken):
        rows.row([*taken, *((node, -each * factor) for node, factor in nodes)], most=each * count)


def _serve(problem: Problem, rows: IntegerProgram, service: Service, mine: Sequence[_Column], terms: Terms) -> int:
    """Adds the rules of a service; returns the variable of its unserved rate."""
    need = service.rate_per_second * terms.need_share
    price = problem.policy.price_unserved(service)
    rest, any_rest = rows.variable(0.0, need), rows.variable(0.0, 1, is_whole=True)
    paid = rows.variable(1.0)
    rows.row([(rest, 1.0), (any_rest, -need)], most=0.0)
    rows.row([(paid, 1.0), (rest, -price)], least=0.0)
    rows.row([(paid, 1.0), (any_rest, -price)], least=0.0)
    rows.row([*((column.rate, 1.0) for column in mine), (rest, 1.0)], least=need, most=need)
    if service.min_instances > 1 and mine:
        runs = rows.variable(0.0, 1, is_whole=True)
        most = sum(rows.upper[column.count] for column in mine)
        counts = [(column.count, 1.0) for column in mine]
        rows.row([*counts, (runs, -float(service.min_instances))], least=0.0)
        rows.row([*counts, (runs, -most)], most=0.0)
    if service.mean_accuracy:
        rows.row([(c.rate, c.shape.accuracy - service.mean_accuracy) for c in mine], least=0.0)
    share = service.availability.max_spot_share
    if share < 1:
        spot = [(c.rate, (1.0 if c.group.node.purchase == "spot" else 0.0) - share) for c in mine]
        rows.row(spot, most=0.0)
    return rest


def _limit(problem: Problem, rows: IntegerProgram, columns: Sequence[_Column]) -> None:
    """Adds the limits of tenants and the budget of watts."""
    for tenant, limit in problem.limits.items():
        mine = [column for column in columns if problem.services[column.shape.service].tenant == tenant]
        if limit.gpus is not None:
            rows.row([(c.count, float(c.shape.degree)) for c in mine], most=limit.gpus)
        if limit.price_per_hour is not None:
            prices = [(c.count, c.shape.degree * c.group.node.price_per_hour) for c in mine]
            rows.row(prices, most=limit.price_per_hour)
    budget = problem.policy.power_budget_w
    if budget is not None:
        idle = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
        watts = [(c.count, c.shape.degree * c.shape.busy_w) for c in columns]
        rows.row(watts, most=max(0.0, budget - idle))
