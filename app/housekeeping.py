"""The scheduled work of a server: it rolls minutes up, deletes old data and marks silent nodes.

Every replica runs these jobs; a job does nothing while another replica runs it or after one has done it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from app.campaigns import ending as ending_campaigns
from app.clockwork import Clockwork
from app.context import Context
from app.ledger import ending, keeping
from app.nodes import device_status, expansion, metrics, reporting_condition
from app.nodes.pace import WorkPace
from app.store.access import join_tokens, rotation, sessions, tokens
from app.store.database import clock, partitions, turns, versions
from app.store.database.database import Unavailable
from app.store.fleet import campaigns, fleet_minutes, gateways, loads, node_state, refusals, service_hours
from app.store.money import packed_minutes, quarantine, retention, rollups
from app.store.world import audit, change_counts, changes, events, idempotency, webhooks

ROLLUP_RETENTION = timedelta(days=400)
DAYS_AHEAD = 2
NODES_AT_ONCE = 20
SERVICES_AT_ONCE = 20
LOADS_AT_ONCE = 100  # services, each with up to 360 rows of an hour
PRUNED_AT_ONCE = 5000
MOST_ALONE = 500  # nodes, after one of several has failed
EVENT_DAYS = 30.0
CAMPAIGN_AGE = timedelta(days=400)

log = logging.getLogger(__name__)


class Housekeeping:
    """The scheduled jobs of a server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._database = context.reserved
        self._pace = WorkPace()
        self._scheduler = Clockwork(3)

    def start(self) -> None:
        now = datetime.now(UTC)
        jobs: list[tuple[Callable[[], None], float, float]] = [
            (self.make_partitions, 0, 3600),
            (self.expand_minutes, 5, 10),
            (self.mark_silent_nodes, 10, 10),
            (self.note_devices, 10, 10),
            (self.refresh_tokens, 10, 10),
            (self.guard_campaigns, 5, 5),
            (self.note_token_use, 20, 30),
            (self.roll_up_hours, 60, 300),
            (self.roll_up_loads, 75, 300),
            (self.account, 30, 60),
            (self.end_usage, 90, 60),
            (self.prune, 120, 600),
            (self.pack_minutes, 240, 3600),
            (self.drop_old_partitions, 180, 3600),
        ]
        for job, first_seconds, every_seconds in jobs:
            self._scheduler.add_job(
                self._guard(job),
                "interval",
                seconds=every_seconds,
                next_run_time=now + timedelta(seconds=first_seconds),
                id=job.__name__,
            )
        self._scheduler.start()

    def stop(self) -> None:
        """Waits for the running jobs, which end after their current portion."""
        self._pace.stop()
        self._scheduler.shutdown(wait=True)

    def make_partitions(self) -> None:
        self._database.write(_make_partitions)

    def expand_minutes(self) -> None:
        expansion.expand_finished(self._database, self._pace)

    def mark_silent_nodes(self) -> None:
        since = self._context.nodes.intake.stored_since
        if since is None:
            return
        self._repeat(_turn("mark_silent_nodes", lambda c: reporting_condition.update_reporting(c, since)))

    def note_devices(self) -> None:
        """Notes the devices of nodes together; if that fails, of each alone, so that a faulty node stops no other."""
        try:
            self._repeat(_turn("note_devices", device_status.update_device_statuses))
        except Unavailable:
            raise
        except Exception:
            waiting = self._database.read(lambda c: node_state.device_changes(c, MOST_ALONE))
            for at in self._pace.portions(range(len(waiting))):
                node = waiting[at].node
                self._alone("note_devices", node, partial(device_status.update_device_statuses, only=node))

    def refresh_tokens(self) -> None:
        self._context.authenticator.refresh()

    def guard_campaigns(self) -> None:
        """Stops profiling campaigns beside which a service suffers."""
        if self._database.read(campaigns.live_by_node):
            self._database.write(_turn("guard_campaigns", ending_campaigns.stop_harmful))

    def note_token_use(self) -> None:
        used = self._context.authenticator.used()
        if used:
            self._database.write(lambda connection: tokens.touch(connection, used))

    def roll_up_hours(self) -> None:
        for pending in self._database.read(rollups.pending_hours):
            self._roll_up(pending)
            if self._pace.stopped:
                return  # the hour is not complete, and stays pending
            self._database.write(partial(rollups.mark_done, pending=pending))

    def roll_up_loads(self) -> None:
        """Makes one row of each past hour of a service's load, and deletes hours that no window reaches."""
        self._repeat(_turn("roll_up_loads", lambda c: loads.roll_up(c, LOADS_AT_ONCE)))
        self._repeat(_turn("forget_loads", lambda c: loads.forget(c, PRUNED_AT_ONCE)))

    def _roll_up(self, pending: rollups.PendingHour) -> None:
        """Rolls up a few nodes at a time, then services. Two replicas at the same hour write the same rows in turn."""
        hour, names = pending.hour, self._database.read(partial(rollups.nodes, pending=pending))
        for at in self._pace.portions(range(0, len(names), NODES_AT_ONCE)):
            self._roll_up_nodes(hour, names[at : at + NODES_AT_ONCE])
        services = self._database.read(partial(service_hours.services, hour=hour, nodes=names))
        for at in self._pace.portions(range(0, len(services), SERVICES_AT_ONCE)):
            part = services[at : at + SERVICES_AT_ONCE]
            self._database.write(partial(service_hours.roll_up, hour=hour, some=part))

    def _roll_up_nodes(self, hour: datetime, names: Sequence[str]) -> None:
        """Rolls nodes up together; if that fails, each alone, so that a faulty node stops no other."""
        try:
            self._database.write(partial(rollups.roll_up, hour=hour, names=names))
        except Unavailable:
            raise
        except Exception:
            for name in names:
                self._alone("roll_up_hours", name, partial(rollups.roll_up, hour=hour, names=[name]))

    def account(self) -> None:
        """Divides the cost of all time that is final among those that used it."""
        keeping.bring_up_to_date(self._database, self._pace)
        metrics.QUARANTINED.set(self._database.read(quarantine.count))

    def end_usage(self) -> None:
        """Ends usage that no agent will end; a node for which that fails is counted, and the others go on."""
        for _ in ending.end_usage(self._database, self._pace):
            metrics.HOUSEKEEPING_FAILED.labels("end_usage").inc()

    def prune(self) -> None:
        settings = self._context.settings
        self._database.write(node_state.forget_deleted)
        self._database.write(gateways.forget)
        self._repeat(lambda c: rotation.forget(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: sessions.forget(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: webhooks.tidy(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: tokens.forget(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: join_tokens.forget(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: audit.forget(c, settings.audit_retention_days * 86400, PRUNED_AT_ONCE))
        self._repeat(lambda c: refusals.forget(c, PRUNED_AT_ONCE))
        self._repeat(lambda c: events.prune(c, EVENT_DAYS, PRUNED_AT_ONCE))
        self._repeat(lambda c: idempotency.prune(c, settings.idempotency_hours * 3600, PRUNED_AT_ONCE) > 0)
        self._database.write(change_counts.forget)
        self._repeat(lambda c: fleet_minutes.forget(c, PRUNED_AT_ONCE))
        self._database.write(lambda c: campaigns.forget(c, CAMPAIGN_AGE))
        self._repeat(lambda c: _prune_changes(c, settings.change_retention_hours * 3600))

    def pack_minutes(self) -> None:
        """Makes one row an hour of the minutes of past days, and then drops the minutes."""
        for day in self._database.read(lambda c: packed_minutes.due_days(c, clock.now(c))):
            for hour in packed_minutes.hours_of(day):
                names = self._database.read(partial(rollups.nodes, pending=rollups.PendingHour(hour, hour)))
                for at in self._pace.portions(range(0, len(names), NODES_AT_ONCE)):
                    some = partial(packed_minutes.pack, hour=hour, nodes=names[at : at + NODES_AT_ONCE])
                    self._database.write(_turn("pack_minutes", some))
            if not self._database.write(partial(packed_minutes.drop, day=day)):
                return  # this server stops, or another one is at it

    def drop_old_partitions(self) -> None:
        days = self._context.settings.telemetry_retention_days
        self._database.write(lambda connection: _drop_old(connection, timedelta(days=days)))
        self._repeat(_turn("forget_usage", lambda c: retention.forget_usage(c, PRUNED_AT_ONCE)))
        oldest = timedelta(days=self._context.settings.cost_retention_days)
        self._database.write(lambda c: retention.forget_costs(c, clock.now(c) - oldest))

    def _repeat(self, portion: Callable[[Connection], int]) -> None:
        """Runs portion after portion, each in its own transaction, until nothing is left."""
        for _ in self._pace.portions():
            if not self._database.write(portion):
                return

    def _alone(self, job: str, node: str, act: Callable[[Connection], object]) -> None:
        """Does a single node's part of a job that failed for several; counts its failure."""
        try:
            self._database.write(act)
        except Unavailable:
            raise
        except Exception:
            metrics.HOUSEKEEPING_FAILED.labels(job).inc()
            log.exception("housekeeping_failed_for_a_node", extra={"job": job, "node": node})

    def _guard(self, job: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                job()
            except Unavailable as error:
                log.warning("housekeeping_waits", extra={"job": job.__name__, "error": str(error)})
            except Exception:
                metrics.HOUSEKEEPING_FAILED.labels(job.__name__).inc()
                log.exception("housekeeping_failed", extra={"job": job.__name__})

        return run


def _turn(job: str, act: Callable[[Connection], int]) -> Callable[[Connection], int]:
    """Runs `act` unless another replica does; returns how much was done."""

    def run(connection: Connection) -> int:
        return act(connection) if turns.take(connection, job) else 0

    return run


def _make_partitions(connection: Connection) -> None:
    today = clock.now(connection)
    made = partitions.ensure(connection, [today + timedelta(days=n) for n in range(-1, DAYS_AHEAD + 1)])
    if made:
        log.info("partitions_made", extra={"partitions": made})


def _drop_old(connection: Connection, telemetry_age: timedelta) -> None:
    now = clock.now(connection)
    dropped = partitions.drop_before(connection, partitions.DAILY, now - telemetry_age)
    packed_minutes.forget(connection, now - telemetry_age)
    rollups_ = (*partitions.MONTHLY, *partitions.MONEY)
    dropped += partitions.drop_before(connection, rollups_, now - ROLLUP_RETENTION)
    service_hours.forget(connection, now - ROLLUP_RETENTION)
    rollups.forget(connection, now - ROLLUP_RETENTION)
    retention.forget_savings(connection, now - ROLLUP_RETENTION)
    if dropped:
        log.info("partitions_dropped", extra={"partitions": dropped})


def _prune_changes(connection: Connection, seconds: float) -> bool:
    highest = changes.prune(connection, seconds, PRUNED_AT_ONCE)
    if highest is not None:
        versions.raise_floor(connection, "object", highest)
    return highest is not None
