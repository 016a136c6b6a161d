"""Writes a plan as assignments: instances with lasting ids, frames for the knobs that nodes own, devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil

from agents.contract.assignments import AssignedAdapter, AssignedGpu, AssignedInstance, Frame
from agents.contract.runtimes import OwnRuntime, own_runtime
from app.control.decide.host_memory import jobs_in_host_memory
from app.control.decide.job_terms import job_terms
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import JOB_TEMPLATE, Spec, is_preemptible, job_template, units_of
from app.control.formulate.question import Question
from app.manifests.caps import gpu_caps_w
from app.manifests.fleet import PolicySpec
from app.manifests.model import Free, Kind
from solvers.planning.judge.adapters import keep_places
from solvers.planning.judge.whole import kv_tokens
from solvers.planning.language import LlmSize
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Place, PlacedJob, Problem, Profile, Service

ID_BYTES = 4
VLLM_LORA = "vllm-lora"
VLLM = ("vllm", VLLM_LORA)

READ = ("Model", "Job", "Policy")  # kinds that say more of an instance than the problem does

Specs = Mapping[tuple[str, str, str], Spec]


def assign_plan(snapshot: Snapshot, question: Question, plan: Plan) -> dict[str, NodeDesired]:
    """Returns what each node is to run by a plan.

    An instance that stays on its GPU keeps its id; the node itself hands over.
    """
    problem = question.problem
    specs = {
        (manifest.kind, manifest.tenant, manifest.name): manifest.spec
        for manifest in snapshot.declared
        if manifest.kind in READ
    }
    ids = _Ids((snapshot.assignments, snapshot.in_force), snapshot.target)
    shapes = _Shapes(problem, specs)
    by_node: dict[str, list[AssignedInstance]] = defaultdict(list)
    clocks: dict[Place, float] = {}
    for line in plan.instances:
        gpus_of_line = line.gpus or (line.gpu,)
        id_ = ids.of(line.node, line.service, gpus_of_line)
        by_node[line.node].append(_instance(id_, line, problem.services[line.service], shapes.of(line)))
        for gpu in gpus_of_line:
            clocks[line.node, gpu] = line.clock_mhz
    for job in plan.jobs:
        id_ = ids.of(job.node, job.job, job.gpus or (job.gpu,))
        by_node[job.node].append(_job(id_, job, problem, specs))
    for node, instance in question.pinned:
        by_node[node].append(instance)
    swapped = jobs_in_host_memory(snapshot, question, plan, specs)
    policy = specs.get(("Policy", "", "default"), {})
    fields = PolicySpec.model_fields
    handover = policy.get("handover", fields["handover"].default)
    seconds = float(policy.get("handoverSeconds", fields["handover_seconds"].default))
    caps_w = {manifest.name: gpu_caps_w(manifest.spec) for manifest in snapshot.declared if manifest.kind == Kind.NODE}
    gpus = {
        node: _gpus(node, by_node.get(node, ()), clocks, snapshot, problem, caps_w.get(node, ()))
        for node in {*by_node, *swapped, *(node for node in snapshot.in_force if caps_w.get(node))}
    }
    return {
        node: NodeDesired(
            instances=tuple(sorted(by_node.get(node, ()), key=lambda line: line.id)),
            gpus=gpus[node],
            handover=handover,
            handover_seconds=seconds,
            clients_per_gpu=problem.policy.clients_per_gpu,
            same_model_per_gpu=problem.policy.same_model_per_gpu,
            swapped=tuple(sorted(swapped.get(node, ()), key=lambda line: line.id)),
        ).sharing(snapshot.in_force.get(node))
        for node in sorted(gpus)
        if node in by_node or node in swapped or gpus[node]
    }


class _Ids:
    """Gives ids: those of what is assigned or planned already, or new ones, derived so that a replay gives the same."""

    def __init__(self, fleets: Sequence[Desired], target: int) -> None:
        self._target = target
        self._made = 0
        self._held: dict[tuple[str, str, tuple[int, ...]], list[str]] = defaultdict(list)
        known = set()
        # In a rollout most of what is assigned is in force, too, as the same objects.
        wanted_by = {(node, id(wanted)): wanted for fleet in fleets for node, wanted in fleet.items()}
        for (node, _), wanted in wanted_by.items():
            for instance in (*wanted.instances, *wanted.swapped):
                if instance.id not in known:
                    known.add(instance.id)
                    self._held[node, instance.owner, instance.all_gpus].append(instance.id)

    def of(self, node: str, owner: str, gpus: tuple[int, ...]) -> str:
        if held := self._held.get((node, owner, gpus)):
            return held.pop(0)
        self._made += 1
        there = " ".join(map(str, gpus))
        digest = blake2b(f"{self._target} {node} {there} {owner} {self._made}".encode(), digest_size=ID_BYTES)
        return f"{owner.rpartition('/')[2]}-{digest.hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The template, arguments and batch frame of a variant, batch and memory on one GPU type."""

    template: str
    args: Free | None
    own: OwnRuntime | None
    batch: Frame


