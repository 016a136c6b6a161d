"""Explains in the solver's process: a recorded plan and its snapshot in, sentences and numbers out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from app.control.answer.explain.alternatives import Alternative
from app.control.answer.explain.headroom import RecentLoads, describe_headroom, why_headroom, write_headroom
from app.control.answer.explain.instance import InstanceWhy, describe_alternative, describe_instance, why_instance
from app.control.answer.explain.job import why_job
from app.control.answer.explain.plan_lines import add_predictions, drop_left_out
from app.control.answer.explain.service import describe_service, why_service
from app.control.answer.explain.tokens import spell_lengths
from app.control.answer.explain.uncertainty import (
    UncertaintyWhy,
    describe_profiling,
    describe_uncertainty,
    rank_profiling,
    why_uncertain,
)
from app.control.answer.explain.wire import (
    ExplainedInstanceWire,
    ExplainedServiceWire,
    ExplainedShapeWire,
    InstanceAlternativeWire,
    InstanceExplanationWire,
    JobExplanationWire,
    Missing,
    ProfilingWorthWire,
    UnservedWhyWire,
)
from app.control.answer.explain.wording import count
from app.control.domain.snapshot import ExpectedLoad, JobProgress, Snapshot
from app.control.domain.specs import LEARNED, job_tables, speed_field, unit_of
from app.control.formulate.formulate import formulate
from app.control.formulate.language import read_declared_lengths
from app.control.formulate.predicted_demands import PredictedDemand, list_predicted_demands
from app.control.formulate.question import Question
from app.control.solve.aside import Aside
from app.manifests.model import Kind, Manifest
from solvers.planning.parts.reasons import explain_parts
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance
from solvers.planning.wire import gpus_wire


@dataclass(frozen=True, slots=True)
class Explain(Aside[Any]):
    """The question why a service, an instance or a job of a recorded plan is as it is, or what profiling could save."""

    snapshot: Snapshot
    plan: Plan
    what: Literal["service", "instance", "job", "profiling", "unserved"]
    name: str
    recent: RecentLoads | None = None  # of the service, if the plan is in force

    def answered(self) -> Any:
        """Returns the explanation that `what` has; `missing` says what the plan does not have."""
        snapshot = take_up_calls(self.snapshot, self.plan)
        question = formulate(snapshot)
        plan = add_predictions(question.problem, drop_left_out(question.problem, self.plan))
        if self.what == "profiling":
            return _profiling(question, plan, snapshot)
        if self.what == "unserved":
            return _reasons(question, plan)
        if self.what == "job":
            return _job(question, plan, self.name, snapshot)
        if self.what == "service":
            return _service(question, plan, self.name, snapshot, self.recent)
        found = next((instance for instance in plan.instances if instance.id == self.name), None)
        if found is None:
            return {"missing": f"the plan has no instance {self.name}"}
        why = why_instance(question.problem, plan, found)
        return cast(InstanceExplanationWire, {"sentences": describe_instance(why), **_instance(why)})


def take_up_calls(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Returns the snapshot with the rates of the plan, if it is a quick step: its record has the rates from before."""
    lines = [(line.service, line.rate_per_second) for line in plan.instances]
    lines += [(line.service, line.rate_per_second) for line in plan.unserved]
    rates = dict.fromkeys(snapshot.calls, 0.0)
    for name, rate in lines:
        if name in rates:
            rates[name] += rate
    risen = {
        name: replace(snapshot.expected.get(name, ExpectedLoad(0.0)), rate_per_second=rate, reason="risen")
        for name, rate in rates.items()
        if name not in snapshot.expected or rate > snapshot.expected[name].rate_per_second
    }
    return replace(snapshot, expected={**snapshot.expected, **risen}) if risen else snapshot


def _reasons(question: Question, plan: Plan) -> dict[str, UnservedWhyWire]:
    """Returns the reason and the least change for each service that the plan leaves unserved."""
    known = [line for line in plan.unserved if line.service in question.problem.services]
    found = explain_parts(question.problem, replace(plan, unserved=tuple(known)))
    return {line.service: {"reason": line.reason, "relaxation": line.relaxation} for line in found}


