"""Applies a what-if to a snapshot: manifests, GPUs, SLOs, rates, risks, a planner. Everything else stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from app.control.domain.specs import gpu_count, gpu_type_of, rate_per_second, risk_of
from app.manifests.faults import nearest

CORES, MEMORY_GIB = 16, 128  # for each GPU of a type that the fleet does not have
PREFIX = "what-if"


class WrongChange(ValueError):
    """A change that names an unknown object; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class RateChange:
    """A new rate of a service: a multiple of the current one, or an absolute one."""

    times: float = 1.0
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIfChange:
    """The change that a what-if asks about."""

    declared: tuple[DeclaredObject, ...] = ()  # replaces objects of the same name, or adds new ones
    gone: tuple[tuple[str, str, str], ...] = ()  # kind, tenant, name
    gpus: Mapping[str, int] = field(default_factory=dict)  # GPU type -> how many more
    slos_ms: Mapping[str, float] = field(default_factory=dict)  # by service
    rates: Mapping[str, RateChange] = field(default_factory=dict)  # by service
    planner: str = ""  # instead of the policy's
    risk: float | None = None  # instead of the policy's
    risks: Mapping[str, float] = field(default_factory=dict)  # by service, instead of its own or the policy's

    @property
    def services(self) -> frozenset[str]:
        """Returns the services that the change names."""
        stated = {known.full_name for known in self.declared if known.kind == "Service"}
        return frozenset(stated | self.slos_ms.keys() | self.rates.keys() | self.risks.keys())


def apply_change(snapshot: Snapshot, change: WhatIfChange) -> Snapshot:
    """Returns the snapshot with the change applied."""
    world = {(line.kind, line.tenant, line.name): line for line in snapshot.declared}
    expected = dict(snapshot.expected)
    for line in change.declared:
        before = world.get((line.kind, line.tenant, line.name))
        world[line.kind, line.tenant, line.name] = line
        if line.kind == "Service" and (before is None or rate_per_second(before.spec) != rate_per_second(line.spec)):
            expected[line.full_name] = _expect(rate_per_second(line.spec))
    for key in change.gone:
        world.pop(key, None)
        expected.pop(f"{key[1]}/{key[2]}", None)
    for name, slo_ms in change.slos_ms.items():
        service = _service(world, name)
        slo = service.spec["slo"]
        promised = "latencyMs" if "latencyMs" in slo else "ttftMs"  # of a language model its first token
        _put(world, service, {"slo": {**slo, promised: slo_ms}})
    for name, rate in change.rates.items():
        service = _service(world, name)
        known = expected.get(name)
        now = known.rate_per_second if known else rate_per_second(service.spec)
        expected[name] = _expect(now * rate.times if rate.per_second is None else rate.per_second)
    if of_policy := {name: value for name in ("planner", "risk") if (value := getattr(change, name))}:
        _put(world, _policy(world), of_policy)
    for name, risk in change.risks.items():
        _put(world, _service(world, name), {"risk": risk})
    other = {name: risk for name, risk in _find_other_risks(snapshot, world) if name not in change.rates}
    expected |= {name: load.plan_at_risk(other[name]) for name, load in expected.items() if name in other}
    for gpu_type, count in change.gpus.items():
        for node in _more(world, gpu_type, count):
            world["Node", "", node.name] = node
    facts = {
        name: snapshot.nodes.get(name, NodeStatus(name, "reporting")) for kind, _, name in world if kind == "Node"
    }  # fmt: skip
    declared = tuple(world[key] for key in sorted(world))
    return replace(snapshot, declared=declared, expected=expected, nodes=facts)


def _expect(per_second: float) -> ExpectedLoad:
    return ExpectedLoad(per_second, per_second, per_second, reason="what_if")


def _find_other_risks(
    snapshot: Snapshot, world: Mapping[tuple[str, str, str], DeclaredObject]
) -> Iterator[tuple[str, float]]:
    """Yields the services whose risk the changed world states otherwise, and that risk."""
    before = {(line.kind, line.tenant, line.name): line for line in snapshot.declared}
    policies = [_policy(each).spec for each in (before, world)]
    for key, service in world.items():
        if key[0] == "Service" and key in before:
            old, new = (risk_of(each[key].spec, policy) for each, policy in zip((before, world), policies, strict=True))
            if new != old:
                yield service.full_name, new


def _policy(world: Mapping[tuple[str, str, str], DeclaredObject]) -> DeclaredObject:
    return world.get(("Policy", "", "default"), DeclaredObject("Policy", "", "default", {}))


def _service(world: Mapping[tuple[str, str, str], DeclaredObject], name: str) -> DeclaredObject:
    tenant, _, own = name.partition("/")
    found = world.get(("Service", tenant, own))
    if found is None:
        raise WrongChange(f"there is no service {name}")
    return found


def _put(
    world: dict[tuple[str, str, str], DeclaredObject], declared: DeclaredObject, fields: Mapping[str, object]
) -> None:
    world[declared.kind, declared.tenant, declared.name] = replace(declared, spec={**declared.spec, **fields})


def _more(world: Mapping[tuple[str, str, str], DeclaredObject], gpu_type: str, count: int) -> list[DeclaredObject]:
    """Returns nodes like the fleet's smallest of that type, or plain nodes where it has none."""
    if ("GpuType", "", gpu_type) not in world:
        known = sorted(name for kind, _, name in world if kind == "GpuType")
        meant = nearest(gpu_type, known)
        question = f"did you mean {meant}? " if meant else ""
        raise WrongChange(f"there is no GPU type {gpu_type}; {question}known: {', '.join(known) or 'none'}")
    alike = [line for line in world.values() if line.kind == "Node" and gpu_type_of(line.spec) == gpu_type]
    like = min(alike, key=lambda node: (gpu_count(node.spec), node.name), default=None)
    each = gpu_count(like.spec) if like else count
    found: list[DeclaredObject] = []
    missing = count
    while missing > 0:
        gpus = min(each, missing)
        spec: dict[str, object] = (
            {**like.spec, "gpus": gpus}
            if like
            else {"gpuType": gpu_type, "gpus": gpus, "cpuCores": CORES * gpus, "memoryGib": MEMORY_GIB * gpus}
        )
        found.append(DeclaredObject("Node", "", f"{PREFIX}-{gpu_type}-{len(found) + 1}", spec))
        missing -= gpus
    return found
