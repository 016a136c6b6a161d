"""Mudi tries batches of what runs beside jobs: measurements decide, where profiles are wrong, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from solvers.mudi.fleet import plan
from solvers.planning.judge import judge
from solvers.planning.measured import MeasuredInstance
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import (
    Demand,
    Instance,
    Job,
    JobProfile,
    Problem,
    Profile,
    RunningState,
)
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

MINUTES = 30  # enough for all trials
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
BATCHES: Mapping[int, float] = {2: 8.0, 4: 12.0, 8: 20.0, 16: 37.0}  # at 40 % of the SMs
PRESSING = Demand(cpu_cores=1, host_memory_gib=1, pressure=((10, 0.2), (90, 1.0)), sensitivity=0.3)
TRAINED = JobProfile(((10, 1.0), (90, 8.0)), 4.0, PRESSING)


@dataclass(frozen=True)
class Truth:
    """How things really are: a job's pace and a service's latency by batch."""

    pace: Callable[[int], float]
    latency_ms: Callable[[int], float] = lambda batch: 50.0


@dataclass
class LiveFleet:
    """A fleet that has what it was planned a minute ago, and reports how it did."""

    truth: Truth
    rate: float = 50.0
    slo_ms: float = 200.0
    jobs: tuple[str, ...] = ("lab/a",)
    minutes: int = 0
    draft: PlannerDraft | None = None
    run: list[int] = field(default_factory=list)  # batches beside jobs

    def plan(self) -> PlannerDraft:
        problem = self.problem()
        known = self.draft.knowledge if self.draft else {}
        assert problem.state
        assert json.loads(json.dumps(known)) == known
        draft = plan(problem, known, PlannerBudget())
        assert draft.jobs is not None
        verdict = judge(
            problem, Plan(draft.instances, draft.jobs, draft.unserved, draft.unplaced), simulate=False, keeps=keep
        )
        assert verdict.is_right, verdict.violations
        self.minutes += 1
        self.draft = draft
        self.run.append(self.beside().batch)
        return draft

    def beside(self) -> Instance:
        """The instance beside the first job."""
        assert self.draft
        assert self.draft.jobs
        return next(line for line in self.draft.instances if line.place == self.draft.jobs[0].place)

    def problem(self) -> Problem:
        at = NOON + timedelta(minutes=self.minutes)
        running = self.draft.instances if self.draft else ()
        jobs = tuple(placed for placed in (self.draft.jobs or ()) if placed.job in self.jobs) if self.draft else ()
        batch = {line.place: line.batch for line in running}
        measured = {
            line.id: MeasuredInstance(at - timedelta(seconds=60), line.batch, self.truth.latency_ms(line.batch))
            for line in running
        }
        paces = {placed.job: self.truth.pace(batch[placed.place]) for placed in jobs}
        state = RunningState(at, running, jobs, measured=measured, paces=paces)
        found = fleet(rate=self.rate, slo_ms=self.slo_ms)
        profiles = {key: _with_batches(profile) for key, profile in found.profiles.items()}
        trainings = {name: Job(name, "lab", "training", 1e5, {"fast": TRAINED, "slow": TRAINED}) for name in self.jobs}
        return replace(found, profiles=profiles, jobs=trainings, state=state)


def _with_batches(profile: Profile) -> Profile:
    slower = 1.0 if profile.gpu_type == "fast" else 3.0
    curves = {
        batch: ((20, 2 * ms * slower), (40, ms * slower), (100, ms * slower / 2)) for batch, ms in BATCHES.items()
    }
    return replace(profile, latency_ms=curves, memory_gib=dict.fromkeys(BATCHES, 3.0))


@pytest.mark.slow
@pytest.mark.parametrize("best", sorted(BATCHES))
def test_the_batch_with_which_the_job_is_really_fastest_is_found(best: int) -> None:
    live = LiveFleet(Truth(lambda batch: 8.0 if batch == best else 4.0))
    for _ in range(MINUTES):
        live.plan()
    assert set(live.run) == set(BATCHES)
    assert set(live.run[-4:]) == {best}


@pytest.mark.slow
def test_a_batch_whose_requests_are_really_too_slow_is_not_kept() -> None:
    live = LiveFleet(Truth(float, lambda batch: 50.0 if batch < 16 else 400.0))
    for _ in range(MINUTES):
        live.plan()
    assert 16 in live.run
    assert set(live.run[-4:]) == {8}


def test_without_measurements_nothing_is_tried_twice_and_without_jobs_nothing_is_remembered() -> None:
    live = LiveFleet(Truth(lambda batch: 0.0))  # the job has not begun yet
    batches = {live.plan() and live.beside().batch for _ in range(4)}
    assert len(batches) == 1
    alone = LiveFleet(Truth(lambda batch: 4.0), jobs=())
    draft = plan(alone.problem(), {}, PlannerBudget())
    assert not draft.knowledge
    assert "GP-LCB" not in draft.method


def test_the_same_trials_give_the_same_plans() -> None:
    first, second = (LiveFleet(Truth(lambda batch: 3.0 + batch % 5)) for _ in range(2))
    for _ in range(10):
        assert first.plan() == second.plan()


@pytest.mark.slow
def test_a_plan_leaves_what_it_was_asked_with_as_it_is_and_so_can_be_repeated() -> None:
    live = LiveFleet(Truth(lambda batch: 3.0 + batch % 5))
    counted = 0
    for _ in range(10):
        known, problem = live.plan().knowledge, live.problem()
        before = json.dumps(known)
        first = plan(problem, known, PlannerBudget())
        counted += first.knowledge != known
        assert json.dumps(known) == before
        assert plan(problem, known, PlannerBudget()) == first
    assert counted >= 3


@pytest.mark.slow
def test_another_job_or_a_much_higher_rate_begins_again() -> None:
    live = LiveFleet(Truth(lambda batch: 8.0 if batch == 4 else 4.0))
    for _ in range(MINUTES):
        live.plan()
    assert series_of(live)["is_over"]
    assert not series_of(live)["trials"]
    live.rate *= 1.1
    live.plan()
    assert series_of(live)["is_over"]
    live.rate *= 1.5
    for _ in range(5):
        live.plan()
    assert not series_of(live)["is_over"]
    assert series_of(live)["trials"]
    live.jobs = ("lab/b",)
    live.plan()
    assert not series_of(live)["trials"]


@pytest.mark.slow
def test_another_slo_begins_again_so_that_a_batch_found_for_the_last_one_does_not_stay() -> None:
    live = LiveFleet(Truth(float, lambda batch: 15.0 * batch))  # the job is fastest beside the largest batch
    for _ in range(MINUTES):
        live.plan()
    assert live.beside().batch == 8
    live.slo_ms = 100.0
    live.plan()
    assert not series_of(live)["is_over"]
    for _ in range(MINUTES):
        live.plan()
    assert live.beside().batch == 4


def series_of(live: LiveFleet) -> dict[str, Any]:
    assert live.draft
    found: dict[str, Any] = live.draft.knowledge["trials"][live.beside().id]
    return found
