"""Checks I1 to I9 on the campaign's fleet after every tick, in plain code of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from agents.contract.assignments import AssignedInstance
from agents.control.contact import CONTACT_SECONDS
from agents.keeper.copies import Stage
from app.control.domain.desired import NodeDesired
from tests.proofs.campaign.node import CampaignNode
from tests.proofs.campaign.people import PeopleFaults
from tests.proofs.campaign.states import find_states, possible_pairs
from tests.simulation.chaos import MOST_SM_PERCENT, STRUCK_SECONDS

PREFERENCE = 8  # for each state in which a fault has not struck yet
BOOKS_SECONDS = 15.0  # between two looks at the tables
OVER_CAP_TICKS = 6  # in a row, of a second each: the law's period, its measurement, and a jump of the load
SHORT_TICKS = 25  # in a row, until a job has made room: the guard's patience, and the time to save and end
POWER_TOLERANCE_W = 2.0
MEMORY_TOLERANCE_GIB = 0.01

MARKED = text("SELECT number, count(*) AS times FROM campaign_mark GROUP BY number")
BOOKS = text("SELECT node, id, started_at, ended_at, sm_percent FROM usage_interval WHERE ended_at IS NOT NULL")


@dataclass
class Campaign(PeopleFaults):
    """The fleet under faults, and the checks of what must never happen there."""

    _over_cap: Counter[tuple[str, int]] = field(default_factory=Counter)  # by node and GPU: ticks in a row
    _short: Counter[tuple[str, int]] = field(default_factory=Counter)
    _carried: dict[str, bool] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)  # copies whose start was looked at
    _books: dict[tuple[str, str], Any] = field(default_factory=dict)
    _books_at: float = 0.0
    checks: int = 0
    preference: int = PREFERENCE
    pairs: set[tuple[str, str]] = field(default_factory=set)  # of a state and a fault that struck there

    def strike(self, name: str | None = None) -> str:
        """Injects one fault; one that has not struck in the present states yet is drawn more often."""
        present = find_states(self)
        if name is None:
            kinds = Counter(sorted(self.faults))
            new = Counter(kind for state, kind in self._possible - self.pairs if state in present)
            weights = [times * (1 + self.preference * new[kind]) for kind, times in kinds.items()]
            name = self.rng.choices(list(kinds), weights)[0]
        struck = super().strike(name)
        if self.has_hit:
            self.pairs |= {(state, struck) for state in present} & self._possible
        return struck

    def __post_init__(self) -> None:
        super().__post_init__()
        self._possible = possible_pairs(set(self.faults))

    def look(self) -> None:
        self.checks += 1
        for node in self.nodes:
            self._never_goes_back(node)
            self._intent_is_durable(node)
            self._starts_nothing_alone(node)
            self._fits(node)
            self._assignment_fits(node)
            for gpu in range(len(node.uuids)):
                if gpu not in node.lost:
                    self._keeps_its_cap(node, gpu)
                    self._has_memory_for_all(node, gpu)
        last = self.simulation.last
        if last is not None and last.decision is not None and last.generation:
            for name, desired in last.decision.desired.items():
                self._shares_fit(f"plan {last.generation}, {name},", desired.instances)
                self._carry_their_rates(last.generation, name, desired)
        self._runs_once()
        self._is_carried()
        self._strangers()
        self.look_at_devices()
        self.look_at_what_runs()
        if self.simulation.clock.seconds >= self._books_at:
            self._books_at = self.simulation.clock.seconds + BOOKS_SECONDS
            self.look_at_books()

    def at_the_end(self) -> None:
        super().at_the_end()
        self.look_at_books()

    def look_at_books(self) -> None:
        """Checks what the database holds: acknowledged writes once each, and closed usage as it was."""
        database = self.simulation.database
        times = {row.number: row.times for row in database.read(lambda c: list(c.execute(MARKED)))}
        for number in range(1, self.marks + 1):
            if times.get(number) != 1:
                self._violated("I5", f"the acknowledged write {number} is there {times.get(number, 0)} times")
        rows = {(row.node, row.id): row for row in database.read(lambda c: list(c.execute(BOOKS)))}
        for key, row in self._books.items():
            if rows.get(key) != row:
                self._violated("I7", f"closed usage {key} changed from {row} to {rows.get(key)}")
        self._books = rows

    def _intent_is_durable(self, node: CampaignNode) -> None:
        while node.unrecorded:
            self._violated("I2", f"{node.unrecorded.pop()} was started on {node.name} before its intent was durable")

    def _starts_nothing_alone(self, node: CampaignNode) -> None:
        alone = self.simulation.clock.seconds - node.linked_at > CONTACT_SECONDS + 2
        for copy in node.alive():
            if copy.running is None or copy.id in self._checked:
                continue
            self._checked.add(copy.id)
            if alone and copy.instance not in node.ready_here:
                self._violated("I4", f"{copy.instance} was started on {node.name}, which has lost contact")
        node.ready_here |= {copy.instance for copy in node.alive() if copy.stage is Stage.READY}

    def _runs_once(self) -> None:
        places: dict[str, set[str]] = {}
        for node in self.nodes:
            for copy in node.alive():
                places.setdefault(copy.instance, set()).add(node.name)
        for instance, names in places.items():
            if len(names) > 1:
                self._violated("I1", f"{instance} runs on {sorted(names)}")

    def _is_carried(self) -> None:
        """A service keeps a copy that the gateway routes to and that answers, unless a fault took its copies."""
        now = self.simulation.clock.seconds
        carried = {
            route.service
            for node in self.nodes
            for route in self.tools.gateway.routes.get(node.name, ())
            if not route.drained and node.answers(route.copy)
        }
        for service in self.simulation.fleet.declared:
            is_hit = now - self._hit_at.get(service, -1e9) <= STRUCK_SECONDS
            if service not in carried and self._carried.get(service) and not is_hit:
                self._violated("I3", f"{service} lost its last routed copy, and no fault explains it")
            self._carried[service] = service in carried

    def _assignment_fits(self, node: CampaignNode) -> None:
        self._shares_fit(node.name, node.memory.assignment.instances if node.memory.assignment else ())

    def _shares_fit(self, where: str, instances: Iterable[AssignedInstance]) -> None:
        totals: dict[int, float] = {}
        for instance in instances:
            totals[instance.gpu] = totals.get(instance.gpu, 0.0) + instance.sm_percent
        for gpu, total in totals.items():
            if total > MOST_SM_PERCENT:
                self._violated("I6", f"{where} gives away {total:g} % of GPU {gpu}")

    def _carry_their_rates(self, generation: int, name: str, desired: NodeDesired) -> None:
        """Every instance of a plan can answer what it is assigned, alone on its GPU at the highest clock."""
        node = self.simulation.fleet.nodes[name]
        for instance in desired.instances:
            if not instance.service or instance.batch is None:
                continue
            key = (instance.model, instance.variant, node.gpu_type)
            top_mhz = node.truth.kind(node.gpu_type).top_clock_mhz
            exec_ms = node.truth.exec_ms(key, instance.batch.max, instance.sm_percent, [], top_mhz)
            most = 1000 * instance.batch.max / exec_ms
            if instance.rate_per_second > most * 1.001:
                what = f"{instance.id} {instance.rate_per_second:.0f} requests a second, and it can do {most:.0f}"
                self._violated("plan", f"plan {generation} assigns {what}")

    def _keeps_its_cap(self, node: CampaignNode, gpu: int) -> None:
        cap_w = node.caps_w.get(gpu)
        drawn_w = node.machine.slots[node.uuids[gpu]].gpu.power_mean_w
        is_over = cap_w is not None and drawn_w > cap_w + POWER_TOLERANCE_W
        self._over_cap[node.name, gpu] = self._over_cap[node.name, gpu] + 1 if is_over else 0
        if self._over_cap[node.name, gpu] > OVER_CAP_TICKS:
            self._violated("I6", f"GPU {gpu} of {node.name} draws {drawn_w:.0f} W above its cap of {cap_w:.0f} W")

    def _has_memory_for_all(self, node: CampaignNode, gpu: int) -> None:
        """While a job could make room, every process can grow to its limit next to the memory of other users."""
        copies = [copy for copy in node.alive() if copy.gpu == node.uuids[gpu] and copy.running is not None]
        device = node.machine.slots[node.uuids[gpu]].gpu
        strangers_gib = sum(context.memory_gib for context in device.contexts if not context.under_mps)
        limits_gib = sum(copy.wanted.memory_gib for copy in copies)
        can_make_room = any(not copy.served and copy.stage is Stage.READY for copy in copies)
        is_short = can_make_room and limits_gib + strangers_gib > device.kind.memory_gib + MEMORY_TOLERANCE_GIB
        self._short[node.name, gpu] = self._short[node.name, gpu] + 1 if is_short else 0
        if self._short[node.name, gpu] > SHORT_TICKS:
            self._violated("I6", f"GPU {gpu} of {node.name} has no memory for all, and its job does not make room")

    def _strangers(self) -> None:
        if self.strangers_killed:
            self._violated("I2", "a stranger's process was ended under a PID that was reused")
            self.strangers_killed = 0
        for read in self.foreign_reads:
            self._violated("I5", read)
        self.foreign_reads.clear()
