"""A job's life: each phase has its own reason, saved progress is never lost, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import FleetStatus, InstanceStatus, NodeDesired
from app.control.domain.events import Reason
from app.control.domain.readings import JobReading
from app.control.domain.specs import RETRIES
from app.control.jobs.ends import predict_end
from app.control.jobs.life import JobsStep, advance_jobs
from app.control.jobs.state import JobNeed, JobPhase, JobPlace, JobState, JobWork, list_swapped_instances
from app.control.jobs.status import job_status
from tests.support.soak import SOAK

MOST_FAILURES = RETRIES + 1
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
J = "lab/tune"
WORK = JobWork(J, 1000.0, "steps", None, 100.0, True, 10.0, {"big": 4.0}, "m1")
HERE, THERE = JobPlace("i1", "n1", (0,), 40), JobPlace("i2", "n2", (1,), 40)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def says(
    place: JobPlace, order: int, units: float, seconds: float, stage: str = "ready", reason: str = ""
) -> JobReading:
    return JobReading(
        J, place.instance, place.node, order, at(seconds), units, stage, reason, "it fell" if reason else ""
    )


@dataclass
class Course:
    """A job through time: its states and events so far."""

    work: JobWork = WORK
    states: Mapping[str, JobState] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)

    def go(self, seconds: float, place: JobPlace | None, *readings: JobReading, why: str = "") -> JobState:
        if why:
            self.states = {J: replace(self.states[J], need=JobNeed(why))}
        found: JobsStep = advance_jobs(self.states, {J: self.work}, {J: place} if place else {}, readings, at(seconds))
        self.states = found.states
        self.events += [(event.reason, event.message) for event in found.events]
        return found.states[J]

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]


def test_from_queued_to_finished() -> None:
    course = Course()
    assert course.go(0, None).phase is JobPhase.QUEUED
    assert course.go(10, HERE).phase is JobPhase.STARTING
    assert course.go(20, HERE, says(HERE, 1, 0, 20, "starting")).phase is JobPhase.STARTING
    assert course.go(30, HERE, says(HERE, 2, 5, 30)).phase is JobPhase.RUNNING
    state = course.go(130, HERE, says(HERE, 3, 505, 130))
    assert state.done == 505
    assert state.per_second == pytest.approx(5.0)
    assert predict_end(state, WORK, at(130)) == at(130 + 99)
    state = course.go(240, HERE, says(HERE, 4, 1000, 240))
    assert (state.phase, state.finished_at, state.done) == (JobPhase.FINISHED, at(240), 1000)
    assert course.go(250, None) == state
    assert course.reasons == [
        Reason.JOB_QUEUED, Reason.JOB_PLACED, Reason.JOB_STARTED, Reason.JOB_FINISHED,
    ]  # fmt: skip


def test_preempted_by_a_spike_and_resumed_elsewhere_where_it_was_saved() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 100, 10))
    state = course.go(20, None, why="services needed its share of the GPU")
    assert (state.phase, state.done, state.per_second, state.preemptions) == (JobPhase.PREEMPTED, 100, 0.0, 1)
    assert course.events[-1] == (
        Reason.JOB_PREEMPTED, "at 100 of 1,000 steps: services needed its share of the GPU",
    )  # fmt: skip
    # Its last words come when it is gone already: it saved at 140.
    state = course.go(25, None, says(HERE, 2, 140, 22))
    assert state.done == 140
    assert course.go(60, THERE).phase is JobPhase.STARTING
    state = course.go(80, THERE, says(THERE, 1, 150, 80))
    assert (state.phase, state.done, state.repeated) == (JobPhase.RUNNING, 150, 0)
    # A late report of the first instance changes nothing any more.
    assert course.go(81, THERE, says(HERE, 3, 139, 23)).done == 150


def test_unsaved_work_is_repeated_and_reported() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 500, 10))
    state = course.go(20, HERE, says(HERE, 2, 460, 20))
    assert (state.done, state.repeated) == (460, 40)
    assert course.events[-1] == (Reason.JOB_RESUMED, "at 460 of 1,000: 40 had not been saved")
    assert course.go(30, HERE, says(HERE, 3, 520, 30)).done == 520


def test_a_job_that_is_placed_where_its_saves_are_not_warns_of_what_it_repeats() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, replace(says(HERE, 1, 500, 10), saved=480))
    course.go(20, THERE)
    state = course.go(30, THERE, says(THERE, 1, 5, 30))
    assert (state.done, state.repeated) == (5, 495)
    assert course.events[-3:-1] == [
        (Reason.JOB_SAVES_MISSING, "at 5 of 1,000 on n2: 475 had been saved elsewhere"),
        (Reason.JOB_RESUMED, "at 5 of 1,000: 20 had not been saved"),
    ]


def test_a_report_that_comes_twice_or_late_changes_nothing() -> None:
    course = Course()
    course.go(0, HERE)
    first, second = says(HERE, 1, 100, 10), says(HERE, 2, 200, 20)
    state = course.go(20, HERE, second, first, second)
    assert state.done == 200
    assert course.go(20, HERE, first, second) == state


def test_a_copy_without_a_report_takes_no_progress_away() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 300, 10))
    course.go(20, THERE)
    state = course.go(30, THERE, says(THERE, 1, 0, 30, "warming"))
    assert (state.done, state.phase) == (300, JobPhase.STARTING)


def test_a_job_that_keeps_failing_is_given_up_and_a_changed_manifest_restarts_it() -> None:
    course = Course()
    course.go(0, HERE)
    for fall in range(MOST_FAILURES):
        course.go(10 + 100 * fall, HERE, says(HERE, 2 * fall, 0, 10 + 100 * fall, "", "exited"))
        course.go(20 + 100 * fall, HERE, says(HERE, 2 * fall + 1, 0, 20 + 100 * fall, "starting"))
    state = course.states[J]
    assert state.phase is JobPhase.FAILED
    assert "exited: it fell" in course.events[-1][1]
    assert course.go(1000, HERE) == state
    course.work = replace(WORK, manifest="m2")
    assert course.go(1010, None).phase is JobPhase.QUEUED
    assert course.states[J].failures == 0


def test_getting_on_forgives_falls() -> None:
    course = Course()
    course.go(0, HERE)
    order = 0
    for round_ in range(2 * MOST_FAILURES):
        order += 2
        course.go(100 * round_, HERE, says(HERE, order, 50 + 10 * round_, 100 * round_))
        course.go(100 * round_ + 50, HERE, says(HERE, order + 1, 0, 100 * round_ + 50, "", "exited"))
    assert course.states[J].phase is JobPhase.STARTING
    assert course.states[J].failures <= 2


def test_a_held_back_hand_over_is_no_fault_of_the_job() -> None:
    course = Course()
    course.go(0, HERE)
    for order in range(20):
        course.go(100 * order, HERE, says(HERE, order, 0, 100 * order, "", "no_room_to_hand_over"))
    assert (course.states[J].phase, course.states[J].failures) == (JobPhase.STARTING, 0)


def test_a_job_that_exits_this_close_to_its_end_is_done() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 10, 10))
    course.go(190, HERE, says(HERE, 2, 990, 190))
    course.go(200, HERE, says(HERE, 3, 0, 200, "", "exited"))
    assert course.states[J].phase is not JobPhase.FINISHED
    course.go(205, HERE, says(HERE, 4, 0, 205, "starting"))
    state = course.go(300, HERE, says(HERE, 5, 0, 300, "", "exited"))
    assert state.phase is JobPhase.FINISHED


def test_more_steps_declared_reopen_a_finished_job_with_its_progress() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 1000, 10))
    course.work = replace(WORK, units=1500.0, manifest="m2")
    state = course.go(20, None)
    assert (state.phase, state.done, state.finished_at) == (JobPhase.PREEMPTED, 1000, None)


def test_a_job_that_is_no_longer_declared_is_forgotten() -> None:
    states = advance_jobs({}, {J: WORK}, {}, [], NOON).states
    assert advance_jobs(states, {}, {}, [], NOON).states == {}


def test_a_late_job_is_announced_once_and_before_its_deadline() -> None:
    course = Course(work=replace(WORK, deadline=at(300)))
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 10, 10))
    course.go(20, HERE, says(HERE, 2, 30, 20))  # 2 a second: 970 take 485
    course.go(30, HERE, says(HERE, 3, 50, 30))
    assert course.reasons.count(Reason.JOB_LATE) == 1
    assert course.states[J].is_late
    state = course.go(31, HERE, replace(says(HERE, 4, 900, 31)))
    assert not course.go(40, HERE, says(HERE, 5, 950, 40)).is_late
    assert state.phase is JobPhase.RUNNING


def test_one_that_waits_too_long_is_late_too() -> None:
    course = Course(work=replace(WORK, deadline=at(300)))
    assert not course.go(0, None).is_late
    assert course.go(201, None).is_late  # at its fastest it takes 100


def test_its_object_says_phase_progress_and_predicted_end() -> None:
    course = Course(work=replace(WORK, deadline=at(1000)))
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 10, 10))
    state = course.go(20, HERE, says(HERE, 2, 60, 20))
    status = job_status(state, course.work, at(20))
    assert (status["phase"], status["progress"], status["stepsDone"], status["node"]) == ("running", 0.06, 60, "n1")
    assert status["predictedEnd"] == "2026-12-01T12:03:28.000Z"
    conditions = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
    assert conditions == {"Placed": ("True", "Running"), "Finished": ("False", "NotYet"), "OnTime": ("True", "InTime")}
    for phase in JobPhase:
        assert job_status(replace(state, phase=phase), course.work, at(20))["phase"] == phase.value


ALLOWED = {
    JobPhase.QUEUED: {JobPhase.STARTING, JobPhase.RUNNING, JobPhase.FINISHED},
    JobPhase.STARTING: {
        JobPhase.QUEUED,
        JobPhase.RUNNING,
        JobPhase.PREEMPTED,
        JobPhase.FINISHED,
        JobPhase.FAILED,
        JobPhase.STARTING,
    },
    JobPhase.RUNNING: {JobPhase.STARTING, JobPhase.PREEMPTED, JobPhase.FINISHED, JobPhase.FAILED},
    JobPhase.PREEMPTED: {JobPhase.STARTING, JobPhase.RUNNING, JobPhase.FINISHED},
    JobPhase.FINISHED: set[JobPhase](),
    JobPhase.FAILED: set[JobPhase](),
}
OPS = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 60)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("tell"), st.integers(1, 3)),
    st.tuples(st.just("take"), st.booleans()),
    st.tuples(st.just("report"), st.booleans()),
    st.tuples(st.just("late"), st.integers(0, 5)),
)


@dataclass
class Truth:
    """A job that really runs: its place, its saved progress, its reports."""

    place: JobPlace | None = None
    up: bool = False
    position: float = 0.0
    saved: float = 0.0
    furthest: float = 0.0
    orders: dict[str, int] = field(default_factory=dict)
    copies: int = 0
    reports: list[JobReading] = field(default_factory=list)

    def report(self, seconds: float) -> JobReading:
        assert self.place
        order = self.orders[self.place.node] = self.orders.get(self.place.node, 0) + 1
        reading = JobReading(J, self.place.instance, self.place.node, order, at(seconds), self.position, "ready")
        self.reports.append(reading)
        return reading

    def begin(self) -> None:
        self.up, self.position = True, self.saved


@pytest.mark.slow
@settings(max_examples=3000 if SOAK else 150, deadline=None)
@given(st.lists(OPS, max_size=40))
def test_progress_is_what_the_job_did_under_any_faults_of_jobs_and_reports(
    ops: Sequence[tuple[str, int]],
) -> None:
    truth, course, seconds = Truth(), Course(), 0.0
    before = course.go(0, None)
    for kind, value in ops:
        seconds += 5
        arrived: list[JobReading] = []
        match kind:
            case "run" if truth.up:
                truth.position = min(1000.0, truth.position + value)
                truth.furthest = max(truth.furthest, truth.position)
                seconds += value
            case "save" if truth.up:
                truth.saved = truth.position
            case "kill" if truth.up:
                truth.begin()
            case "tell":
                if truth.up:
                    truth.saved = truth.position  # it is asked to end, and saves
                truth.copies += 1
                truth.place = JobPlace(f"i{truth.copies}", f"n{value}", (0,), 40)
                truth.begin()
            case "take":
                if truth.up and value:
                    truth.saved = truth.position
                truth.place, truth.up = None, False
            case "report" if truth.place and truth.up:
                arrived = [truth.report(seconds)] * (2 if value else 1)
            case "late" if truth.reports:
                arrived = [truth.reports[max(0, len(truth.reports) - 1 - value)]]
        state = course.go(seconds, truth.place, *arrived)
        # Never more than was really done, and exactly what the running process reports.
        assert state.done <= truth.furthest
        if kind == "report" and arrived and arrived[0].units > 0 and state.phase is not JobPhase.FINISHED:
            assert state.done == truth.position
        if state.phase is JobPhase.FINISHED:
            assert truth.furthest >= WORK.units
        if state.phase is not before.phase:
            assert state.phase in ALLOWED[before.phase]
        if state.phase in (JobPhase.QUEUED, JobPhase.PREEMPTED):
            assert state.per_second == 0.0
            assert truth.place is None
        # The same moment again changes nothing.
        assert course.go(seconds, truth.place, *arrived) == state
        before = state


def test_a_node_that_calls_a_job_done_finishes_it_short_of_its_steps() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, says(HERE, 1, 400, 10))
    ended = replace(says(HERE, 2, 400, 20, "", "job_done"), exit_code=0, exits=1)
    state = course.go(20, HERE, ended)
    assert (state.phase, state.exit_code, state.restarts) == (JobPhase.FINISHED, 0, 1)
    assert course.reasons[-1] == Reason.JOB_FINISHED


def test_a_code_that_means_failure_fails_a_job_at_once() -> None:
    course = Course()
    course.go(0, HERE)
    state = course.go(10, HERE, replace(says(HERE, 1, 5, 10, "", "job_failed"), exit_code=2, message="code 2"))
    assert (state.phase, state.message) == (JobPhase.FAILED, "code 2")
    assert job_status(state, WORK, at(10))["exitCode"] == 2


def test_a_job_without_retries_fails_with_its_first_failure() -> None:
    course = Course(replace(WORK, retries=0))
    course.go(0, HERE)
    assert course.go(10, HERE, says(HERE, 1, 0, 10, "", "exited")).phase is JobPhase.FAILED


def test_what_is_not_saved_is_known_and_is_what_a_new_process_repeats() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, replace(says(HERE, 1, 100, 10), saved=100))
    state = course.go(20, HERE, replace(says(HERE, 2, 190, 20), saved=150))
    assert (state.saved, state.unsaved) == (150, 40)
    state = course.go(40, THERE, says(THERE, 3, 150, 40))
    assert (state.done, state.repeated) == (150, 40)


def test_exits_between_two_reports_are_counted_once_also_over_a_restart_of_the_agent() -> None:
    course = Course()
    course.go(0, HERE)
    course.go(10, HERE, replace(says(HERE, 1, 10, 10), exits=2, exit_code=1))
    course.go(20, HERE, replace(says(HERE, 2, 20, 20), exits=2, exit_code=1))
    course.go(30, HERE, replace(says(HERE, 3, 30, 30), exits=0))
    state = course.go(40, HERE, replace(says(HERE, 4, 40, 40), exits=1, exit_code=137))
    assert (state.restarts, state.exit_code) == (3, 137)


def test_a_job_in_host_memory_says_so_and_goes_on_there_with_nothing_repeated() -> None:
    course = Course()
    course.go(0, HERE, says(HERE, 1, 100.0, 1))

    def go(seconds: float, place: JobPlace | None, *readings: JobReading, swapped: tuple[str, ...] = ()) -> JobState:
        found = advance_jobs(
            course.states, {J: WORK}, {J: place} if place else {}, readings, at(seconds), swapped=swapped
        )
        course.states = found.states
        course.events += [(event.reason, event.message) for event in found.events]
        return found.states[J]

    assert not go(4, None).is_swapped
    go(6, None, swapped=("i1",))
    state = go(8, None, swapped=("i1",))
    assert (state.phase, state.is_swapped) == (JobPhase.PREEMPTED, True)
    status = job_status(state, WORK, at(6))
    assert status["swappedOn"] == "n1"
    placed = next(condition for condition in status["conditions"] if condition["type"] == "Placed")
    assert (placed["reason"], placed["message"]) == ("Swapped", "its process waits in the host memory of n1")
    back = go(9, HERE, replace(says(HERE, 3, 100.0, 9)), swapped=())
    assert (back.phase, back.is_swapped, back.repeated) == (JobPhase.RUNNING, False, 0.0)
    assert course.reasons[-4:] == [Reason.JOB_PREEMPTED, Reason.JOB_SWAPPED, Reason.JOB_PLACED, Reason.JOB_RESUMED]
    assert "swappedOn" not in job_status(back, WORK, at(9))


def test_a_job_whose_process_is_not_there_any_longer_does_not_wait_in_host_memory() -> None:
    first = advance_jobs({}, {J: WORK}, {J: HERE}, [says(HERE, 1, 100.0, 1)], at(0))
    second = advance_jobs(first.states, {J: WORK}, {}, [], at(6), swapped=("i1",))
    assert second.states[J].is_swapped
    assert not advance_jobs(second.states, {J: WORK}, {}, [], at(8)).states[J].is_swapped


def test_what_waits_in_host_memory_is_what_its_node_reports_so() -> None:
    assigned = {"n1": NodeDesired(swapped=(AssignedInstance("i1", 0, job="train"),))}
    for stage, waits in (("swapped", True), ("swapping", False), ("gone", False)):
        observed = FleetStatus({"i1": InstanceStatus(stage)})
        assert list_swapped_instances(assigned, observed) == ({"i1"} if waits else set())
    assert list_swapped_instances(assigned, FleetStatus()) == set()
    there = FleetStatus({"i1": InstanceStatus("swapped")})
    assert list_swapped_instances({"n1": NodeDesired()}, there) == set()
    assert list_swapped_instances(assigned, replace(there, lost=frozenset({"n1"}))) == set()


@pytest.mark.parametrize(("reason", "phase"), [("job_done", JobPhase.FINISHED), ("job_failed", JobPhase.FAILED)])
def test_a_job_that_ends_for_good_in_host_memory_is_over(reason: str, phase: JobPhase) -> None:
    first = advance_jobs({}, {J: WORK}, {J: HERE}, [says(HERE, 1, 100.0, 1)], at(0))
    second = advance_jobs(first.states, {J: WORK}, {}, [], at(6), swapped=("i1",))
    ended = JobReading("", HERE.instance, HERE.node, 2, at(8), reason=reason)
    third = advance_jobs(second.states, {J: WORK}, {}, [ended], at(8), swapped=("i1",)).states[J]
    assert (third.phase, third.is_swapped) == (phase, False)
