"""Turns a world of manifests into the solver's problem: resolves prices, variants, limits and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from app.control.domain.specs import (
    PRIORITIES,
    Spec,
    gpu_count,
    gpu_type_of,
    is_preemptible,
    job_tables,
    linked_gpus,
    min_instances,
    model_of,
    moment,
    node_price,
    pricing_of,
    purchase_of,
    quantile_of,
    rate_per_second,
    slo_latency_ms,
    slo_percentile,
    start_seconds_of,
    units_of,
)
from app.control.formulate.declared_state import read_state
from app.control.formulate.language import adapter_places, engines, iteration_costs, llm_size, read_token_service
from app.control.formulate.objective import count_by_share, counts_shares, price_policy
from app.control.formulate.own_runtimes import (
    declared_templates,
    encode_job_runtimes,
    encode_runtimes,
    job_runtime_name,
    runtime_name,
)
from app.control.formulate.predicted_demands import complete_jobs
from app.manifests.attainable import list_admitted_variants
from app.manifests.caps import gpu_caps_w
from app.manifests.fleet import PolicySpec
from app.manifests.language import TOKENS_PER_ITERATION
from app.manifests.model import Kind, Manifest
from app.manifests.offline import DeclaredFiles
from app.manifests.prices import pays_whole_node
from app.manifests.uncertain import is_pair, profile_at
from solvers.planning.availability import ANYWHERE, Availability
from solvers.planning.judge.readings import value_at
from solvers.planning.pressures import Pressure, PressureCurve
from solvers.planning.problem import (
    Curve,
    Demand,
    GpuType,
    Job,
    JobProfile,
    Limit,
    Node,
    Policy,
    Problem,
    Profile,
    Service,
    Variant,
    gpu_indexes,
)

# The policy's fields that decide plans, by their names here and in manifests.
POLICY_FIELDS = {
    "pricing": "pricing",
    "utilization": "utilization",
    "exec_margin": "execMargin",
    "same_model_per_gpu": "sameModelPerGpu",
    "clients_per_gpu": "clientsPerGpu",
    "jobs_per_gpu": "jobsPerGpu",
    "move_price": "movePrice",
    "horizon_minutes": "horizonMinutes",
    "unserved_price": "unservedPrice",
    "unplaced_price": "unplacedPrice",
    "waiting_price": "waitingPrice",
    "share_across_tenants": "shareAcrossTenants",
    "share_pressure": "sharePressure",
    "energy_price_per_kwh": "energyPricePerKwh",
    "power_budget_w": "powerBudgetW",
    "planner": "planner",
}


def build_problem(world: DeclaredFiles, quantile: float | None = None, now: datetime | None = None) -> Problem:
    """Returns the problem that a validated world of manifests states.

    Uncertain values of profiles count with the policy's quantile, or with `quantile` if one is given. Carbon counts as
    at `now`, or at the State's time.
    """
    by_kind: dict[Kind, list[Manifest]] = {kind: [] for kind in Kind}
    for manifest in world.manifests.values():
        by_kind[manifest.kind].append(manifest)
    gpu_specs: dict[str, Spec] = {manifest.name: manifest.spec for manifest in by_kind[Kind.GPU_TYPE]}
    model_specs: dict[str, Spec] = {manifest.name: manifest.spec for manifest in by_kind[Kind.MODEL]}
    gpu_types = {name: _gpu_type(name, spec) for name, spec in gpu_specs.items()}
    policy_spec: Spec = next((manifest.spec for manifest in by_kind[Kind.POLICY]), {})
    pricing = pricing_of(policy_spec)
    models = {name: _variants(name, spec) for name, spec in model_specs.items()}
    job_specs = {qualify_name(manifest): manifest.spec for manifest in by_kind[Kind.JOB]}
    own = frozenset((*encode_runtimes(model_specs), *encode_job_runtimes(job_specs)))
    quantile = quantile_of(policy_spec) if quantile is None else quantile
    nodes = {manifest.name: _node(manifest, gpu_specs, pricing, own) for manifest in by_kind[Kind.NODE]}
    profiles = [_profile(profile_at(manifest.spec, quantile)) for manifest in by_kind[Kind.PROFILE]]
    state = next((read_state(manifest.spec, nodes, gpu_types) for manifest in by_kind[Kind.STATE]), None)
    units_left = _units_left(by_kind[Kind.STATE])
    services = {qualify_name(manifest): _service(manifest, model_specs) for manifest in by_kind[Kind.SERVICE]}
    if counts_shares(policy_spec):
        services = {name: count_by_share(service) for name, service in services.items()}
    return Problem(
        gpu_types=gpu_types,
        nodes=nodes,
        models=models,
        profiles={profile.key: profile for profile in profiles},
        services=services,
        jobs={
            qualify_name(manifest): _job(manifest, units_left, quantile)
            for manifest in complete_jobs(by_kind[Kind.JOB])
        },
        policy=price_policy(planning_policy(policy_spec), policy_spec, now or (state.now if state else None)),
        limits={manifest.name: limit for manifest in by_kind[Kind.TENANT] if (limit := _limit(manifest.spec))},
        state=state,
        spare={name: spec["rentable"] for name, spec in gpu_specs.items() if spec.get("rentable")},
    )


def qualify_name(manifest: Manifest) -> str:
    """Returns the name of a service or job in plans: tenant/name."""
    return f"{manifest.tenant}/{manifest.name}"


def planning_policy(spec: Spec) -> Policy:
    """Returns the policy with the manifests' defaults; nodes say for themselves if they are billed whole."""
    fields = PolicySpec.model_fields
    found = {name: spec.get(wire, fields[name].default) for name, wire in POLICY_FIELDS.items()}
    return Policy(**{**found, "pricing": "share" if pricing_of(spec) == "share" else "gpu"})


