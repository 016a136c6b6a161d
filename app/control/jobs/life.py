"""A job's life: queued, starting, running, preempted and resumed, finished or failed. No progress is counted twice.

What its newest process says is how far the job is: a process goes on from what was last saved, so what it says may be
less than was counted before; that much is done again, and said. Words of an older process count only until the newer
one speaks, and a report that comes late or twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import exp

from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.readings import JobReading
from app.control.jobs.state import OVER, WAITING, JobNeed, JobPhase, JobPlace, JobState, JobWork

MOST_FAILURES = 5  # without getting on between them
FALLEN = timedelta(seconds=60)  # still down: counted as another
PACE_SECONDS = 60.0  # that a measured pace looks back, about
NEAR_END = timedelta(seconds=30)  # of work: one that ends by itself so close to its end, twice, is done
EASED = 0.95  # of the time to its deadline: one that was late is no longer, once it needs less
UP = ("ready", "routing")
OWN_FAULTS = frozenset(
    {"exited", "not_started", "not_warm", "not_under_mps", "limit_not_in_force", "refused_arguments", "no_template"}
)


@dataclass(frozen=True, slots=True)
class JobsStep:
    """All jobs a moment later, and what happened to them."""

    states: Mapping[str, JobState]
    events: tuple[NewEvent, ...] = ()


def advance_jobs(
    states: Mapping[str, JobState],
    works: Mapping[str, JobWork],
    told: Mapping[str, JobPlace],
    readings: Iterable[JobReading],
    now: datetime,
    why: Mapping[str, str] | None = None,
) -> JobsStep:
    """One moment. `told` is where nodes were told to run jobs, `why` the reasons of those that lost their place."""
    heard: dict[str, list[JobReading]] = {}
    job_of = {place.instance: job for job, place in told.items()} | {one.instance: name for name, one in states.items()}
    for reading in readings:
        job = reading.job or job_of.get(reading.instance, "")
        heard.setdefault(job, []).append(reading)
    found: dict[str, JobState] = {}
    events: list[NewEvent] = []
    for name, work in sorted(works.items()):
        life = _Life(states.get(name), work, now)
        life.declared()
        life.told(told.get(name), (why or {}).get(name, ""))
        for reading in sorted(heard.get(name, ()), key=lambda one: (one.order, one.at)):
            life.heard(reading)
        life.judged()
        found[name] = life.state
        events += life.events
    return JobsStep(found, tuple(events))


class _Life:
    """One job through one moment."""

    def __init__(self, state: JobState | None, work: JobWork, now: datetime) -> None:
        self.work, self.now = work, now
        self.events: list[NewEvent] = []
        if state is None:
            self.state = JobState(work.job, JobPhase.QUEUED, now, manifest=work.manifest)
            self._tell(Reason.JOB_QUEUED)
        else:
            self.state = state

    def declared(self) -> None:
        """Another manifest gives a failed job another chance, and more work to a finished one; progress stays."""
        state = self.state
        if state.manifest == self.work.manifest:
            return
        self.state = replace(state, manifest=self.work.manifest, failures=0, need=JobNeed(), is_late=False)
        again = state.phase is JobPhase.FAILED or (state.phase is JobPhase.FINISHED and state.done < self.work.units)
        if again:
            self._become(JobPhase.PREEMPTED if state.first_started_at else JobPhase.QUEUED)
            self.state = replace(self.state, finished_at=None)
            self._tell(Reason.JOB_QUEUED, "it was declared anew")

    def told(self, place: JobPlace | None, why: str) -> None:
        """A node was told to run it, another one, or nobody any more."""
        state = self.state
        if state.phase in OVER:
            return
        if place is None:
            if state.phase in WAITING:
                return
            ran = state.first_started_at is not None
            self._become(JobPhase.PREEMPTED if ran else JobPhase.QUEUED)
            self.state = replace(
                self.state, per_second=0.0, fell=False, fell_at=None, preemptions=state.preemptions + ran
            )
            if ran:
                self._tell(Reason.JOB_PREEMPTED, f"at {self._progress()}{f': {why}' if why else ''}")
            return
        if place.instance == state.instance and state.phase not in WAITING:
            return
        if place.instance != state.instance:
            self.state = replace(
                state, instance=place.instance, node=place.node, order=-1, said=0.0, said_at=None, fell=False,
                fell_at=None, before=state.instance, before_order=state.order,
            )  # fmt: skip
        self._become(JobPhase.STARTING)
        self.state = replace(self.state, per_second=0.0, need=JobNeed())
        at = f"on {place.node}/{place.gpu} with {place.sm_percent:g} % of its SMs"
        self._tell(Reason.JOB_PLACED, f"{at}, from {self._progress()}" if state.done else at)

    def heard(self, reading: JobReading) -> None:
        """A node says how far it is, or that it fell."""
        state = self.state
        if state.phase in OVER:
            return
        if reading.instance != state.instance:
            self._heard_last(reading)
            return
        if reading.order <= state.order:
            return
        self.state = replace(state, order=reading.order)
        if reading.units > 0:
            self._counted(reading)
        if reading.reason in OWN_FAULTS:
            self._fell(reading)
        elif reading.stage in UP or reading.units > state.said:
            self.state = replace(self.state, fell=False, fell_at=None)
            if self.state.phase is JobPhase.STARTING:
                self._started()

    def judged(self) -> None:
        """Done, given up, or late."""
        state, work = self.state, self.work
        if state.phase in OVER:
            return
        if state.done >= work.units:
            self._finish("")
        elif state.failures >= MOST_FAILURES:
            self._become(JobPhase.FAILED)
            self.state = replace(self.state, per_second=0.0)
            self._tell(Reason.JOB_FAILED, f"it fell {state.failures} times without getting on: {state.message}")
        elif work.deadline is not None:
            self._late(work.deadline)

    def _heard_last(self, reading: JobReading) -> None:
        """The last words of the instance before: how far it came. Nobody hears them once the new one has spoken."""
        state = self.state
        if not reading.instance or reading.instance != state.before or state.said:
            return
        if reading.order <= state.before_order:
            return
        done = max(state.done, min(reading.units, self.work.units))
        self.state = replace(state, before_order=reading.order, done=done)

    def _counted(self, reading: JobReading) -> None:
        state = self.state
        units = min(reading.units, self.work.units)
        back = state.done - units
        if back > 0 and (not state.said or units < state.said):
            # A new process, from what was saved last.
            self._tell(Reason.JOB_RESUMED, f"at {units:g} of {self.work.units:g}: {back:g} had not been saved")
            self.state = replace(state, done=units, said=units, said_at=reading.at, repeated=state.repeated + back)
            return
        pace = state.per_second
        if state.said and state.said_at and state.phase is JobPhase.RUNNING:
            passed = (reading.at - state.said_at).total_seconds()
            if passed <= 0:
                return
            measured, new = (units - state.said) / passed, 1 - exp(-passed / PACE_SECONDS)
            pace = measured if not pace else pace + (measured - pace) * new
        got_on = units > max(state.done_then, state.said) and state.said > 0
        self.state = replace(
            state, done=max(state.done, units), said=units, said_at=reading.at, per_second=pace,
            failures=0 if got_on and units > state.done_then else state.failures,
        )  # fmt: skip

    def _started(self) -> None:
        first = self.state.first_started_at is None
        self._become(JobPhase.RUNNING)
        self.state = replace(self.state, first_started_at=self.state.first_started_at or self.now)
        self._tell(
            Reason.JOB_STARTED if first else Reason.JOB_RESUMED,
            f"on {self.state.node}" if first else f"on {self.state.node} at {self._progress()}",
        )

    def _fell(self, reading: JobReading) -> None:
        """Each fall counts once, and again for every minute that it stays down."""
        state = self.state
        again = state.fell_at is None or reading.at - state.fell_at >= FALLEN
        if state.fell and not again:
            return
        self.state = replace(
            state, fell=True, fell_at=reading.at, failures=state.failures + 1, done_then=state.done,
            message=f"{reading.reason}: {reading.message}"[:500], per_second=0.0,
        )  # fmt: skip
        if self.state.phase is JobPhase.RUNNING:
            self._become(JobPhase.STARTING)
        pace = state.per_second or state.planned_per_second or self.work.fastest_per_second
        close = self.work.units - state.done <= pace * NEAR_END.total_seconds()
        if close and reading.reason == "exited" and self.state.failures >= 2 and state.done > 0:
            self._finish(f"; it ended by itself, last counted at {self._progress()}")

    def _finish(self, how: str) -> None:
        units = self.work.units
        self._become(JobPhase.FINISHED)
        self.state = replace(
            self.state, done=units, per_second=0.0, finished_at=self.now, is_late=False, need=JobNeed()
        )
        late = self.work.deadline is not None and self.now > self.work.deadline
        self._tell(
            Reason.JOB_FINISHED, f"{units:g} {self.work.unit} are done{', after the deadline' if late else ''}{how}"
        )

    def _late(self, deadline: datetime) -> None:
        """Warned as soon as its end is foreseen behind its deadline, and once."""
        state = self.state
        end = predicted_end(state, self.work, self.now) or soonest_end(state, self.work, self.now)
        if end is None:
            return
        if not state.is_late and end > deadline:
            self.state = replace(state, is_late=True)
            self._tell(Reason.JOB_LATE, f"its end is foreseen at {_clock(end)}, its deadline is {_clock(deadline)}")
        elif state.is_late and end < self.now + (deadline - self.now) * EASED:
            self.state = replace(state, is_late=False)

    def _become(self, phase: JobPhase) -> None:
        if self.state.phase is not phase:
            self.state = replace(self.state, phase=phase, since=self.now)

    def _progress(self) -> str:
        return f"{self.state.done:g} of {self.work.units:g} {self.work.unit}"

    def _tell(self, reason: Reason, message: str = "") -> None:
        self.events.append(event_of(reason, message, kind="Job", name=self.work.job))


def predicted_end(state: JobState, work: JobWork, now: datetime) -> datetime | None:
    """When it will be done at its pace; None while it has none."""
    if state.phase is JobPhase.FINISHED:
        return state.finished_at
    if state.phase not in (JobPhase.STARTING, JobPhase.RUNNING):
        return None
    return _after(now, work.units - state.done, state.per_second or state.planned_per_second)


def soonest_end(state: JobState, work: JobWork, now: datetime) -> datetime | None:
    """When it could be done at best, had it the GPU that suits it most for itself from now on."""
    return None if state.phase in OVER else _after(now, work.units - state.done, work.fastest_per_second)


def removed_jobs(states: Mapping[str, JobState], works: Mapping[str, JobWork]) -> Sequence[str]:
    """Jobs that are no longer declared."""
    return sorted(states.keys() - works.keys())


def _after(now: datetime, units: float, per_second: float) -> datetime | None:
    if not per_second > 0:
        return None
    seconds = max(units, 0.0) / per_second
    return now + timedelta(seconds=seconds) if seconds < 1e9 else None


def _clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
