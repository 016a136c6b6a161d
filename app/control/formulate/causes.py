"""Finds why the plan in force has to change: what services ask for by now, and which of its GPUs are closed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agents.contract.assignments import AssignedInstance, owner_name
from app.control.domain.causes import ChangeCauses
from app.control.domain.desired import sum_rates
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.question import Question
from solvers.planning.problem import Service

GONE = ("lost", "never")  # states of nodes on which nothing runs any more
DECLARED = ("", "declared", "what_if")  # reasons of expected loads that no traffic gave
SAME_SHARE = 1e-6  # of a rate: sums of floats differ by less


def find_causes(snapshot: Snapshot, question: Question) -> ChangeCauses:
    """Returns what the plan in force lacks by now, beside rates, which the plans themselves show."""
    needs = dict(_list_needs(snapshot, question))
    for violation in question.known_violations:
        name = violation.owner
        if name in question.problem.services and name not in needs:
            needs[name] = f"the plan before breaks the rule {violation.rule} by now"
    return ChangeCauses(needs, dict(_list_closed(snapshot)))


def find_edited(snapshot: Snapshot, question: Question) -> frozenset[str]:
    """Returns the services of which manifests ask for something else than the plan in force was made for.

    A load that moves, a lost node, a drain and a job that ends are no edits.
    """
    carried = sum_rates(snapshot.in_force)  # also on nodes that are lost
    rates = {
        name for name, load in snapshot.expected.items()
        if load.reason in DECLARED
        and abs(load.rate_per_second - carried.get(name, 0.0)) > SAME_SHARE * load.rate_per_second
    }  # fmt: skip
    edited = rates | {name for name, _ in _list_needs(snapshot, question)}
    if any(_list_closed(snapshot)):
        return frozenset(edited)
    # What is measured breaks SLOs; where every GPU is there, other rules break since they are new.
    return frozenset(edited).union(line.owner for line in question.verdict.violations if line.rule != "slo_holds")


def _list_needs(snapshot: Snapshot, question: Question) -> Iterator[tuple[str, str]]:
    """Yields the services that run of which manifests have changed otherwise than by the rate, and how."""
    running: dict[tuple[str, str], list[AssignedInstance]] = defaultdict(list)
    for wanted in snapshot.in_force.values():
        for instance in wanted.instances:
            running[instance.tenant, instance.service] += (instance,)
    declared = {f"{item.tenant}/{item.name}" for item in snapshot.declared if item.kind == "Service"}
    for (tenant, own_name), mine in sorted(running.items()):
        if not own_name:
            continue  # jobs
        name = owner_name(tenant, own_name)
        service = question.problem.services.get(name)
        found = list(_list_edits(service, mine)) if service else [] if name in declared else ["it is deleted"]
        if found:
            yield name, "; ".join(found)


def _list_edits(service: Service, running: list[AssignedInstance]) -> Iterator[str]:
    """Yields what the manifest says otherwise than when these instances were assigned."""
    first = running[0]
    if service.model != first.model:
        yield f"its model is {service.model} instead of {first.model}"
        return
    if first.slo_ms and service.slo_ms != first.slo_ms:
        yield f"its SLO is {service.slo_ms:g} ms instead of {first.slo_ms:g} ms"
    if first.percentile and service.percentile != first.percentile:
        yield f"its percentile is {service.percentile:g} instead of {first.percentile:g}"
    if service.tokens and service.tokens.promise.tpot_ms != first.tpot_ms:
        yield f"its time for each token is {service.tokens.promise.tpot_ms:g} ms instead of {first.tpot_ms:g} ms"
    if service.is_dedicated != first.dedicated:
        yield "it wants GPUs of its own" if service.is_dedicated else "it may share GPUs"
    if gone := sorted({line.variant for line in running} - set(service.variants)):
        yield f"its accuracy does not admit {', '.join(gone)} any more"
    if len(running) < service.min_instances:
        yield f"it needs at least {service.min_instances} instances"


def _list_closed(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yields the GPUs of the plan in force on which nothing may run any more, and why."""
    declared = {item.name for item in snapshot.declared if item.kind == "Node"}
    for node, wanted in sorted(snapshot.in_force.items()):
        facts = snapshot.nodes.get(node)
        if node in declared and facts is not None and facts.state not in GONE and not _is_troubled(facts):
            continue
        for gpu in sorted({gpu for instance in wanted.instances for gpu in instance.all_gpus}):
            place = f"{node}/{gpu}"
            if node not in declared:
                yield place, f"node {node} is deleted"
            elif facts is None or facts.state in GONE:
                yield place, f"node {node} does not report any more"
            elif facts.reclaimed_at is not None:
                yield place, f"the cloud takes node {node} back"
            elif gpu in facts.failed_gpus:
                yield place, f"{place} has failed"
            elif gpu in facts.draining_gpus:
                yield place, f"{place} is being drained"


def _is_troubled(facts: NodeStatus) -> bool:
    return bool(facts.failed_gpus or facts.draining_gpus or facts.reclaimed_at)
