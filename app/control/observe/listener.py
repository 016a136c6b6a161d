"""Follows the reports of nodes and gateways: continues from what the previous leader stored, and stores its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from sqlalchemy import Connection

from agents.contract.assignments import AssignedInstance
from app.control.domain.events import Reason, event_of
from app.control.domain.leading import Deposed
from app.control.domain.policy import policy_spec
from app.control.domain.ports import Rivals
from app.control.domain.readings import CopyTrial, JobReading
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad
from app.control.domain.specs import risk_of, slo_latency_ms, slo_percentile
from app.control.domain.times import cycle_seconds, start_seconds
from app.control.jobs.state import job_readings
from app.control.measure import metrics
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.drift.drift import Drift
from app.control.observe.drift.predict import predict_running, profile_places
from app.control.observe.drift.rows import read_correction, write_correction
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.recent import RecentLoad
from app.control.observe.loads.reports import ReceivedReport, ask_after, open_news
from app.control.observe.loads.trials import Trials
from app.control.observe.loads.trust import TrustedInstances
from app.store.database import clock, lease
from app.store.database.database import Database, Unavailable
from app.store.fleet import load_news
from app.store.fleet import loads as rows
from app.store.fleet.load_news import LoadNews, NewsQuestion
from app.store.plans import corrections
from app.store.world import events
from solvers.forecast import make_margin_rules
from solvers.llm.iteration import TokenLengths
from solvers.planning.measured import MeasuredInstance
from solvers.planning.problem import Problem, Profile, ProfileKey

HISTORY = timedelta(minutes=35)  # of loads that a new leader reads


class ReportListener:
    """Reads reports from the database; safe for several threads."""

    def __init__(self, database: Database, make_drift: Callable[[], Drift] = Drift) -> None:
        self._database = database
        self._make_drift = make_drift
        self._loads = Loads()
        self._drift = make_drift()
        self._trusted = TrustedInstances()
        self._trials = Trials()
        self._turn = threading.Lock()
        self._at = datetime.min.replace(tzinfo=UTC)  # of the last news
        self._job_readings: list[JobReading] = []
        self._unstored: list[rows.LoadBucket] = []
        self._unrecorded: dict[str, ProfileCorrection] = {}  # by profile

    def begin(self, last: Mapping[str, ExpectedLoad]) -> None:
        """Starts as a new leader with the history in the database, and the loads of the last leader's last decision."""
        courses = self._database.read(lambda connection: rows.histories(connection, HISTORY))
        known = self._database.read(corrections.read_all)
        with self._turn:
            self._loads, self._drift, self._trials = Loads(), self._make_drift(), Trials()
            self._loads.restore(courses)
            self._loads.restore_margins(last)
            self._drift.restore(map(read_correction, known))
            self._unrecorded = {}

    def set_slos(self, declared: Sequence[DeclaredObject]) -> None:
        """Sets the SLOs that answers are measured against."""
        services = {item.full_name: item.spec for item in declared if item.kind == "Service"}
        starts, common, cycle = start_seconds(declared), policy_spec(declared), cycle_seconds(declared)
        percentiles = {name: slo_percentile(spec) for name, spec in services.items()}
        rules = {
            name: make_margin_rules(risk_of(spec, common), percentiles[name], starts[name], cycle)
            for name, spec in services.items()
        }
        with self._turn:
            slos_ms = {name: slo_latency_ms(spec) for name, spec in services.items()}
            self._loads.set_slos(slos_ms, percentiles, rules)

    def ask(self) -> NewsQuestion:
        """Returns the question for all that came since the last news."""
        with self._turn:
            return self._question()

    def take(self, asked: NewsQuestion, news: LoadNews | None) -> None:
        """Takes the answer to a question; None: the database gave none.

        Where another thread has read meanwhile, the next question starts from there, so this answer says nothing new.
        """
        with self._turn:
            if news is None:
                self._trusted = TrustedInstances()  # versions may go back if the database was restored or replaced
            elif asked == self._question():
                self._take(news)

    def recent(self) -> tuple[datetime, dict[str, RecentLoad]]:
        """Returns the time of the last news, and the recent load of every service then."""
        with self._turn:
            loads = self._loads
            return self._at, {name: found for name in loads.services if (found := loads.recent(name)) is not None}

    def read_recent(self) -> tuple[datetime, dict[str, RecentLoad]]:
        """Asks for news, and returns the same."""
        asked, news = self.ask(), None
        try:
            news = self._database.read(lambda connection: load_news.read(connection, asked))
        finally:
            self.take(asked, news)
        return self.recent()

    def _question(self) -> NewsQuestion:
        return ask_after(self._loads.cursor, self._trusted.version)

    def _take(self, news: LoadNews) -> None:
        """Takes news, without instances that their nodes were not assigned."""
        loads = self._loads
        self._trusted.take(news.assignments, news.now)
        found = open_news(news, loads.cursor)
        reports = [ReceivedReport(line.received_at, self._trusted.filter(line.report)) for line in found.reports]
        readings = replace(found, reports=reports)
        loads.take(readings)
        self._drift.take(readings, loads.shed_since)
        for received in readings.reports:
            self._job_readings += job_readings(received.report, received.received_at)
            self._trials.take(received.report)
        self._at = news.now

    def trials(self, wanted: Mapping[str, AssignedInstance]) -> Mapping[str, CopyTrial]:
        """Returns how copies on trial have answered since this method first named them."""
        with self._turn:
            return self._trials.of(wanted)

    def take_job_readings(self) -> list[JobReading]:
        """Returns the readings of jobs since the last call."""
        with self._turn:
            readings, self._job_readings = self._job_readings, []
        return readings

    def learn(self, epoch: int, problem: Problem, means: Mapping[ProfileKey, Profile]) -> bool:
        """Compares reports with the declared profiles of what runs; returns True if a correction changed.

        Corrections that the database does not take are recorded with the next ones.
        """
        predicted, places = predict_running(problem), profile_places(problem, means)
        now = self._database.read(clock.now)
        with self._turn:
            for after in self._drift.correct(now):
                before = self._unrecorded.get(after.key)
                message = after.message or (before.message if before else "")
                self._unrecorded[after.key] = replace(after, message=message)
            self._drift.expects(predicted, places)
            changed = list(self._unrecorded.values())
        is_changed = bool(changed) and record_corrections(self._database, epoch, changed, now)
        self._unrecorded = {}
        return is_changed

    def measured(self) -> Mapping[str, MeasuredInstance]:
        """Returns the last minute of each instance that went as planned."""
        with self._turn:
            return self._drift.measured

    def foresee(self, ahead_seconds: float) -> Mapping[str, float]:
        """Returns the rate that each service reaches by then at most, with the share by which plans exceed a rate."""
        with self._turn:
            return self._loads.foresee(ahead_seconds)

    def store_buckets(self) -> None:
        """Counts and stores full buckets; those not taken are stored again while a new leader would read them."""
        with self._turn:
            fresh = self._loads.full()
            full, self._unstored = [*self._unstored, *fresh], []
        metrics.count_latencies(fresh)
        if not full:
            return
        try:
            self._database.repeatable(lambda connection: rows.keep(connection, full))
        except Unavailable:
            oldest = max(bucket.at for bucket in full) - HISTORY
            self._unstored = [bucket for bucket in full if bucket.at > oldest]
            raise

    def expect(
        self,
        declared: Mapping[str, float],
        planned: Mapping[str, float],
        ahead: Mapping[str, float],
        now: datetime,
        lengths: Mapping[str, TokenLengths],
        short: Mapping[str, float] = MappingProxyType({}),
        rivals: Rivals = frozenset,
    ) -> Mapping[str, ExpectedLoad]:
        """Returns the load that each service is expected to get."""
        with self._turn:
            return self._loads.expect(declared, planned, ahead, now, lengths, short, rivals)


def record_corrections(database: Database, epoch: int, changed: Sequence[ProfileCorrection], now: datetime) -> bool:
    """Stores changed corrections and records alarms; returns True if a new plan is due, as a correction changed."""
    # The next cycle announces changed corrections together with their consequences; alarms are recorded at once.
    alarms = [
        event_of(
            Reason.PROFILE_WRONG,
            correction.alarm,
            kind="Profile",
            name=correction.key.replace("/", "-"),
            about=correction.key,
        )
        for correction in changed
        if correction.alarm
    ]

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        corrections.keep(connection, [write_correction(correction, now) for correction in changed])
        events.record(connection, alarms)

    database.write(write)
    metrics.count_events(alarms)
    return any(correction.message for correction in changed)