class _Shapes:
    """Looks shapes up, and remembers them."""

    def __init__(self, problem: Problem, specs: Specs) -> None:
        self._problem = problem
        self._specs = specs
        self._known: dict[tuple[str, str, str, int, float, int, bool], _Shape] = {}

    def of(self, line: Instance) -> _Shape:
        service, kind = self._problem.services[line.service], self._problem.nodes[line.node].gpu_type
        model, adapted = service.model, bool(service.tokens and service.tokens.adapters)
        key = (model, line.variant, kind, line.batch, line.memory_gib, line.degree, adapted)
        found = self._known.get(key)
        if found is None:
            runtime = _runtime(self._specs.get(("Model", "", model), {}), line.variant)
            profile = self._problem.profiles.get((model, line.variant, kind))
            profile = keep_places(profile, service) if profile else None
            own, template = own_runtime(runtime), str(runtime.get("template", ""))
            size = next((known.llm for known in self._problem.models[model] if known.name == line.variant), None)
            args: Free | None = None
            if not own:
                args = _cache(template, line, size, profile) | _places(template, profile)
                args = args | (runtime.get("args") or {}) or None
            found = self._known[key] = _Shape(template, args, own, _batch(line, profile))
        return found


def _instance(id_: str, line: Instance, service: Service, shape: _Shape) -> AssignedInstance:
    tenant, _, name = line.service.partition("/")
    tokens = service.tokens
    return AssignedInstance(
        id=id_,
        gpu=line.gpu,
        tenant=tenant,
        service=name,
        model=service.model,
        variant=line.variant,
        template=shape.template,
        args=shape.args,
        runtime=shape.own,
        sm_percent=float(line.sm_percent),
        memory_gib=line.memory_gib,
        batch=shape.batch,
        batch_timeout_ms=line.batch_timeout_ms,
        rate_per_second=line.rate_per_second,
        slo_ms=service.slo_ms,
        percentile=service.percentile,
        tpot_ms=tokens.promise.tpot_ms if tokens else 0.0,
        by_prefix=tokens is not None and tokens.lengths.prefix_share > 0,
        dedicated=service.is_dedicated,
        priority=float(service.priority),
        gpus=line.gpus,
        adapters=tuple(AssignedAdapter(each.name, each.path) for each in tokens.adapters) if tokens else (),
    )


def _runtime(model: Spec, variant: str) -> Spec:
    found: Spec = next((spec for spec in model.get("variants", ()) if spec["name"] == variant), {})
    return found.get("runtime") or {}


def _cache(template: str, line: Instance, size: LlmSize | None, profile: Profile | None) -> Free:
    """Returns the argument that gives a server the cache which its Profile states; none for other templates."""
    stated = profile.engine.get(line.degree) if profile else None
    if profile is None or size is None or stated is None or stated.form.data_ranks > 1:
        return {}
    held = kv_tokens(profile, size, line.degree, line.memory_gib)
    if template in VLLM:  # on each GPU; it keeps a block for itself
        spare = stated.form.block_tokens
        return {"kvCacheBytes": ceil((held + spare) * size.kv_bytes_per_token / line.degree)}
    return {"kvTokens": held} if template == "gpuwright-llm" else {}