def curve(table: Mapping[str, float] | float) -> Curve:
    """Returns a table by SM%, or a single number for every SM%, as points in the order of rising SM%."""
    if not isinstance(table, Mapping):
        return ((100, float(table)),)
    return tuple(sorted((int(percent), float(value)) for percent, value in table.items()))


def pressure_curve(pressure: Spec | float) -> PressureCurve:
    """Returns pressures by SM%: plain numbers where compute alone is stated, else pairs at all points of both."""
    if not is_pair(pressure):
        return curve(pressure)
    assert isinstance(pressure, Mapping)
    compute, bandwidth = curve(pressure.get("compute", 0.0)), curve(pressure.get("bandwidth", 0.0))
    points = sorted({sm_percent for sm_percent, _ in (*compute, *bandwidth)})
    return tuple((at, complex(value_at(compute, at), value_at(bandwidth, at))) for at in points)


def _sensitivity(sensitivity: Spec | float) -> Pressure:
    if isinstance(sensitivity, Mapping):
        return complex(sensitivity.get("compute", 0.0), sensitivity.get("bandwidth", 0.0))
    return sensitivity


def _gpu_type(name: str, spec: Spec) -> GpuType:
    clocks = tuple(sorted({float(clock) for clock in spec["clocksMhz"]}))
    return GpuType(name, spec["memoryGib"], spec["idleW"], spec["maxW"], clocks)


def _node(manifest: Manifest, gpu_specs: Mapping[str, Spec], pricing: str, own: frozenset[str]) -> Node:
    spec: Spec = manifest.spec
    return Node(
        name=manifest.name,
        gpu_type=gpu_type_of(spec),
        gpus=gpu_indexes(gpu_count(spec)),
        cpu_cores=spec["cpuCores"],
        host_memory_gib=spec["memoryGib"],
        price_per_hour=node_price(spec, gpu_specs[gpu_type_of(spec)]),
        purchase=purchase_of(spec),
        region=spec.get("region", "default"),
        templates=declared_templates(spec, own),
        pricing="node" if pays_whole_node(pricing, purchase_of(spec)) else "gpu",
        linked_gpus=linked_gpus(spec, gpu_specs[gpu_type_of(spec)]),
        caps_w=gpu_caps_w(spec),
    )


def _variants(model: str, spec: Spec) -> tuple[Variant, ...]:
    return tuple(
        Variant(variant["name"], variant["accuracy"], runtime_name(model, variant), llm_size(variant))
        for variant in spec["variants"]
    )


