"""The campaign's own faults, besides those of the light fleet: disks, processes, memory, power, money and strangers."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import psycopg
from sqlalchemy import Connection, event, text

from agents.devices.simulated.refusals import CudaRefusal
from agents.host.clocks import boot_id
from agents.keeper.copies import Stage
from agents.runtime import Running, proc
from agents.runtime.process import ProcessRuntime
from app.control.planner import Planner
from app.store.database.database import Unavailable
from app.store.database.urls import libpq_url
from solvers.planning.plan import Plan
from tests.proofs.campaign.disk import PowerSafeDisk
from tests.proofs.campaign.gateway import CampaignGateway
from tests.proofs.campaign.node import CampaignNode
from tests.proofs.campaign.readers import PATHS, TenantReader
from tests.simulation.chaos import CUT_OFF, FAULTS, Chaos, NothingToHit

CAMPAIGN_FAULTS = (
    *FAULTS,
    "agent_killed_in_a_step",
    "handed_over",
    "handed_over_unacknowledged",
    "power_cut",
    "pid_reused",
    "memory_taken",
    "cap_lowered",
    "cut_off_with_a_new_instance",
    "plan_is_wrong",
    "commit_unanswered",
    "usage_altered",
    "tenant_reads",
)
RETRY_SECONDS = 1.0
MARKS = "CREATE TABLE campaign_mark (number int NOT NULL)"
MARK = text("INSERT INTO campaign_mark VALUES (:number)")
CLOSED = text("SELECT node, id FROM usage_interval WHERE ended_at IS NOT NULL ORDER BY closed_at DESC LIMIT 50")


@dataclass(frozen=True, slots=True)
class CampaignTools:
    """What faults need besides the simulation."""

    database_url: str
    folder: Path
    gateway: CampaignGateway
    disk: PowerSafeDisk
    tenant: str  # whose viewer reads
    foreign: Sequence[str]  # names that this viewer must never see


@dataclass
class CampaignFaults(Chaos):
    """Injects the faults of all kinds."""

    tools: CampaignTools = field(kw_only=True)
    marks: int = 0  # acknowledged writes
    strangers_killed: int = 0
    paused_leaders: int = 0
    foreign_reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        database = self.simulation.database
        database.write(lambda connection: connection.execute(text(MARKS)))
        self.reader = TenantReader(database, self.tools.database_url, self.tools.tenant)
        self._processes = ProcessRuntime(self.tools.folder / "processes")
        self._unanswered = ""
        event.listen(database.engine, "commit", self._on_commit)
        for node in self.nodes:
            node.cut = partial(self._cut_link, node)

    @property
    def nodes(self) -> list[CampaignNode]:
        nodes = [self.simulation.fleet.nodes[name] for name in sorted(self.simulation.fleet.nodes)]
        return [node for node in nodes if isinstance(node, CampaignNode)]

    def pick(self) -> CampaignNode:
        return self.rng.choice(self.nodes)

    def pick_serving(self) -> CampaignNode:
        """Returns a node with a copy of a service; plans leave whole nodes empty."""
        serving = [node for node in self.nodes if any(copy.served for copy in node.alive())]
        return self.rng.choice(serving or self.nodes)

    def mend(self) -> None:
        """Ends every fault, also those that wait for their moment."""
        super().mend()
        self.solver.spoil, self._unanswered, self.paused_leaders = None, "", 0
        for node in self.nodes:
            node.cut_at_the_next_instance, node.dies = False, ""
            node.failing.clear()

    # Faults that the light fleet has, too.

    def gateway_away(self) -> None:
        node = self.pick_serving()
        self.tools.gateway.away.add(node.name)
        self._later(5, 90, lambda: self.tools.gateway.away.discard(node.name))

    def gpu_lost(self) -> None:
        node = self.pick()
        gpu = self.rng.randrange(len(node.uuids))
        self._hit(copy for copy in node.alive() if copy.gpu == node.uuids[gpu])
        node.lose(gpu)
        self._later(20, 200, lambda: self._give_back(node, gpu))

    def _give_back(self, node: CampaignNode, gpu: int) -> None:
        self._hit(copy for copy in node.alive() if copy.gpu == node.uuids[gpu])
        node.give_back(gpu)

    def leader_paused(self) -> None:
        self.paused_leaders += 1
        super().leader_paused()

    def _resume(self, paused: Planner) -> None:
        """Resumes a paused leader, but not while the whole control plane is away."""
        if self.simulation.plans:
            self.paused_leaders -= 1
            super()._resume(paused)
        else:
            self._spells.append((self.simulation.clock.seconds + RETRY_SECONDS, partial(self._resume, paused)))

    # Faults of a node.

    def agent_killed_in_a_step(self) -> None:
        self.pick().dies = self.rng.choice(["before", "after"])

    def handed_over(self) -> None:
        """Changes the shape of an instance: no fault by itself, but every other may hit the hand-over."""
        self._hand_over(self.pick_serving())

    def _hand_over(self, node: CampaignNode) -> None:
        if not node.hand_over(self.rng.random()):
            raise NothingToHit

    def handed_over_unacknowledged(self) -> None:
        """Changes the shape of an instance while its node cannot reach the gateway: the new copy waits."""
        node = self.pick_serving()
        self._hand_over(node)
        self.tools.gateway.away.add(node.name)
        self._later(100, 200, lambda: self.tools.gateway.away.discard(node.name))  # until the new copy is warm

    def power_cut(self) -> None:
        node = self.pick()
        self._hit(node.alive())
        node.cut_power()

    def pid_reused(self) -> None:
        """Tells a real runtime to end a copy whose PID now belongs to a stranger."""
        with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
            found = proc.read_process(stranger.pid)
            assert found is not None
            earlier = Running("campaign.1.1", stranger.pid, found.start_ticks - 1, boot_id())
            self._processes.end(earlier, force=False)
            self._processes.tell(earlier, "SIGKILL")
            with contextlib.suppress(subprocess.TimeoutExpired):
                stranger.wait(0.05)
            self.strangers_killed += stranger.poll() is not None
            stranger.kill()

    def memory_taken(self) -> None:
        """Lets another user's process take most of the memory that a job's GPU has free."""
        jobs = [
            (node, node.uuids.index(copy.gpu))
            for node in self.nodes
            for copy in node.alive()
            if not copy.served and copy.stage is Stage.READY and node.uuids.index(copy.gpu) not in node.lost
        ]
        if not jobs:
            raise NothingToHit
        node, gpu = self.rng.choice(jobs)
        device = node.machine.slots[node.uuids[gpu]].gpu
        free_gib = device.kind.memory_gib - device.memory_used_gib
        if free_gib < 1.0:
            raise NothingToHit
        try:
            pid = node.hold_from_outside(gpu, free_gib - 0.25)
        except CudaRefusal:
            raise NothingToHit from None
        self._later(120, 400, lambda: node.machine.vacate(pid))

    def cap_lowered(self) -> None:
        """Caps a GPU below what it draws."""
        node = self.pick()
        gpu = self.rng.randrange(len(node.uuids))
        device = node.machine.slots[node.uuids[gpu]].gpu
        node.caps_w[gpu] = device.kind.idle_w + 0.6 * (device.power_mean_w - device.kind.idle_w)
        node.cap()
        self._later(200, 600, lambda: self._lift_cap(node, gpu))

    def _lift_cap(self, node: CampaignNode, gpu: int) -> None:
        node.caps_w.pop(gpu, None)
        node.cap()

    def cut_off_with_a_new_instance(self) -> None:
        """Cuts the link of the next node that gets a new instance; its first starts fail."""
        for node in self.nodes:
            node.cut_at_the_next_instance = True

    def _cut_link(self, node: CampaignNode) -> None:
        self.simulation.post.silence([node.name])
        self._hit(node.alive())

        def back() -> None:
            node.failing.clear()
            self.simulation.post.silence([node.name], "as usual")
            self._hit(node.alive())

        self._later(400, 600, back)

    # Faults of the control plane.

    def plan_is_wrong(self) -> None:
        self.solver.spoil = spoiled

    def commit_unanswered(self) -> None:
        """Cuts the connection at COMMIT, before or after Postgres does it, of a write that is then acknowledged."""
        self._unanswered = self.rng.choice(["before", "after"])
        number = self.marks + 1
        try:
            self.simulation.database.write(lambda c: c.execute(MARK, {"number": number}) and None)
        except Unavailable:
            return
        self.marks = number

    def _on_commit(self, connection: Connection) -> None:
        if not self._unanswered:
            return
        when, self._unanswered = self._unanswered, ""
        driver = connection.connection.dbapi_connection
        assert isinstance(driver, psycopg.Connection)
        pid = driver.info.backend_pid
        if when == "after":
            driver.commit()
            driver.execute("SELECT 1")  # psycopg sends no COMMIT outside a transaction
        with psycopg.connect(libpq_url(self.tools.database_url), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    def connections_cut(self) -> None:
        with contextlib.suppress(Unavailable), self.simulation.database.engine.connect() as connection:
            connection.execute(text(CUT_OFF))

    # Faults of people.

    def usage_altered(self) -> None:
        """Tries to rewrite and to delete a closed interval."""
        row = self.rng.choice(self.simulation.database.read(lambda c: list(c.execute(CLOSED))) or [None])
        if row is None:
            raise NothingToHit
        with psycopg.connect(libpq_url(self.tools.database_url), autocommit=True) as connection:
            for statement in (
                "UPDATE usage_interval SET ended_at = ended_at + interval '1 hour' WHERE node = %s AND id = %s",
                "DELETE FROM usage_interval WHERE node = %s AND id = %s",
            ):
                with contextlib.suppress(psycopg.Error):
                    connection.execute(statement.encode(), (row.node, row.id))

    def tenant_reads(self) -> None:
        path = self.rng.choice(PATHS)
        status, answer = self.reader.read(path)
        if status >= 500:
            self.foreign_reads.append(f"GET {path} answers {status}")
        self.foreign_reads += [f"GET {path} names {name}" for name in self.tools.foreign if name in answer]


def spoiled(plan: Plan) -> Plan:
    """Returns the plan with its busiest instance getting far too little of its GPU for its rate."""
    if not plan.instances:
        return plan
    busiest = max(plan.instances, key=lambda instance: instance.rate_per_second)
    wrong = replace(busiest, sm_percent=5)
    return replace(plan, instances=tuple(wrong if known is busiest else known for known in plan.instances))