WHY_PINNED = {  # by the state of a node on which nothing is planned
    "reporting": "is cordoned there, or rests after a failed step",
    "silent": "does not report",
    "mismatch": "has other GPUs than declared",
}


def _service(
    question: Question, plan: Plan, name: str, snapshot: Snapshot, recent: RecentLoads | None
) -> ExplainedServiceWire | Missing:
    if name not in question.problem.services:
        nodes = sorted({node for node, instance in question.pinned if instance.service and instance.owner == name})
        if not nodes:
            return {"missing": f"{name} was declared after this plan was made; the next cycle plans for it"}
        whys = [f"{node} {WHY_PINNED[snapshot.nodes[node].state]}" for node in nodes]
        return {"missing": f"{name} stays unchanged where it runs: {'; '.join(whys)}"}
    why = why_service(question.problem, plan, name)
    sentences = describe_service(question.problem, why)
    found = why_uncertain(question.problem, plan, snapshot, name)
    uncertain = found.get(name, UncertaintyWhy((), 0.0, 0.0))
    sentences += describe_uncertainty(uncertain)
    expected = snapshot.expected.get(name)
    if short := question.shortages.get(name):
        sentences.insert(1, short)
    declared = read_declared_lengths(snapshot.declared).get(name)
    if declared and (lengths := spell_lengths(question.problem.services[name], declared)):
        sentences.insert(1, lengths)
    served = sum(instance.rate_per_second for instance in why.instances)
    headroom = why_headroom(snapshot, name, recent, why.cost_per_hour / served if served else 0.0) if recent else None
    if headroom:
        sentences[1:1] = describe_headroom(headroom)
    if expected and expected.risk:
        sentences.insert(1, _describe_margin(expected))
    if expected and expected.reason:
        sentences.insert(1, f"planned for {expected.rate_per_second:.6g} a second: {_forecast(expected.reason)}")
    return {
        "service": name,
        "ratePerSecond": why.rate_per_second,
        "costPerHour": why.cost_per_hour,
        "sentences": sentences,
        "instances": [_write_instance(instance) for instance in why.instances],
        "unserved": {
            "ratePerSecond": why.missing.rate_per_second,
            "reason": why.missing.reason,
            "relaxation": why.missing.relaxation,
            "proved": why.missing.is_proved,
        }
        if why.missing
        else None,
        "shapes": [_instance(shape) for shape in why.shapes],
        "headroom": write_headroom(headroom) if headroom else None,
        "uncertainty": {
            "couldSavePerHour": uncertain.could_save_per_hour,
            "worthProfiling": uncertain.is_worth_profiling,
            "spreads": list(uncertain.spreads),
        },
    }


def _profiling(question: Question, plan: Plan, snapshot: Snapshot) -> ProfilingWorthWire:
    ranked = rank_profiling(why_uncertain(question.problem, plan, snapshot))
    return {
        "sentences": describe_profiling(ranked),
        "worthProfiling": [
            {"service": name, "couldSavePerHour": why.could_save_per_hour, "costPerHour": why.cost_per_hour}
            for name, why in ranked
        ],
    }


def _job(question: Question, plan: Plan, name: str, snapshot: Snapshot) -> JobExplanationWire:
    facts = snapshot.jobs.get(name, JobProgress())
    why = why_job(question.problem, plan, name, snapshot.at, facts)
    predicted = _list_predicted(snapshot, name)
    placed = why.placed
    return {
        "job": name,
        "phase": facts.phase,
        "left": why.remaining_units,
        "endsAt": why.ends_at.isoformat() if why.ends_at else None,
        "placed": {
            "node": placed.node,
            "gpu": placed.gpu,
            "gpuType": why.gpu_type,
            "smPercent": placed.sm_percent,
            "memoryGib": placed.memory_gib,
            "unitsPerSecond": placed.units_per_second,
        }
        if placed
        else None,
        "reason": why.reason,
        "relaxation": why.relaxation,
        "predicted": {gpu_type: list(demand.fields) for gpu_type, demand in predicted.items()},
        "sentences": [
            *why.sentences,
            *_describe_speeds(snapshot, name),
            *(f"on {gpu_type}: {demand}" for gpu_type, demand in predicted.items()),
        ],
    }