def _places(template: str, profile: Profile | None) -> Free:
    """Returns the arguments that give a server its places for adapters; none for other templates."""
    places = profile.adapters if profile and profile.adapters_gib else None
    if places is None or template not in (VLLM_LORA, "gpuwright-llm"):
        return {}
    rank = {"adapterRank": str(places.max_rank)} if template == VLLM_LORA else {}
    return {"adapterPlaces": places.places, **rank}


def _batch(line: Instance, profile: Profile | None) -> Frame:
    """Returns the batches that the node may use: from the smallest up to what its memory holds."""
    if profile and profile.iteration:
        return Frame(float(line.batch), float(line.batch), float(line.batch))  # requests at once, fixed at its start
    known = profile.memory_gib if profile else {line.batch: line.memory_gib}
    fitting = [batch for batch in known if batch in (profile.latency_ms if profile else known)]
    most = max((batch for batch in fitting if known[batch] <= line.memory_gib + 1e-9), default=line.batch)
    return Frame(float(line.batch), float(min([*fitting, line.batch])), float(max(most, line.batch)))


def _job(id_: str, placed: PlacedJob, problem: Problem, specs: Specs) -> AssignedInstance:
    job = problem.jobs[placed.job]
    tenant, _, name = placed.job.partition("/")
    profile = job.profiles[problem.nodes[placed.node].gpu_type]
    speeds = ",".join(f"{sm}:{speed:g}" for sm, speed in profile.units_per_second)
    spec = specs.get(("Job", tenant, name), {})
    runtime = spec.get("runtime") or {}
    own = own_runtime(runtime)
    args: Free | None = None
    if own is None:
        args = dict(runtime.get("args") or {})
        if isinstance(spec.get("requests"), str):
            args |= {"requests": spec["requests"], "count": int(units_of(spec))}
        elif not runtime:
            units = int(units_of(spec)) if spec else 0
            args = {"speeds": speeds, "steps": units, "checkpoint": f"{tenant}.{name}"}
    return AssignedInstance(
        id=id_,
        gpu=placed.gpu,
        tenant=tenant,
        job=name,
        template=job_template(spec) if spec else JOB_TEMPLATE,
        args=args or None,
        runtime=own,
        sm_percent=float(placed.sm_percent),
        memory_gib=placed.memory_gib,
        priority=float(job.priority),
        preemptible=is_preemptible(spec) if spec else job.is_preemptible,
        terms=job_terms(spec) if spec else None,
        gpus=placed.gpus,
    )


def _gpus(
    node: str, lines: Sequence[AssignedInstance], clocks: Mapping[Place, float], snapshot: Snapshot, problem: Problem,
    caps_w: Sequence[float],
) -> tuple[AssignedGpu, ...]:  # fmt: skip
    """Returns the settings of the devices that something runs on; pinned instances keep theirs, but for capW."""
    before = {gpu.index: gpu for gpu in snapshot.in_force[node].gpus} if node in snapshot.in_force else {}
    found: list[AssignedGpu] = []
    for index in sorted({gpu for line in lines for gpu in line.all_gpus}):
        if node not in problem.nodes or ((node, index) not in clocks and index in before):
            known = before.get(index, AssignedGpu(index))
            found.append(_cap(known, caps_w))
            continue
        kind = problem.type_at((node, index))
        clock = clocks.get((node, index), kind.top_clock_mhz)
        frame = Frame(clock, kind.clocks_mhz[0], kind.top_clock_mhz)
        found.append(_cap(AssignedGpu(index, frame, problem.type_of(node).max_w), caps_w))
    taken, leaving = {gpu.index for gpu in found}, snapshot.in_force[node].instances if caps_w and before else ()
    left = [before[gpu] for gpu in {gpu for line in leaving for gpu in line.all_gpus} & before.keys() - taken]
    # What leaves a GPU draws no more than a new cap either.
    found += [_cap(gpu, caps_w) for gpu in left if _cap(gpu, caps_w) != gpu]
    return tuple(sorted(found, key=lambda gpu: gpu.index))


def _cap(gpu: AssignedGpu, caps_w: Sequence[float]) -> AssignedGpu:
    cap_w = caps_w[gpu.index] if gpu.index < len(caps_w) else gpu.cap_w
    return AssignedGpu(gpu.index, gpu.clock_mhz, cap_w)
