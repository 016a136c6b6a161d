"""Explains an instance: its GPU, batch and SM%, and what the runner-up would cost."""

from __future__ import annotations

from dataclasses import dataclass

from app.control.answer.explain.alternatives import Alternative, InstanceAlternatives, find_alternatives
from app.control.answer.explain.shares import costs_of_instances
from app.control.answer.explain.tokens import describe_whole, other_shapes
from app.control.answer.explain.wording import count, money, ms, rate, spell_signed
from solvers.planning.beside import has_language_models, ordinary_part
from solvers.planning.fleet.grids import BatchRate
from solvers.planning.judge import JudgedPlan
from solvers.planning.judge.billing import is_billed_whole, price_of_used
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

ENOUGH_SHARE = 1 - 1e-6  # of a rate
NAMED_TYPES = 4  # in a sentence


@dataclass(frozen=True, slots=True)
class InstanceWhy:
    """The explanation of an instance, in numbers and in words."""

    instance: Instance
    gpu_type: str
    cost_per_hour: float  # its part of the GPU
    least_sm_percent: int  # that carries its rate on its GPU, next to its neighbours
    batches: tuple[BatchRate, ...]
    found: InstanceAlternatives
    why_gpu: str
    why_batch: str
    why_sm_percent: str
    why_not_cheaper: str


def why_instance(
    problem: Problem, plan: Plan, instance: Instance, judged: JudgedPlan | None = None
) -> InstanceWhy:  # fmt: skip
    """Explains an instance of a plan; the problem is the one that the plan answers."""
    if problem.services[instance.service].tokens is not None:
        return _why_whole(problem, plan, instance)
    cost_per_hour = costs_of_instances(problem, plan)[instance.id]
    if has_language_models(problem):  # their GPUs are no room for others
        problem, plan = ordinary_part(problem, plan)
        judged = None
    judged = judged or JudgedPlan(problem, plan, keep)
    found = find_alternatives(problem, plan, instance, judged)
    least = _least_sm(problem, instance)
    batches = batches_at(problem, instance, int(instance.sm_percent))
    return InstanceWhy(
        instance=instance,
        gpu_type=problem.nodes[instance.node].gpu_type,
        cost_per_hour=cost_per_hour,
        least_sm_percent=least,
        batches=batches,
        found=found,
        why_gpu=_why_gpu(problem, plan, instance, found),
        why_batch=_why_batch(instance, batches),
        why_sm_percent=_why_sm(problem, instance, least),
        why_not_cheaper=_why_not_cheaper(problem, found),
    )


def _why_whole(problem: Problem, plan: Plan, instance: Instance) -> InstanceWhy:
    """Explains an instance of a language model, which holds whole GPUs."""
    return InstanceWhy(
        instance=instance,
        gpu_type=problem.nodes[instance.node].gpu_type,
        cost_per_hour=costs_of_instances(problem, plan)[instance.id],
        least_sm_percent=100,
        batches=(),
        found=InstanceAlternatives(instance, (), ()),
        why_gpu=describe_whole(problem, instance),
        why_batch=f"{instance.batch} requests at once carry most within its promise",
        why_sm_percent="a language model holds whole GPUs",
        why_not_cheaper=other_shapes(problem, instance),
    )


def describe_alternative(other: Alternative) -> str:
    """Describes an alternative: `2 instances of fp16 on a100 (node-3/0), batch 16 at 25 % of its SMs`."""
    first = other.first
    where = f"{first.node}/{first.gpu}" + (f" and {len(other.instances) - 1} more" if len(other.instances) > 1 else "")
    empty = ", an empty GPU" if len(other.instances) == 1 else ", with GPUs that are empty now"
    opened = empty if other.opens else ""
    return (
        f"{count(len(other.instances), 'instance')} of {first.variant} on {other.gpu_type} ({where}{opened}), "
        f"batch {first.batch} at {first.sm_percent} % of its SMs"
    )


def _why_gpu(problem: Problem, plan: Plan, instance: Instance, found: InstanceAlternatives) -> str:
    node = problem.nodes[instance.node]
    name, is_whole = node.gpu_type, is_billed_whole(node, problem.policy)
    where = f" on a node of {count(node.gpu_count, 'GPU')} that is billed whole," if is_whole else ""
    price = price_of_used(node, problem.policy, 1)
    neighbours = [line.service for line in plan.instances if line.place == instance.place and line is not instance]
    company = (
        f"it shares the GPU with {', '.join(sorted(set(neighbours)))}" if neighbours else "no other service runs on it"
    )
    text = f"{name}{where} at {money(price)} an hour; {company}"
    others = {
        alternative.gpu_type: alternative
        for alternative in reversed(found.alternatives)
        if alternative.is_right and alternative.gpu_type != name
    }
    if others:
        detail = ", ".join(
            f"on {kind} it takes {count(len(other.instances), 'instance')} "
            f"and {spell_signed(other.adds_per_hour)} an hour"
            for kind, other in sorted(others.items())
        )
        return f"{text}; {detail}"
    unfit = [f"{kind}: {why}" for kind, why in found.unfit if kind != name]
    if not unfit:
        return f"{text}; the fleet has no other GPU type"
    more = f"; and {len(unfit) - NAMED_TYPES} more" if len(unfit) > NAMED_TYPES else ""
    return f"{text}; no other type has room for it ({'; '.join(unfit[:NAMED_TYPES])}{more})"


