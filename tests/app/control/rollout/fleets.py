"""Small fleets for tests of rollouts: by hand, or drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from agents.contract.assignments import AssignedGpu, AssignedInstance, Frame
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired
from app.control.domain.readings import CopyTrial
from app.control.rollout import advance as advancing
from app.control.rollout.room import GpuLimits, is_over_full
from app.control.rollout.rules import Advance, RolloutRules, RolloutState

MEMORY_GIB = 16.0
S = TypeVar("S", bound=msgspec.Struct)


def an_instance(id_: str, service: str = "search", gpu: int = 0, sm: float = 40, memory: float = 4, rate: float = 100,
                **more: object) -> AssignedInstance:  # fmt: skip
    fields = {"model": f"m-{service}", "variant": "fp16", "template": "serve", "batch": Frame(8, 1, 8)} | more
    return AssignedInstance(
        id=id_, gpu=gpu, tenant="shop", service=service, sm_percent=sm, memory_gib=memory, rate_per_second=rate,
        slo_ms=80, percentile=98, **fields,  # type: ignore
    )  # fmt: skip


def a_job(id_: str, job: str = "train", gpu: int = 0, sm: float = 30, memory: float = 6) -> AssignedInstance:
    return AssignedInstance(id=id_, gpu=gpu, tenant="lab", job=job, sm_percent=sm, memory_gib=memory)


def a_node(*instances: AssignedInstance, clocks: Mapping[int, float] | None = None, **more: object) -> NodeDesired:
    gpus = tuple(AssignedGpu(index, Frame(mhz, 600, 1530), 300.0) for index, mhz in (clocks or {}).items())
    lines = tuple(sorted(instances, key=lambda instance: instance.id))
    return NodeDesired(lines, gpus, **more)  # type: ignore


def rules(nodes: Sequence[str] = ("n1", "n2", "n3"), **more: object) -> RolloutRules:
    return RolloutRules(dict.fromkeys(nodes, MEMORY_GIB), dict.fromkeys(nodes, "v100"), **more)  # type: ignore


def advance(
    target: Desired,
    assigned: Desired,
    observed: FleetStatus,
    state: RolloutState,
    the_rules: RolloutRules,
    now: datetime,
    trials: Mapping[str, CopyTrial] | None = None,
) -> Advance:
    """Returns the next step of a rollout, by default without answers of canaries."""
    return advancing.advance(target, assigned, observed, state, the_rules, now, trials or {})


def all_serve(assigned: Desired, **more: object) -> FleetStatus:
    """Returns the status of a fleet in which every assigned instance serves, and every job runs."""
    return FleetStatus(
        {
            line.id: InstanceStatus("ready", not line.job, sm_percent=line.sm_percent, memory_gib=line.memory_gib)
            for wanted in assigned.values()
            for line in wanted.instances
        },
        **more,  # type: ignore
    )


def gpu_of(wanted: NodeDesired, the_rules: RolloutRules, node: str) -> GpuLimits:
    return GpuLimits.of(wanted, the_rules.memory_gib[node], the_rules.jobs_per_gpu)


@st.composite
def drawn(draw: st.DrawFn, most: int = 4, nodes: int = 3, jobs: bool = True) -> tuple[Desired, Desired]:
    """Draws assignments and a target: both fit, and mostly they have instances in common."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    handover = draw(st.sampled_from(["overlap", "strict"]))
    company = draw(st.sampled_from([1, 2]))
    tiny = NodeDesired(handover=handover, same_model_per_gpu=company)
    assigned = dict.fromkeys(names, tiny)
    owners = ["a", "b", "c"]
    kinds = st.sampled_from(["keep", "keep", "resize", "stop", "retune"])
    shapes = st.tuples(st.sampled_from([20, 30, 40, 50, 60, 80]), st.sampled_from([2.0, 4.0, 5.0, 6.0, 8.0]))
    rates = st.sampled_from([50.0, 100.0])

    def put(fleet: dict[str, NodeDesired], instance: AssignedInstance, node: str) -> bool:
        lines = (*fleet[node].instances, instance)
        ids = [other for other in lines if other.gpu == instance.gpu]
        if is_over_full(ids, gpu_of(fleet[node], rules(names), node)):
            return False
        fleet[node] = replace(fleet[node], instances=tuple(sorted(lines, key=lambda line: line.id)))
        return True

    for number in range(draw(st.integers(1, most))):
        sm, memory = draw(shapes)
        is_job = jobs and draw(st.integers(0, 5)) == 0
        instance = (
            a_job(f"i{number}", sm=sm, memory=memory)
            if is_job
            else an_instance(f"i{number}", draw(st.sampled_from(owners)), 0, sm, memory, draw(rates))
        )
        if is_job and any(other.job for wanted in assigned.values() for other in wanted.instances):
            continue
        put(assigned, instance, draw(st.sampled_from(names)))
    target = dict.fromkeys(names, tiny)
    for node, wanted in assigned.items():
        for instance in wanted.instances:
            kind = draw(kinds)
            if kind == "stop":
                continue
            changed = instance
            if kind == "resize":
                sm, memory = draw(shapes)
                changed = replace_struct(
                    instance, sm_percent=sm, memory_gib=memory, rate_per_second=draw(rates) if instance.service else 0
                )
            elif kind == "retune" and instance.service:
                changed = replace_struct(
                    instance, rate_per_second=draw(rates), batch=Frame(draw(st.sampled_from([4, 8])), 1, 8)
                )
            put(target, changed, node)
    for number in range(draw(st.integers(0, most))):
        sm, memory = draw(shapes)
        instance = an_instance(f"j{number}", draw(st.sampled_from(owners)), 0, sm, memory, draw(rates))
        put(target, instance, draw(st.sampled_from(names)))
    running = [instance for wanted in target.values() for instance in wanted.instances if instance.job]
    if not running and any(instance.job for wanted in assigned.values() for instance in wanted.instances):
        put(target, a_job("j-train"), draw(st.sampled_from(names)))
    return assigned, target


def replace_struct(instance: S, **fields: object) -> S:
    return msgspec.structs.replace(instance, **fields)


def served(desired: Desired) -> dict[str, float]:
    """The capacity of each service's instances, by their rates."""
    found: dict[str, float] = {}
    for wanted in desired.values():
        for instance in wanted.instances:
            if instance.service:
                found[instance.owner] = found.get(instance.owner, 0.0) + instance.rate_per_second
    return found
