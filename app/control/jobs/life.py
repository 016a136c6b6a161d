"""A job's life: queued, starting, running, preempted and resumed, finished or failed. No progress is counted twice.

The newest process of a job tells its progress. A process continues from the last checkpoint, so it may report less than
was counted before: the difference is work to repeat, and an event says so. Reports of an older process count only until
the newer process reports, and a report that arrives late or twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import exp

from agents.contract.fields import UP_STAGES
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.readings import JobReading
from app.control.jobs.ends import predict_end, soonest_end
from app.control.jobs.state import OVER, WAITING, JobNeed, JobPhase, JobPlace, JobState, JobWork

DONE, ENDED_FAILED = "job_done", "job_failed"  # a node's verdict on the exit code of its process
FAILURE_INTERVAL = timedelta(seconds=60)  # a job that is still down after it counts another failure
PACE_SECONDS = 60.0  # time constant of the measured pace
NEAR_END = timedelta(seconds=30)  # of work: a job that exits twice this close to its end is done
ON_TIME_SHARE = 0.95  # of the time to its deadline: a late job that needs less is on time again
OWN_FAULTS = frozenset({
    "exited", "not_started", "not_warm", "not_under_mps", "limit_not_in_force", "refused_arguments", "no_template",
    "not_admitted",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobsStep:
    """The jobs after a step, and the events of the step."""

    states: Mapping[str, JobState]
    events: tuple[NewEvent, ...] = ()


def advance_jobs(
    states: Mapping[str, JobState],
    works: Mapping[str, JobWork],
    assigned: Mapping[str, JobPlace],
    readings: Iterable[JobReading],
    now: datetime,
    swapped: Collection[str] = (),
) -> JobsStep:
    """Advances all jobs by what was reported and by `assigned`, their current places.

    The processes of `swapped` instances wait in host memory.
    """
    by_job: dict[str, list[JobReading]] = {}
    job_of = {place.instance: job for job, place in assigned.items()}
    job_of |= {state.instance: name for name, state in states.items()}
    for reading in readings:
        job = reading.job or job_of.get(reading.instance, "")
        by_job.setdefault(job, []).append(reading)
    found: dict[str, JobState] = {}
    events: list[NewEvent] = []
    for name, work in sorted(works.items()):
        life = _Life(states.get(name), work, now)
        life.follow_manifest()
        life.follow_assignment(assigned.get(name))
        for reading in sorted(by_job.get(name, ()), key=lambda reading: (reading.order, reading.at)):
            life.follow_reading(reading)
        life.follow_swap(swapped)
        life.conclude()
        found[name] = life.state
        events += life.events
    return JobsStep(found, tuple(events))


class _Life:
    """Advances a single job."""

    def __init__(self, state: JobState | None, work: JobWork, now: datetime) -> None:
        self.work, self.now = work, now
        self.events: list[NewEvent] = []
        if state is None:
            self.state = JobState(work.job, JobPhase.QUEUED, now, manifest=work.manifest)
            self._tell(Reason.JOB_QUEUED)
        else:
            self.state = state

    def follow_manifest(self) -> None:
        """Restarts a failed job whose manifest changed, and a finished job that now has more work; progress stays."""
        state = self.state
        if state.manifest == self.work.manifest:
            return
        self.state = replace(state, manifest=self.work.manifest, failures=0, need=JobNeed(), is_late=False)
        restarts = state.phase is JobPhase.FAILED or (state.phase is JobPhase.FINISHED and state.done < self.work.units)
        if restarts:
            self._become(JobPhase.PREEMPTED if state.first_started_at else JobPhase.QUEUED)
            self.state = replace(self.state, finished_at=None)
            self._tell(Reason.JOB_QUEUED, "its manifest was changed")

    def follow_assignment(self, place: JobPlace | None) -> None:
        """Notes that the job got a place, another one, or none."""
        state = self.state
        if state.phase in OVER:
            return
        if place is None:
            if state.phase in WAITING:
                return
            ran = state.first_started_at is not None
            self._become(JobPhase.PREEMPTED if ran else JobPhase.QUEUED)
            self.state = replace(
                self.state, per_second=0.0, is_down=False, failed_at=None, preemptions=state.preemptions + ran
            )
            if ran:
                self._tell(
                    Reason.JOB_PREEMPTED, f"at {self._progress()}{f': {why}' if (why := state.need.reason) else ''}"
                )
            return
        if place.instance == state.instance and state.phase not in WAITING:
            return
        if place.instance != state.instance:
            self.state = replace(
                state, instance=place.instance, node=place.node, order=-1, reported_units=0.0, reported_at=None,
                is_down=False, failed_at=None, exits=0, before=state.instance, before_order=state.order,
            )  # fmt: skip
        self._become(JobPhase.STARTING)
        self.state = replace(self.state, per_second=0.0, need=JobNeed())
        share = f"{place.sm_percent:g} % of its SMs" if len(place.gpus) == 1 else "all of their SMs"
        at = f"on {place.node}/{','.join(map(str, place.gpus))} with {share}"
        self._tell(Reason.JOB_PLACED, f"{at}, from {self._progress()}" if state.done else at)

    def follow_reading(self, reading: JobReading) -> None:
        """Takes a node's report of the job's progress or failure."""
        state = self.state
        if state.phase in OVER:
            return
        if reading.instance != state.instance:
            self._count_earlier(reading)
            return
        if reading.order <= state.order:
            return
        self.state = replace(state, order=reading.order)
        if reading.units > 0:
            self._count(reading)
        self._count_exits(reading)
        if reading.reason == DONE:
            self._finish(f"; {reading.message}" if self.state.done < self.work.units else "")
        elif reading.reason == ENDED_FAILED:
            self._fail(reading.message)
        elif reading.reason in OWN_FAULTS:
            self._count_failure(reading)
        elif reading.stage in UP_STAGES or reading.units > state.reported_units:
            self.state = replace(self.state, is_down=False, failed_at=None)
            if self.state.phase is JobPhase.STARTING:
                self._start()

    def follow_swap(self, swapped: Collection[str]) -> None:
        """Notes whether its process waits in host memory."""
        is_swapped = self.state.phase in WAITING and self.state.instance in swapped
        if is_swapped and not self.state.is_swapped:
            self._tell(Reason.JOB_SWAPPED, f"on {self.state.node} at {self._progress()}")
        if is_swapped != self.state.is_swapped:
            self.state = replace(self.state, is_swapped=is_swapped)

    def conclude(self) -> None:
        """Finishes the job, gives it up, or warns that it is late."""
        state, work = self.state, self.work
        if state.phase in OVER:
            return
        if state.done >= work.units:
            self._finish("")
        elif state.failures > work.retries:
            self._fail(f"it failed {state.failures} times without progress: {state.message}")
        elif work.deadline is not None:
            self._check_deadline(work.deadline)

    def _count_earlier(self, reading: JobReading) -> None:
        """Counts the progress of the previous instance, as long as the new instance has not reported."""
        state = self.state
        if not reading.instance or reading.instance != state.before or state.reported_units:
            return
        if reading.order <= state.before_order:
            return
        done = max(state.done, min(reading.units, self.work.units))
        self.state = replace(state, before_order=reading.order, done=done)

    def _count(self, reading: JobReading) -> None:
        state = self.state
        units = min(reading.units, self.work.units)
        back = state.done - units
        if back > 0 and (not state.reported_units or units < state.reported_units):
            # A new process continues from the last checkpoint.
            self._tell_repeated(units, back)
            self.state = replace(
                state, done=units, saved=min(reading.saved, units), reported_units=units, reported_at=reading.at,
                repeated=state.repeated + back,
            )  # fmt: skip
            return
        pace = state.per_second
        if state.reported_units and state.reported_at and state.phase is JobPhase.RUNNING:
            passed = (reading.at - state.reported_at).total_seconds()
            if passed <= 0:
                return
            measured, new = (units - state.reported_units) / passed, 1 - exp(-passed / PACE_SECONDS)
            pace = measured if not pace else pace + (measured - pace) * new
        progressed = units > max(state.done_at_failure, state.reported_units) and state.reported_units > 0
        self.state = replace(
            state, done=max(state.done, units), saved=max(state.saved, min(reading.saved, units)),
            reported_units=units, reported_at=reading.at, per_second=pace,
            failures=0 if progressed else state.failures,
        )  # fmt: skip

    def _tell_repeated(self, units: float, back: float) -> None:
        """Tells how much work is done once more, and whether it had been saved: then its saves are elsewhere."""
        unsaved = max(0.0, self.state.done - max(self.state.saved, units))
        lost = back - unsaved
        at = f"at {units:,.0f} of {self.work.units:,.0f}"
        if lost >= 1:
            self._tell(Reason.JOB_SAVES_MISSING, f"{at} on {self.state.node}: {lost:,.0f} had been saved elsewhere")
        words = f"{at}: {unsaved:,.0f} had not been saved" if unsaved or not lost else at
        self._tell(Reason.JOB_RESUMED, words)

    def _count_exits(self, reading: JobReading) -> None:
        if reading.exits != self.state.exits:
            more = max(0, reading.exits - self.state.exits)  # an agent that was restarted counts from 0 again
            self.state = replace(self.state, exits=reading.exits, restarts=self.state.restarts + more)
        if reading.exit_code >= 0:
            self.state = replace(self.state, exit_code=reading.exit_code)

    def _start(self) -> None:
        first = self.state.first_started_at is None
        self._become(JobPhase.RUNNING)
        self.state = replace(self.state, first_started_at=self.state.first_started_at or self.now)
        self._tell(
            Reason.JOB_STARTED if first else Reason.JOB_RESUMED,
            f"on {self.state.node}" if first else f"on {self.state.node} at {self._progress()}",
        )

    def _count_failure(self, reading: JobReading) -> None:
        """Counts each failure once, and once more for every minute that the job stays down."""
        state = self.state
        is_due = state.failed_at is None or reading.at - state.failed_at >= FAILURE_INTERVAL
        if state.is_down and not is_due:
            return
        self.state = replace(
            state, is_down=True, failed_at=reading.at, failures=state.failures + 1, done_at_failure=state.done,
            message=f"{reading.reason}: {reading.message}"[:500], per_second=0.0,
        )  # fmt: skip
        if self.state.phase is JobPhase.RUNNING:
            self._become(JobPhase.STARTING)
        pace = state.per_second or state.planned_per_second or self.work.fastest_per_second
        close = self.work.units - state.done <= pace * NEAR_END.total_seconds()
        if (
            close
            and reading.reason == "exited"
            and reading.exit_code < 0
            and self.state.failures >= 2
            and state.done > 0
        ):
            self._finish(f"; its process exited at {self._progress()}")

    def _fail(self, why: str) -> None:
        self._become(JobPhase.FAILED)
        self.state = replace(self.state, per_second=0.0, message=why[:500])
        self._tell(Reason.JOB_FAILED, why)

    def _finish(self, how: str) -> None:
        units = self.work.units
        self._become(JobPhase.FINISHED)
        self.state = replace(
            self.state, done=units, saved=units, per_second=0.0, finished_at=self.now, is_late=False, need=JobNeed()
        )
        late = self.work.deadline is not None and self.now > self.work.deadline
        self._tell(
            Reason.JOB_FINISHED, f"{units:,.0f} {self.work.unit} are done{', after the deadline' if late else ''}{how}"
        )

    def _check_deadline(self, deadline: datetime) -> None:
        """Warns once, as soon as the job is predicted to miss its deadline."""
        state = self.state
        end = predict_end(state, self.work, self.now) or soonest_end(state, self.work, self.now)
        if end is None:
            return
        if not state.is_late and end > deadline:
            self.state = replace(state, is_late=True)
            self._tell(
                Reason.JOB_LATE, f"it is predicted to end at {_clock(end)}, after its deadline of {_clock(deadline)}"
            )
        elif state.is_late and end < self.now + (deadline - self.now) * ON_TIME_SHARE:
            self.state = replace(state, is_late=False)

    def _become(self, phase: JobPhase) -> None:
        if self.state.phase is not phase:
            self.state = replace(self.state, phase=phase, since=self.now)

    def _progress(self) -> str:
        return f"{self.state.done:,.0f} of {self.work.units:,.0f} {self.work.unit}"

    def _tell(self, reason: Reason, message: str = "") -> None:
        self.events.append(event_of(reason, message, kind="Job", name=self.work.job))


def _clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
