"""Remembers the last announcement, and finds the events that lie between it and the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.control.decide.cordons import Drain, progress
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import Snapshot
from app.control.tell.announcement import Announcement
from app.control.tell.slo import SloStatus
from app.control.tell.transitions import find_burn_events, find_drain_events, find_fleet_events, find_gateway_events
from app.store.fleet import cordons
from app.store.fleet.announced import Announced
from solvers.planning.plan import Releasable


@dataclass(slots=True)
class AnnouncedHistory:
    """The fleet as it was last announced."""

    _snapshot: Snapshot | None = None
    _silence: Mapping[str, float] = field(default_factory=dict)  # by gateway
    _slos: Mapping[str, SloStatus] = field(default_factory=dict)  # by service
    _releasable: frozenset[str] = frozenset()  # nodes
    _drains: tuple[Drain, ...] | None = None

    def find_events(self, announced: Announcement, free: Sequence[Releasable]) -> list[NewEvent]:
        """Returns what has happened since the last announcement."""
        snapshot, rent = announced.outcome.snapshot, announced.rent
        found = [_releasable_event(node) for node in free if node.node not in self._releasable]
        if self._snapshot is None:
            found.append(
                event_of(
                    Reason.LEADER_CHANGED, f"a planner began to lead, under epoch {announced.epoch}", kind="Planner"
                )
            )
        else:
            found += find_fleet_events(self._snapshot, snapshot)
            found += find_gateway_events(self._silence, announced.before.silence)
        found += find_burn_events(self._slos, announced.slos)
        found += self._find_drain_events(announced.before, snapshot)
        if rent and rent.gpus:
            found.append(event_of(Reason.RENT_MORE, rent.words, kind="Plan"))
        return found

    def remember(self, announced: Announcement, free: Sequence[Releasable]) -> None:
        """Takes the announcement as the last one, once it is written."""
        self._snapshot = announced.outcome.snapshot
        self._silence, self._slos = announced.before.silence, announced.slos
        self._releasable = frozenset(node.node for node in free)

    def _find_drain_events(self, known: Announced, snapshot: Snapshot) -> list[NewEvent]:
        """Returns drains that are done, once the plan runs, or late; a new leader reports none at first."""
        if known.plan_state is None:
            return []
        drained = [cordon for cordon in known.cordons if cordon.mode in cordons.EMPTYING]
        is_rolling = known.plan_state in ("rolling", "paused")
        now = progress(drained, snapshot.in_force, snapshot.at, is_rolling=is_rolling)
        # A drain that was done stays done during later rollouts.
        done = {drain.cordon: drain for drain in self._drains or () if drain.is_done} if is_rolling else {}
        before, self._drains = self._drains, tuple(done.get(drain.cordon, drain) for drain in now)
        return [] if before is None else find_drain_events(before, self._drains)


def _releasable_event(node: Releasable) -> NewEvent:
    text = f"the node has been empty for a while; giving it back saves {node.price_per_hour:g} an hour"
    return event_of(Reason.RELEASABLE, text, kind="Node", name=node.node)
