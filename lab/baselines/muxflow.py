"""MuxFlow (Liu et al., 2023): one online service a GPU, and at most one offline job beside it in what it leaves.

The service has the SMs that it needs, the job the rest; which job runs beside which service is a matching of the most
throughput, each job's against what it has alone. Ours: services have the GPUs of `one-per-gpu`; the need is the
smallest share that carries the rate when neighbours slow the service by a fifth, the most that MuxFlow lets them; a job
that would slow it more, or would miss its deadline, is not matched; profiles stand in for MuxFlow's predictor of
speeds; and a job stays where it runs while it may, so that only waiting jobs are matched.
"""

from __future__ import annotations

from dataclasses import replace

from lab.baselines.matching import OnlineGpu, matched
from solvers.baselines.whole.one_per_gpu import seat_all
from solvers.planning.carried import carry
from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.judge.paces import pace_jobs
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Unplaced
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Problem

SLOWED = 1.2  # a service's times, by the job beside it
STEADY_SM_PERCENT = 10  # an instance with so many SMs more than it needs is not resized
ALL_TAKEN = "each GPU with a service has its job, or too little left for this one while the SLOs hold"


def plan_muxflow(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns MuxFlow's plan; it depends on the rates and on what runs."""
    fleet = seat_all(problem)
    whole, _ = carry(problem, fleet.seats, fleet.staying)
    before = {line.id: line.sm_percent for line in problem.state.running} if problem.state else {}
    gpus = [_give_sms(problem, line, before.get(line.id, 0)) for line in whole]
    jobs = matched(problem, gpus, fleet.staying)
    instances, rests = carry(problem, [gpu.seat for gpu in gpus], jobs)
    placed = {job.job for job in jobs}
    return PlannerDraft(
        tuple(instances),
        fleet.unserved(rests),
        "a GPU for each instance, jobs beside them by a matching of the most throughput",
        {},
        tuple(pace_jobs(problem, instances, jobs)),
        tuple(Unplaced(name, ALL_TAKEN) for name in sorted(problem.jobs) if name not in placed),
    )


def _give_sms(problem: Problem, line: Instance, sm_percent: int) -> OnlineGpu:
    """Gives an instance the SMs that it needs; it keeps those it has where they are few more."""
    least = _needed_percent(problem, line)
    if least is None:
        return OnlineGpu(line, takes_jobs=False)
    kept = sm_percent if 0 <= sm_percent - least <= STEADY_SM_PERCENT else least
    takes_jobs = not problem.services[line.service].is_dedicated
    return OnlineGpu(replace(line, sm_percent=kept), takes_jobs=takes_jobs)


def _needed_percent(problem: Problem, line: Instance) -> int | None:
    """Returns the smallest SM% that carry the instance's rate while it is slowed; None where not even all do."""
    profile = problem.profile(line.service, line.variant, line.node)
    assert profile
    curve = profile.latency_ms[line.batch]
    percents = range(curve[0][0], line.sm_percent + 1)
    low, high = 0, len(percents)
    while low < high:
        middle = (low + high) // 2
        exec_ms = value_at(curve, percents[middle]) * _slowed(problem, profile.demand.most_sensitivity)
        if _carries(problem, line, exec_ms):
            high = middle
        else:
            low = middle + 1
    return percents[low] if low < len(percents) else None


def _slowed(problem: Problem, sensitivity: float) -> float:
    policy = problem.policy
    return SLOWED * (1 + sensitivity * policy.share_pressure) if policy.pricing == "share" else SLOWED


def _carries(problem: Problem, line: Instance, exec_ms: float) -> bool:
    service, policy = problem.services[line.service], problem.policy
    return accepted_rate(policy, service, line.batch, exec_ms) >= line.rate_per_second * (1 + 1e-6)