def _describe_speeds(snapshot: Snapshot, name: str) -> Iterator[str]:
    """Yields where the speeds of a job are from that its manifest does not declare."""
    spec = next((item.spec for item in snapshot.declared if item.kind == "Job" and item.full_name == name), None)
    if spec is None:
        return
    for gpu_type, (table, profile) in sorted(job_tables(spec).items()):
        speed = f"{table['100']:.3g} {unit_of(spec)} a second on a whole GPU" if "100" in table else ""
        if LEARNED in profile:
            yield f"on {gpu_type}: {speed}, learned while it ran; less in proportion on a part of one"
        elif speed_field(spec) not in profile:
            yield f"on {gpu_type}: {speed} are assumed, all its work in an hour, until it has run for two minutes"


def _list_predicted(snapshot: Snapshot, name: str) -> dict[str, PredictedDemand]:
    """Returns what of the job's profiles was predicted from its layers, by GPU type."""
    jobs = [
        Manifest(Kind.JOB, each.tenant, each.name, each.spec) for each in snapshot.declared if each.kind == Kind.JOB
    ]
    tenant, _, short = name.partition("/")
    return list_predicted_demands(jobs, tenant, short)


def _describe_margin(expected: ExpectedLoad) -> str:
    """Returns how far the plan is above the load, and why so far."""
    room = f"at least {1 + expected.margin:.3g} times" if expected.margin else "no less than"
    missed = f"; {expected.missed_hours} of its last {count(expected.known_hours, 'hour')} did"
    return (
        f"plans for {room} the load that is surely there: {100 * expected.risk:g} % of hours may overspend their "
        f"error budget by load above the plan{missed if expected.known_hours else ''}"
    )


def _forecast(reason: str) -> str:
    return FORECASTS.get(reason, reason)


FORECASTS = {
    "declared": "the declared rate",
    "held": "as in the plan before",
    "risen": "the load has risen",
    "fallen": "the load has fallen",
    "outlook": "its history says that it rises within ten minutes",
    "what_if": "as this what-if assumes",
}


def _instance(why: InstanceWhy) -> ExplainedShapeWire:
    runner_up = why.found.runner_up
    return {
        "instance": _write_instance(why.instance),
        "gpuType": why.gpu_type,
        "costPerHour": why.cost_per_hour,
        "leastSmPercent": why.least_sm_percent,
        "why": {
            "gpu": why.why_gpu,
            "batch": why.why_batch,
            "smPercent": why.why_sm_percent,
            "notCheaper": why.why_not_cheaper,
        },
        "batches": [
            {"batch": batch.batch, "ratePerSecond": batch.rate_per_second, "execMs": batch.exec_ms}
            for batch in why.batches
        ],
        "runnerUp": _alternative(runner_up) if runner_up else None,
        "alternatives": [_alternative(alternative) for alternative in why.found.alternatives],
        "unfit": [{"gpuType": kind, "reason": reason} for kind, reason in why.found.unfit],
    }


def _alternative(other: Alternative) -> InstanceAlternativeWire:
    return {
        "words": describe_alternative(other),
        "gpuType": other.gpu_type,
        "instances": len(other.instances),
        "node": other.first.node,
        "variant": other.first.variant,
        "batch": other.first.batch,
        "smPercent": other.first.sm_percent,
        "opensGpus": other.opens,
        "addsPerHour": other.adds_per_hour,
        "churn": other.churn,
        "right": other.is_right,
        "broken": other.broken or None,
    }


def _write_instance(instance: Instance) -> ExplainedInstanceWire:
    return {
        "id": instance.id,
        "service": instance.service,
        "node": instance.node,
        **gpus_wire(instance),
        "variant": instance.variant,
        "batch": instance.batch,
        "smPercent": instance.sm_percent,
        "memoryGib": instance.memory_gib,
        "ratePerSecond": instance.rate_per_second,
        "predicted": {"execMs": instance.exec_ms, "latencyMs": instance.latency_ms},
    }
