"""Plans language models beside everything else.

The two share GPUs, cores and limits, and nothing else: an integer programme chooses whole GPUs for language models, and
the ordinary search plans the rest of the fleet. It is asked again with other prices of GPUs, because what one takes the
other cannot have; the plan that costs least in all is kept. The bound is that of both with the whole fleet each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias

from solvers.planning.beside import (
    merge_language_instances,
    narrow_problem,
    wide_of,
)
from solvers.planning.finish import MOST_SIMULATED_INSTANCES, releasable, warnings
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.token_services import language_models
from solvers.planning.fleet.token_shapes import TokenShape, carried_by, predicted
from solvers.planning.judge.billing import is_billed_whole
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Problem
from solvers.planning.solved import SolveBudget
from solvers.planning.wide.groups import LinkedNodes, node_groups
from solvers.planning.wide.programme import Chosen, Terms, allows, choose
from solvers.planning.wide.reasons import reasons
from solvers.planning.wide.seating import seated

SCREEN_STEPS = 6  # of the ordinary search for each choice of whole GPUs
SCREENED_SERVICES = 80  # with more, each choice gets a first draft only
PRICE_ROUNDS = 3  # of prices at which the ordinary services outbid language models
KEPT_SHARE = 0.95  # of its best shape's rate: a running instance that carries this much is not changed
NEED_SHARE = 1 - 2e-5  # of a rate, in a bound: 1e-5 unserved count as none, and a valid plan's rates may lack 1e-5
METHOD = "whole GPUs for language models by an integer programme"


KeptInstance: TypeAlias = tuple[Instance, TokenShape, LinkedNodes]  # with the best shape on its GPUs


class DraftRest(Protocol):
    """Plans everything but language models, by counted work."""

    def __call__(self, problem: Problem, budget: SolveBudget) -> Plan: ...


@dataclass(frozen=True)
class MixedCase:
    """A problem with language models, and the shapes that these may have."""

    problem: Problem

    @cached_property
    def shapes(self) -> list[TokenShape]:
        offers = read_offers(self.problem)
        return [shape for s in language_models(self.problem).values() for shape in offers.find_token_shapes(s)]

    @cached_property
    def groups(self) -> list[LinkedNodes]:
        return node_groups(self.problem)

    @cached_property
    def kept(self) -> list[KeptInstance]:
        """Returns the running instances that may stay, each with the best shape on its GPUs."""
        group_of = {node.name: group for group in self.groups for node in group.nodes}
        found = []
        state = self.problem.state
        for line in wide_of(self.problem, state.running) if state else ():
            fitting = [
                shape for shape in self.shapes
                if (shape.service, shape.variant, shape.degree) == (line.service, line.variant, line.degree)
                and line.node in group_of and shape.gpu_type == group_of[line.node].node.gpu_type
                and abs(shape.memory_gib - line.memory_gib) <= 1e-9 * shape.memory_gib
                and allows(self.problem, shape, line.places)
            ]  # fmt: skip
            found += [(line, _keep_running_shape(self.problem, line, shape), group_of[line.node]) for shape in fitting]
        return found

    def chosen(self, terms: Terms) -> tuple[list[Instance], Chosen]:
        """Returns the instances of language models by these terms."""
        best = choose(self.problem, self.groups, self.shapes, terms)
        if best is None:
            return [], Chosen((), {name: s.rate_per_second for name, s in language_models(self.problem).items()}, 0.0)
        wide, complete = seated(self.problem, self.groups, best.choices)
        if not complete and terms.kept:  # what stays may stand in the way of wider instances
            return self.chosen(replace(terms, kept=()))
        return wide, best

    def terms(self) -> Terms:
        """Returns the terms of a plan: starts cost churn, and what runs may stay."""
        running = self.problem.state is not None and bool(self.problem.state.running)
        return Terms(kept=_distinct(self.kept), churn=running)

    def bound(self, bound_of_rest: float | None) -> float | None:
        """Returns a bound of every right plan: no plan costs less than both parts with the whole fleet each."""
        whole = self._least(Terms(need_share=NEED_SHARE))
        if not has_rest(self.problem):
            return whole
        by_gpu = self._least(Terms(need_share=NEED_SHARE, whole_nodes=False))
        found = [whole, None if by_gpu is None or bound_of_rest is None else by_gpu + bound_of_rest]
        return max((bound for bound in found if bound is not None), default=None)

    def _least(self, terms: Terms) -> float | None:
        # GPUs that a running job keeps count, too: it may end.
        alone = replace(self.problem, state=None)
        found = choose(alone, node_groups(alone), self.shapes, terms)
        return None if found is None else found.bound * (1 - 2e-6)


@dataclass(frozen=True, slots=True)
class _MixedDraft:
    """A choice of whole GPUs, with a first plan of everything else."""

    wide: list[Instance]
    unserved: Mapping[str, float]
    value: float
    outbid: Mapping[str, float]  # GPU type -> what the rest would pay for one more, beyond its price


def has_rest(problem: Problem) -> bool:
    """Returns whether there are services besides language models."""
    return any(service.tokens is None for service in problem.services.values())


@dataclass(frozen=True, slots=True)
class ChosenModels:
    """The language models of a plan, and the problem that they leave to the planner of all else."""

    case: MixedCase
    instances: Sequence[Instance]
    unserved: Mapping[str, float]

    @property
    def rest(self) -> Problem:
        return narrow_problem(self.case.problem, self.instances)

    def join(self, narrow: Plan) -> Plan:
        """Returns the plan of everything once the judge accepts it; what it refuses of language models is left out."""
        problem = self.case.problem
        kept = [predicted(problem, problem.services[line.service], line) for line in self.instances]
        missing = dict(self.unserved)
        method = METHOD
        if has_rest(problem) and narrow.certificate:
            method += f"; all else: {narrow.certificate.method}"
        is_simulated = len(narrow.instances) + len(kept) <= MOST_SIMULATED_INSTANCES
        for _ in range(len(kept) + 1):
            why = reasons(problem, self.case.groups, self.case.shapes, missing)
            plan, broken = merge_language_instances(problem, narrow, kept, why, simulate=is_simulated)
            gone = {line.service for line in kept if any(_concerns(text, line) for text in broken)}
            if not gone:
                break
            method += f"; the judge refuses {', '.join(sorted(gone))}, left out"
            missing |= {name: problem.services[name].rate_per_second for name in gone}
            kept = [line for line in kept if line.service not in gone]
        plan = replace(plan, warnings=tuple(dict.fromkeys((*plan.warnings, *warnings(problem)))))
        plan = replace(plan, releasable=releasable(problem, plan))
        assert plan.certificate
        return replace(plan, certificate=replace(plan.certificate, method=method, programme=None))


def choose_models(problem: Problem, seed: int, draft_rest: DraftRest) -> ChosenModels:
    """Returns the instances of language models that the plan has, and the rates they leave: the same every time."""
    case = MixedCase(problem)
    terms = case.terms()
    if not has_rest(problem):
        wide, best = case.chosen(terms)
        return ChosenModels(case, wide, best.unserved)
    drafts = [_draft(case, each, seed, draft_rest) for each in _first_terms(case, terms)]
    best_draft = min(drafts, key=lambda draft: draft.value)
    value: dict[str, float] = {}
    for _ in range(PRICE_ROUNDS):
        if not best_draft.outbid:
            break
        value = {name: max(value.get(name, 0.0), extra) for name, extra in best_draft.outbid.items()}
        draft = _draft(case, replace(terms, value=value), seed, draft_rest)
        if draft.value >= best_draft.value - 1e-9:
            break
        best_draft = draft
    return ChosenModels(case, best_draft.wide, best_draft.unserved)


def _first_terms(case: MixedCase, terms: Terms) -> Iterator[Terms]:
    yield terms
    if any(is_billed_whole(node, case.problem.policy) for node in case.problem.nodes.values()):
        yield replace(terms, whole_nodes=False)


def _draft(case: MixedCase, terms: Terms, seed: int, draft_rest: DraftRest) -> _MixedDraft:
    problem = case.problem
    wide, best = case.chosen(terms)
    narrow, outbid = narrow_problem(problem, wide), dict[str, float]()
    work = SCREEN_STEPS if len(narrow.services) <= SCREENED_SERVICES else 0
    plan = draft_rest(narrow, SolveBudget(None, work, seed))
    if plan.unserved:
        outbid = _outbid(problem, plan.unserved, wide)
    whole, _ = merge_language_instances(problem, plan, wide, {}, simulate=False)
    assert whole.certificate
    return _MixedDraft(wide, best.unserved, whole.certificate.cost.value(problem.policy), outbid)


def _outbid(problem: Problem, unserved: Sequence[Unserved], wide: Sequence[Instance]) -> dict[str, float]:
    """Returns what services that are left out would pay for a GPU of each type that language models hold."""
    held = {problem.nodes[line.node].gpu_type for line in wide}
    found: dict[str, float] = {}
    for entry in unserved:
        service = problem.services[entry.service]
        price = problem.policy.price_unserved(service)
        for name in held if service.gpu_types is None else held & set(service.gpu_types):
            found[name] = found.get(name, 0.0) + price * max(1.0, entry.rate_per_second)
    return found


def _concerns(violation: str, line: Instance) -> bool:
    where = violation.split(": ")[0]
    if where == line.service or where.startswith(f"{line.service} on "):
        return True
    return where == line.node or where in {f"{name}/{index}" for name, index in line.places}


def _keep_running_shape(problem: Problem, line: Instance, best: TokenShape) -> TokenShape:
    """Returns the shape with the instance's own requests at once and clock, if they carry nearly as much.

    Another number of requests at once is another process, for which there may be no free GPUs.
    """
    if (line.batch, line.clock_mhz) == (best.batch, best.clock_mhz) or line.clock_mhz != best.clock_mhz:
        return best
    rate = carried_by(problem, problem.services[line.service], line)
    if rate < KEPT_SHARE * best.rate_per_second:
        return best
    return replace(best, batch=line.batch, rate_per_second=rate)


def _distinct(
    kept: Sequence[KeptInstance],
) -> list[KeptInstance]:
    """Returns each running instance once, with the shape that carries most."""
    best: dict[int, KeptInstance] = {}
    for entry in kept:
        known = best.get(id(entry[0]))
        if known is None or entry[1].rate_per_second > known[1].rate_per_second:
            best[id(entry[0])] = entry
    return list(best.values())