def _why_batch(instance: Instance, batches: tuple[BatchRate, ...]) -> str:
    mine = next((batch for batch in batches if batch.batch == instance.batch), None)
    most = max(batches, key=lambda batch: (batch.rate_per_second, -batch.batch), default=None)
    if mine is None or most is None:
        return f"its profile no longer has batch {instance.batch}"
    text = f"batch {mine.batch} carries up to {rate(mine.rate_per_second)} a second within the SLO at this share"
    others = [batch for batch in batches if batch.batch != mine.batch]
    detail = ", ".join(
        f"batch {batch.batch} {rate(batch.rate_per_second) if batch.rate_per_second > 0 else 'nothing'}"
        for batch in sorted(others, key=lambda other: -other.rate_per_second)[:3]
    )
    return f"{text}; {detail}" if detail else f"{text}; its profile has no other batch"


def _why_sm(problem: Problem, instance: Instance, least: int) -> str:
    sm, carried = int(instance.sm_percent), rate(instance.rate_per_second)
    if least and least < sm:
        paid = "GPUs are paid whole, so a larger share costs nothing while no other service needs it"
        why = paid if problem.policy.pricing == "gpu" else "the plan leaves it some slack"
        return f"{least} % would be enough for {carried} a second; {why}"
    below = max((batch.rate_per_second for batch in batches_at(problem, instance, sm - 1)), default=None)
    if below is None:
        return f"{sm} % is the smallest share in its profile"
    return f"{sm} % is the smallest share that carries {carried} a second: {sm - 1} % would carry {rate(below)}"


def _why_not_cheaper(problem: Problem, found: InstanceAlternatives) -> str:
    best = found.runner_up
    if best is None:
        return "no alternative that was tried carries its rate and keeps every rule"
    text = describe_alternative(best)
    if best.adds_per_hour > 0:
        return f"the runner-up costs {money(best.adds_per_hour)} an hour more: {text}"
    if best.adds_per_hour == 0:
        return f"the runner-up costs the same, so a move would only add churn: {text}"
    saved, horizon = -best.adds_per_hour, problem.policy.horizon_minutes / 60
    if saved * horizon <= best.churn:
        return (
            f"the runner-up would save {money(saved)} an hour, {money(saved * horizon)} over the horizon of "
            f"{problem.policy.horizon_minutes:g} minutes, but the change would cost {money(best.churn)}: {text}"
        )
    return f"the runner-up would save {money(saved)} an hour; the search did not find it: {text}"


def _least_sm(problem: Problem, instance: Instance) -> int:
    """Returns the least SM% that carries its rate where it runs, by any batch; 0 where none does."""
    for sm in range(1, int(instance.sm_percent) + 1):
        if any(
            batch.rate_per_second >= instance.rate_per_second * ENOUGH_SHARE
            for batch in batches_at(problem, instance, sm)
        ):
            return sm
    return 0


def batches_at(problem: Problem, instance: Instance, sm_percent: int) -> tuple[BatchRate, ...]:
    """Returns what each batch carries at a share, among its neighbours and at its clock, within its profile."""
    profile = problem.profile(instance.service, instance.variant, instance.node)
    service, policy = problem.services[instance.service], problem.policy
    if profile is None or instance.batch not in profile.latency_ms:
        return ()
    alone = value_at(profile.latency_ms[instance.batch], instance.sm_percent)
    slower = instance.exec_ms / alone if instance.exec_ms > 0 else 1.0
    return tuple(
        BatchRate.of(policy, service, profile, batch, sm_percent, slower)
        for batch, curve in sorted(profile.latency_ms.items())
        if sm_percent >= curve[0][0]
    )


def describe_instance(why: InstanceWhy) -> list[str]:
    """Returns the sentences, the most important first."""
    instance = why.instance
    head = (
        f"{instance.service} runs {instance.variant} on {instance.node}/{instance.gpu} ({why.gpu_type}), "
        f"batch {instance.batch}, {instance.sm_percent} % of the SMs, {instance.memory_gib:g} GiB; it carries "
        f"{rate(instance.rate_per_second)} a second at {ms(instance.latency_ms)} "
        f"and costs {money(why.cost_per_hour)} an hour"
    )
    return [
        head,
        f"why this GPU: {why.why_gpu}",
        f"why this batch: {why.why_batch}",
        f"why this share: {why.why_sm_percent}",
        f"why not cheaper: {why.why_not_cheaper}",
    ]
