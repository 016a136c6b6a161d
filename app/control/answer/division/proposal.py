"""Proposes a division of a fleet: searches, orders the steps, writes the manifests, and says why or why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from app.control.answer.division.documents import write_node, write_types
from app.control.answer.division.layouts import DivisibleFleet, find_divisible
from app.control.answer.division.order import order_steps
from app.control.answer.division.search import DividedFleet, DivisionSearch, FoundDivision, count_layouts
from app.control.answer.division.steps import describe_step, write_step
from app.control.answer.division.wire import DeviceServiceWire, DivisionWire
from app.control.answer.explain.wording import count, money, rate
from app.control.answer.whatif.compare import FindPlan, WhatIfSide
from app.control.domain.snapshot import DeclaredObject
from app.control.formulate.question import Question
from solvers.planning.problem import Problem

MOST_REFUSED = 5
SEARCHED_SHARE = 0.6  # of the time; the rest is for the order
WHERE_IT_PAYS = (
    "shares of a GPU by MPS fill it as well, in steps of 1 % instead of sevenths; devices pay where services must be "
    "alone (isolation: dedicated), where a GPU may hold more copies of a model than sameModelPerGpu, or where "
    "neighbours slow each other"
)


def propose_division(
    question: Question, declared: Sequence[DeclaredObject], before: WhatIfSide, solve: FindPlan,
    solve_briefly: FindPlan, has_passed: Callable[[float], bool],
) -> DivisionWire:  # fmt: skip
    """Returns the division that saves most, with its order; none where the undivided fleet costs least.

    `has_passed` tells if this share of the time is over: the search ends at one, and the order at the other.
    """
    problem = question.problem
    fleet = find_divisible(problem, declared, frozenset(node for node, _ in question.pinned))
    found = DivisionSearch(problem, before, fleet, solve, lambda: has_passed(SEARCHED_SHARE)).find()
    best = found.best
    layouts = list({layout.gpu_type: layout for layout in best.division.values()}.values())
    nodes = {line.name: line for line in declared if line.kind == "Node"}
    ordered = order_steps(problem, best.division, fleet.groups, solve_briefly, lambda: has_passed(1.0))
    steps = [
        write_step(
            step, problem.nodes[step.node].gpu_count, write_node(nodes[step.node], step.layout), is_first=at == 0
        )
        for at, step in enumerate(ordered)
    ]
    return {
        "savesPerHour": found.saves_per_hour,
        "undividedPerHour": found.undivided.paid_per_hour,
        "dividedPerHour": best.paid_per_hour,
        "servesMorePerSecond": found.serves_more_per_second,
        "bound": found.known_bound,
        "gap": _find_gap(found),
        "steps": steps,
        "manifests": list(write_types(best.side.problem, declared, layouts)),
        "services": _explain_services(problem, best),
        "leftOut": [
            {"nodes": number, "reason": reason} for reason, number in sorted(Counter(fleet.left_out.values()).items())
        ],
        "refused": list(found.refused[:MOST_REFUSED]),
        "sentences": [*_describe(problem, fleet, found), *map(describe_step, steps)],
    }


def _find_gap(found: FoundDivision) -> float | None:
    """Returns by which share of the bound the proposal costs more than the bound."""
    bound = found.known_bound
    return max(0.0, found.best.paid_per_hour / bound - 1) if bound else None


def _describe(problem: Problem, fleet: DivisibleFleet, found: FoundDivision) -> list[str]:
    if not fleet.groups:
        why = "; ".join(sorted(set(fleet.left_out.values()))) or "it has no nodes"
        return [f"no GPU of this fleet can be divided: {why}"]
    undivided, best, bound = found.undivided.paid_per_hour, found.best, found.known_bound
    proof = f"; no division of these nodes costs less than {money(bound)}" if bound else ""
    unit = "an hour" if problem.policy.money_weight == 1 else "an hour by the Policy's objective"
    closed = sum(service.gpu_types is not None for service in problem.services.values())
    stays = [f"{count(closed, 'service')} with gpuTypes use MIG devices only if gpuTypes names them"] if closed else []
    if not best.division:
        alone = sum(service.is_dedicated for service in problem.services.values())
        lonely = f"{count(alone, 'service')} of {len(problem.services)} must be alone on a GPU"
        refused = [f"not kept: {fault}" for fault in found.refused[:MOST_REFUSED]]
        return [
            f"dividing saves nothing: undivided the fleet costs {money(undivided)} {unit}{proof}",
            f"{WHERE_IT_PAYS}; here {lonely}", *stays, *refused,
        ]  # fmt: skip
    ways = " and ".join(
        f"{count(number, 'node')} of {kind} into devices {profile}"
        for (kind, profile), number in sorted(count_layouts(best.division).items())
    )
    more = found.serves_more_per_second
    saved = found.saves_per_hour
    serves = f"serves {rate(more)} requests a second more" if more > 0 else ""
    saves = f"saves {money(saved)} an hour" if saved > 0 or not serves else ""
    gains = " and ".join(filter(None, (serves, saves)))
    return [
        f"dividing {ways} {gains}: {money(best.paid_per_hour)} instead of {money(undivided)} {unit}{proof}",
        "times on devices are derived from the whole GPU's profiles unless you have declared their own: divide one "
        "node first and measure there (gpuwright profile)",
        *stays,
    ]


def _explain_services(problem: Problem, best: DividedFleet) -> list[DeviceServiceWire]:
    """Returns the services on devices, and what they gain there."""
    lines = [line for line in best.side.plan.instances if line.node in best.division]
    gpus = Counter(
        (line.node, line.gpu // best.division[line.node].profile.most, problem.services[line.service].model)
        for line in lines
    )
    crowded = {model for (_, _, model), number in gpus.items() if number > problem.policy.same_model_per_gpu}
    found: list[DeviceServiceWire] = []
    for name, copies in sorted(Counter(line.service for line in lines).items()):
        service = problem.services[name]
        if service.is_dedicated:
            reason = "it must be alone, and a device is enough for it"
        elif service.model in crowded:
            reason = (
                f"a GPU holds more copies of {service.model} than sameModelPerGpu {problem.policy.same_model_per_gpu}"
            )
        else:
            reason = "neighbours on other devices of the GPU do not slow it"
        found.append({"service": name, "copies": copies, "reason": reason})
    return found
