"""Writes a problem as manifests, for `gpuwright solve -f` or another planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from app.control.formulate.problem import POLICY_FIELDS
from benchmarks.hardware import FLEET
from solvers.planning.availability import ANYWHERE
from solvers.planning.language import LlmSize
from solvers.planning.pressures import Pressure
from solvers.planning.problem import Curve, Demand, GpuType, Job, Node, Problem, Profile, Service

Document: TypeAlias = dict[str, Any]

SM_COUNTS = {hardware.gpu_type.name: hardware.sm_count for hardware in FLEET}


def manifests(problem: Problem) -> list[Document]:
    """Returns every object of the problem. Prices are by type: a family has a single region and way of paying."""
    return list(_documents(problem))


def _documents(problem: Problem) -> Iterator[Document]:
    price = {node.gpu_type: node.price_per_hour for node in problem.nodes.values()}
    for gpu_type in problem.gpu_types.values():
        yield _document("GpuType", gpu_type.name, _gpu_type(gpu_type, price.get(gpu_type.name, 1.0)))
    for node in problem.nodes.values():
        yield _document("Node", node.name, _node(node))
    for model, variants in problem.models.items():
        listed = [{"name": variant.name, "accuracy": variant.accuracy} | _llm(variant.llm) for variant in variants]
        yield _document("Model", model, {"variants": listed})
    for profile in problem.profiles.values():
        name = f"{profile.model}-{profile.variant}-{profile.gpu_type}"
        yield _document("Profile", name, _profile(profile))
    for service in problem.services.values():
        offered = tuple(variant.name for variant in problem.models[service.model])
        yield _document("Service", service.name, _service(service, offered))
    for job in problem.jobs.values():
        yield _document("Job", job.name, _job(job))
    yield _document("Policy", "default", _policy(problem))


def _document(kind: str, name: str, spec: Document) -> Document:
    tenant, _, own = name.rpartition("/")
    metadata = {"name": own, "tenant": tenant} if tenant else {"name": own}
    return {"apiVersion": "gpuwright/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _gpu_type(of: GpuType, price_per_hour: float) -> Document:
    return {
        "memoryGib": of.memory_gib,
        "smCount": SM_COUNTS.get(of.name, 1),  # planning counts SMs in percent
        "pricePerHour": price_per_hour,
        "idleW": of.idle_w,
        "maxW": of.max_w,
        "clocksMhz": list(of.clocks_mhz),
    }


def _node(of: Node) -> Document:
    return {
        "gpuType": of.gpu_type,
        "gpus": of.gpu_count,
        "cpuCores": of.cpu_cores,
        "memoryGib": of.host_memory_gib,
        "purchase": of.purchase,
        "region": of.region,
    }


def _llm(of: LlmSize | None) -> Document:
    if of is None:
        return {}
    size = {
        "weightsGib": of.weights_gib,
        "layers": 1,  # plans do not depend on it
        "kvBytesPerToken": of.kv_bytes_per_token,
        "contextTokens": of.context_tokens,
        "parallel": list(of.degrees),
    }
    return {"llm": size}


def _iterations(of: Profile) -> Document:
    """Returns the profile of a language model."""
    demand = {name: value for name, value in _demand(of.demand).items() if name not in ("pressure", "sensitivity")}
    return {
        "model": of.model,
        "variant": of.variant,
        "gpuType": of.gpu_type,
        "iteration": {
            str(degree): {
                "baseMs": cost.base_ms,
                "tokenMs": cost.token_ms,
                "weightsMs": cost.weights_ms,
                "sequenceMs": cost.sequence_ms,
                "kvTokenMs": cost.kv_token_ms,
                "promptPairMs": cost.prompt_pair_ms,
            }
            for degree, cost in of.iteration.items()
        },
        "overheadGib": of.overhead_gib,
        "tokensPerIteration": of.tokens_per_iteration,
        **demand,
    }


def _profile(of: Profile) -> Document:
    if of.iteration:
        return _iterations(of)
    return {
        "model": of.model,
        "variant": of.variant,
        "gpuType": of.gpu_type,
        "latencyMs": {str(batch): _table(curve) for batch, curve in of.latency_ms.items()},
        "memoryGib": {str(batch): memory for batch, memory in of.memory_gib.items()},
        **_demand(of.demand),
    }


def _demand(of: Demand) -> Document:
    return {
        "cpuCores": of.cpu_cores,
        "hostMemoryGib": of.host_memory_gib,
        "pressure": _pressure(of),
        "sensitivity": _sensitivity(of.sensitivity),
        "powerW": _number_or_table(of.power_w),
        "clockExponent": of.clock_exponent,
        "powerExponent": of.power_exponent,
    }


def _pressure(of: Demand) -> Document | float:
    compute = _number_or_table(tuple((sm, value.real) for sm, value in of.pressure))
    if not any(value.imag for _, value in of.pressure):
        return compute
    return {"compute": compute, "bandwidth": _number_or_table(tuple((sm, value.imag) for sm, value in of.pressure))}


def _sensitivity(of: Pressure) -> Document | float:
    return {"compute": of.real, "bandwidth": of.imag} if of.imag else of.real


def _service(of: Service, offered: tuple[str, ...]) -> Document:
    spec: Document = {
        "model": of.model,
        **_promise(of),
        "ratePerSecond": of.rate_per_second,
        "minInstances": of.min_instances,
        "isolation": "dedicated" if of.is_dedicated else "shared",
        "priority": of.priority,
    }
    if of.variants != offered:
        spec["variants"] = list(of.variants)
    if of.gpu_types is not None:
        spec["gpuTypes"] = list(of.gpu_types)
    if of.availability != ANYWHERE:
        rules = of.availability
        spec["availability"] = {
            "spread": rules.spread, "surviveNodes": rules.survive_nodes, "maxSpotShare": rules.max_spot_share
        }  # fmt: skip
    return spec


def _promise(of: Service) -> Document:
    if of.tokens is None:
        return {"slo": {"latencyMs": of.slo_ms, "percentile": of.percentile}}
    promise, lengths = of.tokens.promise, of.tokens.lengths
    return {
        "slo": {"ttftMs": promise.ttft_ms, "tpotMs": promise.tpot_ms, "percentile": promise.percentile},
        "tokens": {
            "input": {"mean": lengths.input_mean, "p95": lengths.input_p95},
            "output": {"mean": lengths.output_mean, "p95": lengths.output_p95},
            "prefixShare": lengths.prefix_share,
        },
    }


def _job(of: Job) -> Document:
    units = "steps" if of.kind == "training" else "requests"
    spec: Document = {
        "type": of.kind,
        units: int(of.units),
        "preemptible": of.is_preemptible,
        "priority": of.priority,
        "profiles": {
            gpu_type: {
                f"{units}PerSecond": _table(profile.units_per_second),
                "memoryGib": profile.memory_gib,
                **_demand(profile.demand),
            }
            for gpu_type, profile in of.profiles.items()
        },
    }
    if of.deadline is not None:
        spec["deadline"] = of.deadline.isoformat()
    if of.max_price_per_hour is not None:
        spec["maxPricePerHour"] = of.max_price_per_hour
    return spec


def _policy(problem: Problem) -> Document:
    """Returns the policy. Where nodes are billed whole, all that are rented must be, and no others."""
    found = {wire: getattr(problem.policy, name) for name, wire in POLICY_FIELDS.items()}
    return found | ({"pricing": "node"} if any(node.pricing == "node" for node in problem.nodes.values()) else {})


def _table(curve: Curve) -> dict[str, float]:
    return {str(percent): value for percent, value in curve}


def _number_or_table(curve: Curve) -> float | dict[str, float]:
    return curve[0][1] if len(curve) == 1 else _table(curve)
