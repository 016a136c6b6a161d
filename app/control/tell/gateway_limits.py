"""Limits for gateways: how much of each service's traffic they admit after a cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from app.control.domain.mode import ADVISORY, read_modes
from app.control.domain.snapshot import Snapshot
from app.control.formulate.tenants import gpu_types, gpus_per_rate
from app.control.tell.degrade.shedding import Shedding, SloTarget, plan_shedding
from app.control.tell.outcome import CycleOutcome
from app.control.tell.transitions import SILENT_SECONDS
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, Service


@dataclass(slots=True)
class GatewayLimits:
    """Plans what gateways admit, and remembers it so that limits change in steps and not with every cycle."""

    _sheds: Mapping[str, Shedding] = field(default_factory=dict)

    def plan(self, outcome: CycleOutcome, silence: Mapping[str, float]) -> Mapping[str, Shedding]:
        """Returns by service what gateways admit; nothing before the first plan is in force."""
        if outcome.snapshot.target <= 0:
            self._sheds = {}
            return self._sheds
        pinned: dict[str, float] = defaultdict(float)
        for _, instance in outcome.question.pinned:
            pinned[instance.owner] += instance.rate_per_second
        acting = acting_services(outcome.snapshot)
        targets = _find_targets(outcome.question.problem, outcome.plan)
        self._sheds = plan_shedding(
            _set_times(outcome.question.problem, outcome.plan),
            outcome.snapshot.expected,
            {name: target for name, target in targets.items() if name in acting},
            pinned,
            before=self._sheds,
            gateways=sum(seconds <= SILENT_SECONDS for seconds in silence.values()),
        )
        return self._sheds


def _set_times(problem: Problem, plan: Plan) -> Plan:
    """Returns the plan with every line's execution time by the problem's profiles; 0 where nothing was profiled."""
    known = [line for line in plan.instances if line.node in problem.nodes and line.service in problem.services]
    jobs = [job for job in plan.jobs if job.node in problem.nodes and job.job in problem.jobs]
    gpus = gpus_with(problem, known, jobs)
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
    times = {id(line.instance): line.exec_ms or 0.0 for gpu in gpus.values() for line in gpu.residents}
    return replace(plan, instances=tuple(replace(line, exec_ms=times.get(id(line), 0.0)) for line in plan.instances))


def acting_services(snapshot: Snapshot) -> set[str]:
    """Returns the services that are not advisory: others serve those, so their gateways stay open."""
    modes = read_modes(snapshot.declared, snapshot.is_held)
    return {
        declared.full_name
        for declared in snapshot.declared
        if declared.kind == "Service" and modes.find(declared.full_name) != ADVISORY
    }


def _find_targets(problem: Problem, plan: Plan) -> dict[str, SloTarget]:
    """Returns the SLO of each service, and whether any GPU of the fleet could meet it."""
    running, types = {instance.service for instance in plan.instances}, gpu_types(problem)
    return {
        name: SloTarget(_answer_ms(service), name in running or gpus_per_rate(problem, service, types) < inf)
        for name, service in problem.services.items()
    }


def _answer_ms(service: Service) -> float:
    """Returns how long a request may be open: of a language model, until the last token of a mean answer."""
    if service.tokens is None:
        return service.slo_ms
    promise = service.tokens.promise
    return promise.ttft_ms + (service.tokens.lengths.output_mean - 1) * promise.tpot_ms
