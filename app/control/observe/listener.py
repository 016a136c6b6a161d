"""What a leader hears and learns: it begins with what the one before it kept, and keeps what it hears itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from agents.contract import AssignedInstance
from app.control.domain.readings import CopyTrial, JobReading
from app.control.domain.snapshot import Correction, DeclaredObject, ExpectedLoad
from app.control.jobs import job_readings as jobs_said
from app.control.observe.corrections import record_corrections
from app.control.observe.drift import Drift, predict_running
from app.control.observe.drift.rows import from_row
from app.control.observe.loads import Loads, RecentLoad, read_reports
from app.control.observe.loads.reports import ReceivedReport, ReportBatch, ReportCursor
from app.control.observe.loads.trials import Trials
from app.control.observe.loads.trust import TrustedInstances
from app.store.database import clock
from app.store.database.database import Database, Unavailable
from app.store.fleet import loads as rows
from app.store.fleet import observed
from app.store.plans import corrections
from solvers.planning.problem import Problem

REMEMBERED = timedelta(minutes=35)


class ReportListener:
    """Loads that are read from the database; for several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loads = Loads()
        self._drift = Drift()
        self._believed = TrustedInstances()
        self._trials = Trials()
        self._turn = threading.Lock()
        self._of_jobs: list[JobReading] = []
        self._unkept: list[rows.LoadBucket] = []

    def begin(self) -> None:
        """As a new leader: what was heard before stands in the database."""
        courses = self._database.read(lambda connection: rows.courses(connection, REMEMBERED))
        known = self._database.read(corrections.everything)
        with self._turn:
            self._loads, self._drift, self._trials = Loads(), Drift(), Trials()
            self._loads.restore(courses)
            self._drift.restore(map(from_row, known))

    def set_slos(self, declared: Sequence[DeclaredObject]) -> None:
        """The SLOs that answers are held against."""
        slos: dict[str, Any] = {
            f"{one.tenant}/{one.name}": one.spec["slo"] for one in declared if one.kind == "Service"
        }
        with self._turn:
            self._loads.set_slos(
                {name: float(slo["latencyMs"]) for name, slo in slos.items()},
                {name: float(slo["percentile"]) for name, slo in slos.items()},
            )

    def read_recent(self) -> dict[str, RecentLoad]:
        """Hear what was said since the last look; how every service does just now."""
        with self._turn:
            loads = self._loads
            readings = self._believed_of(loads.cursor)
            loads.take(readings)
            self._drift.take(readings, loads.shed_since)
            for heard in readings.reports:
                self._of_jobs += jobs_said(heard.word, heard.received_at)
                self._trials.take(heard.word)
            return {name: recent for name in loads.services if (recent := loads.recent(name)) is not None}

    def _believed_of(self, cursor: ReportCursor) -> ReportBatch:
        """What was said since, as far as nodes may speak of it."""
        try:
            told, readings = self._database.read(
                lambda connection: (observed.told(connection, self._believed.version), read_reports(connection, cursor))
            )
        except Unavailable:
            self._believed = TrustedInstances()  # versions may have gone back: it was restored, or is another one
            raise
        self._believed.take(told, readings.at)
        reports = [ReceivedReport(heard.received_at, self._believed.of(heard.word)) for heard in readings.reports]
        return replace(readings, reports=reports)

    def trials(self, wanted: Mapping[str, AssignedInstance]) -> Mapping[str, CopyTrial]:
        """How copies on trial have answered since they were first asked for here."""
        with self._turn:
            return self._trials.of(wanted)

    def take_job_readings(self) -> list[JobReading]:
        """What was said of jobs since the last time; each is given once."""
        with self._turn:
            said, self._of_jobs = self._of_jobs, []
        return said

    def learn(self, epoch: int, problem: Problem, applied: Mapping[str, Correction]) -> bool:
        """Hold what was heard against what profiles promise of what stands; whether a correction moved."""
        predicted = predict_running(problem, applied)
        now = self._database.read(clock.now)
        with self._turn:
            changed = self._drift.correct(now)
            self._drift.expects(predicted)
        return bool(changed) and record_corrections(self._database, epoch, changed, now)

    def store_buckets(self) -> None:
        """Store what is full; what the database does not take is offered again, while a leader would remember it."""
        with self._turn:
            full = [*self._unkept, *self._loads.full()]
            self._unkept = []
        if not full:
            return
        try:
            self._database.write(lambda connection: rows.keep(connection, full), repeatable=True)
        except Unavailable:
            oldest = max(one.at for one in full) - REMEMBERED
            self._unkept = [one for one in full if one.at > oldest]
            raise

    def expect(
        self, declared: Mapping[str, float], planned: Mapping[str, float], ahead: Mapping[str, float], now: datetime
    ) -> Mapping[str, ExpectedLoad]:
        """What each service will be asked."""
        with self._turn:
            return self._loads.expect(declared, planned, ahead, now)
