"""A problem written as the manifests that declare it, for tests that begin with a file."""

from __future__ import annotations

from typing import Any

from solvers.planning.problem import Curve, Demand, Instance, Job, Node, PlacedJob, Problem, Profile, Service

POLICY = {
    "pricing": "pricing", "utilization": "utilization", "execMargin": "exec_margin",
    "sameModelPerGpu": "same_model_per_gpu", "clientsPerGpu": "clients_per_gpu", "jobsPerGpu": "jobs_per_gpu",
    "movePrice": "move_price", "horizonMinutes": "horizon_minutes", "unservedPrice": "unserved_price",
    "unplacedPrice": "unplaced_price", "waitingPrice": "waiting_price", "sharePressure": "share_pressure",
    "energyPricePerKwh": "energy_price_per_kwh", "powerBudgetW": "power_budget_w",
}  # fmt: skip


def manifests(problem: Problem) -> list[dict[str, Any]]:
    """Writes every field. Prices are those of the nodes' regions; accuracy is left to `variants`."""
    prices: dict[str, dict[tuple[str, str], float]] = {name: {} for name in problem.gpu_types}
    for node in problem.nodes.values():
        known = prices[node.gpu_type].setdefault((node.region, node.purchase), node.price_per_hour)
        assert known == node.price_per_hour, f"{node.name} costs {node.price_per_hour}, its like {known}"
    found = [
        manifest(
            "GpuType",
            gpu_type.name,
            {
                "memoryGib": gpu_type.memory_gib,
                "smCount": 100,
                "pricePerHour": 1,
                "idleW": gpu_type.idle_w,
                "maxW": gpu_type.max_w,
                "clocksMhz": list(gpu_type.clocks_mhz),
                "rentable": problem.spare.get(gpu_type.name, 0),
                "prices": [
                    {"region": region, "purchase": purchase, "perHour": price}
                    for (region, purchase), price in sorted(prices[gpu_type.name].items())
                ]
                or [{"region": "nowhere", "perHour": 1}],
            },
        )
        for gpu_type in problem.gpu_types.values()
    ]
    found += [manifest("Node", node.name, _node(node)) for node in problem.nodes.values()]
    for model, variants in problem.models.items():
        listed = [
            {"name": variant.name, "accuracy": variant.accuracy}
            | ({"runtime": {"template": variant.template}} if variant.template else {})
            for variant in variants
        ]
        found.append(manifest("Model", model, {"variants": listed}))
    found += [manifest("Profile", f"p{at}", _profile(profile)) for at, profile in enumerate(problem.profiles.values())]
    found += [manifest("Service", service.name, _service(service)) for service in problem.services.values()]
    found += [manifest("Job", job.name, _job(job)) for job in problem.jobs.values()]
    found.append(manifest("Policy", "default", _policy(problem)))
    for tenant, limit in problem.limits.items():
        stated = {"gpus": limit.gpus, "pricePerHour": limit.price_per_hour}
        found.append(manifest("Tenant", tenant, {"limit": _known(stated)}))
    if problem.state:
        spec: dict[str, Any] = {
            "running": [_instance(instance) for instance in problem.state.running],
            "jobs": [_placed(placed, problem.jobs[placed.job]) for placed in problem.state.jobs],
        }
        if problem.state.now:
            spec["now"] = problem.state.now.isoformat()
        found.append(manifest("State", "now", spec))
    return found


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    tenant, _, own = name.rpartition("/")
    metadata = {"name": own, "tenant": tenant} if tenant else {"name": own}
    return {"apiVersion": "gpuwright/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _table(curve: Curve) -> dict[str, float]:
    return {str(percent): value for percent, value in curve}


def _demand(demand: Demand) -> dict[str, Any]:
    return {
        "cpuCores": demand.cpu_cores,
        "hostMemoryGib": demand.host_memory_gib,
        "pressure": {
            "compute": {str(percent): value.real for percent, value in demand.pressure},
            "bandwidth": {str(percent): value.imag for percent, value in demand.pressure},
        },
        "sensitivity": {"compute": demand.sensitivity.real, "bandwidth": demand.sensitivity.imag},
        "powerW": _table(demand.power_w),
        "clockExponent": demand.clock_exponent,
        "powerExponent": demand.power_exponent,
    }


def _node(node: Node) -> dict[str, Any]:
    """The manifest; GPUs that the problem misses are there, and have to be cordoned."""
    return {
        "gpuType": node.gpu_type,
        "gpus": node.gpus[-1] + 1,
        "cpuCores": node.cpu_cores,
        "memoryGib": node.host_memory_gib,
        "region": node.region,
        "purchase": node.purchase,
    } | _known({"templates": sorted(node.templates) if node.templates is not None else None})


def _policy(problem: Problem) -> dict[str, Any]:
    """Where nodes are billed whole, all that are rented must be, and no others."""
    spec = {wire: getattr(problem.policy, ours) for wire, ours in POLICY.items()}
    return spec | ({"pricing": "node"} if any(node.pricing == "node" for node in problem.nodes.values()) else {})


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "model": profile.model,
        "variant": profile.variant,
        "gpuType": profile.gpu_type,
        "latencyMs": {str(batch): _table(curve) for batch, curve in profile.latency_ms.items()},
        "memoryGib": {str(batch): memory for batch, memory in profile.memory_gib.items()},
    } | _demand(profile.demand)


def _service(service: Service) -> dict[str, Any]:
    return {
        "model": service.model,
        "variants": list(service.variants),
        "slo": {"latencyMs": service.slo_ms, "percentile": service.percentile},
        "ratePerSecond": service.rate_per_second,
        "minInstances": service.min_instances,
        "isolation": "dedicated" if service.is_dedicated else "shared",
        "priority": service.priority,
        "availability": {
            "spread": service.availability.spread,
            "surviveNodes": service.availability.survive_nodes,
            "maxSpotShare": service.availability.max_spot_share,
        },
    } | _known({"gpuTypes": list(service.gpu_types) if service.gpu_types is not None else None})


def _job(job: Job) -> dict[str, Any]:
    units = "steps" if job.kind == "training" else "requests"
    return {
        "type": job.kind,
        units: int(job.units),
        "preemptible": job.is_preemptible,
        "priority": job.priority,
        "profiles": {
            gpu_type: {f"{units}PerSecond": _table(profile.units_per_second), "memoryGib": profile.memory_gib}
            | _demand(profile.demand)
            for gpu_type, profile in job.profiles.items()
        },
    } | _known(
        {
            "deadline": job.deadline.isoformat() if job.deadline else None,
            "maxPricePerHour": job.max_price_per_hour,
        }
    )


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "service": instance.service,
        "node": instance.node,
        "gpu": instance.gpu,
        "variant": instance.variant,
        "batch": instance.batch,
        "batchTimeoutMs": instance.batch_timeout_ms,
        "smPercent": instance.sm_percent,
        "memoryGib": instance.memory_gib,
        "clockMhz": instance.clock_mhz,
        "ratePerSecond": instance.rate_per_second,
    }


def _placed(placed: PlacedJob, job: Job) -> dict[str, Any]:
    return {
        "job": placed.job,
        "node": placed.node,
        "gpu": placed.gpu,
        "smPercent": placed.sm_percent,
        "memoryGib": placed.memory_gib,
        "steps" if job.kind == "training" else "requests": job.units,
    }