def _demand(spec: Spec) -> Demand:
    return Demand(
        cpu_cores=spec.get("cpuCores", 0.0),
        host_memory_gib=spec.get("hostMemoryGib", 0.0),
        pressure=pressure_curve(spec.get("pressure", 0.0)),
        sensitivity=_sensitivity(spec.get("sensitivity", 0.0)),
        power_w=curve(spec.get("powerW", 0.0)),
        clock_exponent=spec.get("clockExponent", 1.0),
        power_exponent=spec.get("powerExponent", 1.0),
    )


def _profile(spec: Spec) -> Profile:
    latency_ms = {int(batch): curve(table) for batch, table in spec.get("latencyMs", {}).items()}
    memory_gib = {int(batch): float(memory) for batch, memory in spec.get("memoryGib", {}).items()}
    return Profile(
        model_of(spec),
        spec["variant"],
        gpu_type_of(spec),
        latency_ms,
        memory_gib,
        _demand(spec),
        start_seconds_of(spec),
        iteration_costs(spec),
        spec.get("overheadGib", 0.0),
        spec.get("tokensPerIteration", TOKENS_PER_ITERATION),
        engines(spec),
        adapter_places(spec),
    )


def _service(manifest: Manifest, model_specs: Mapping[str, Spec]) -> Service:
    spec: Spec = manifest.spec
    gpu_types = spec.get("gpuTypes")
    return Service(
        name=qualify_name(manifest),
        tenant=manifest.tenant,
        model=model_of(spec),
        variants=tuple(list_admitted_variants(spec, model_specs[model_of(spec)])),
        slo_ms=slo_latency_ms(spec),
        percentile=slo_percentile(spec),
        rate_per_second=rate_per_second(spec),
        gpu_types=None if gpu_types is None else tuple(gpu_types),
        min_instances=min_instances(spec),
        is_dedicated=spec.get("isolation") == "dedicated",
        priority=spec.get("priority", PRIORITIES["Service"]),
        availability=_availability(spec),
        variation=_variation(spec),
        mean_accuracy=spec.get("meanAccuracy", 0.0),
        tokens=read_token_service(spec),
    )


def _variation(spec: Spec) -> float:
    """Returns the variation of the arrival rate, 0 for Poisson arrivals: then nothing compiled is needed."""
    if spec.get("burstiness", 1.0) == 1.0:
        return 0.0
    from solvers.latency.bursts import variation_of

    return variation_of(spec["burstiness"], rate_per_second(spec), slo_latency_ms(spec))


def _availability(spec: Spec) -> Availability:
    given = spec.get("availability")
    if not given:
        return ANYWHERE
    return Availability(given.get("spread", "gpu"), given.get("surviveNodes", 0), given.get("maxSpotShare", 1.0))


def _job(manifest: Manifest, units_left: Mapping[str, float], quantile: float) -> Job:
    spec: Spec = manifest.spec
    name = qualify_name(manifest)
    return Job(
        name=name,
        tenant=manifest.tenant,
        kind=spec["type"],
        units=units_left.get(name, units_of(spec)),
        profiles={
            gpu_type: JobProfile(curve(table), plain["memoryGib"], _demand(plain))
            for gpu_type, (table, profile) in job_tables(spec).items()
            for plain in (profile_at(profile, quantile),)
        },
        deadline=moment(spec.get("deadline")),
        max_price_per_hour=spec.get("maxPricePerHour"),
        is_preemptible=is_preemptible(spec),
        priority=spec.get("priority", PRIORITIES["Job"]),
        template=job_runtime_name(name, spec),
        gpus=spec.get("gpus", 1),
    )


def _units_left(states: list[Manifest]) -> dict[str, float]:
    """Returns the remaining steps or requests of running jobs, where the State gives them."""
    entries: list[Spec] = [entry for state in states for entry in state.spec.get("jobs", ())]
    return {entry["job"]: entry[units] for entry in entries for units in ("steps", "requests") if units in entry}


def _limit(spec: Spec) -> Limit | None:
    limit = spec.get("limit")
    return Limit(limit.get("gpus"), limit.get("pricePerHour")) if limit else None
