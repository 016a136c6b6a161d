"""A ledger on a real database, in a time that a test sets: nodes are declared, agents report, housekeeping passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import text

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.reports import Copy, Dropped, GpuMinute, Inventory, Report, UsageInterval
from app.access import Principal, Scope
from app.ledger import ending, keeping
from app.manifests.model import Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.nodes.intake import Intake
from app.nodes.pace import WorkPace
from app.store.database.database import Database
from app.store.fleet import assignments
from app.world.declare import declare, delete
from app.world.write import Actor
from tests.support.world import gpu_type, manifest

ADMIN = Actor(Principal("test", Scope.ADMIN), "test")


@dataclass
class Ledger:
    """The control plane's store at `now`, as its replicas use it."""

    database: Database
    intake: Intake
    now: datetime
    sequence: int = 0
    generation: int = 0
    assigned: dict[str, dict[str, UsageInterval]] = field(default_factory=dict)  # by node and instance
    pace: WorkPace = field(default_factory=lambda: WorkPace(0))

    def declare(self, *documents: Mapping[str, Any]) -> None:
        read = [Document("test", dict(one)) for one in documents]
        manifests, faults = validate(read, default_tenant="default", offline=False)
        assert not faults, faults
        self.database.write(lambda connection: declare(connection, ADMIN, manifests))

    def node(self, name: str, gpus: int = 1, kind: str = "v100-16gb", **spec: Any) -> None:
        known = {"gpuType": kind, "gpus": gpus, "cpuCores": 8, "memoryGib": 64}
        self.declare(manifest("Node", name, known | spec))

    def gpu_type(self, price: float, name: str = "v100-16gb", **spec: Any) -> None:
        self.declare(gpu_type(name, pricePerHour=price, **spec))

    def delete_node(self, name: str) -> None:
        self.database.write(lambda connection: delete(connection, ADMIN, Key(Kind.NODE, "", name), force=True))

    def report(
        self, node: str, *usage: UsageInterval, copies: Sequence[Copy] = (), energy_mj: int | None = None
    ) -> None:
        """A report whose usage was assigned from when it began on."""
        for one in usage:
            self.assign(node, one)
        self.claim(node, *usage, copies=copies, energy_mj=energy_mj)

    def assign(self, node: str, *wanted: UsageInterval) -> None:
        """The node is told to run these as well, from when they begin on."""
        known = self.assigned.setdefault(node, {})
        fresh = {one.instance: one for one in wanted if one.instance not in known}
        if fresh:
            self.tell(node, list((known | fresh).values()), min(one.started_at for one in fresh.values()))

    def tell(self, node: str, wanted: Sequence[UsageInterval], at: datetime) -> None:
        """The node is told at this moment to run these and nothing else."""
        self.assigned[node] = {one.instance: one for one in wanted}
        self.generation += 1
        instances = tuple(
            AssignedInstance(
                one.instance, one.gpu, one.tenant, one.service, one.job, sm_percent=one.sm_percent,
                memory_gib=one.memory_gib, dedicated=one.dedicated,
            )
            for one in wanted
        )  # fmt: skip

        def body(version: int) -> str:
            return msgspec.json.encode(Assignment(node, version, 1, self.generation, instances=instances)).decode()

        draft = assignments.AssignmentDraft(node, self.generation, body)
        now, self.now = self.now, at
        assert self.database.write(lambda connection: assignments.write(connection, 1, [draft]))
        self.now = now

    def claim(
        self, node: str, *usage: UsageInterval, copies: Sequence[Copy] = (), energy_mj: int | None = None
    ) -> Sequence[Dropped]:
        """A report, whatever was assigned; what of it was not kept as said."""
        self.sequence += 1
        gpus = () if energy_mj is None else (GpuMinute(index=0, energy_counter_mj=energy_mj),)
        minute = self.now.replace(second=0, microsecond=0)
        told = Report(
            node=node, incarnation=1, sequence=self.sequence, at=self.now, minute=minute, usage=usage,
            copies=tuple(copies), inventory=Inventory(), gpus=gpus,
        )  # fmt: skip
        (stored,) = self.intake.keep([told], [b"{}"])
        return stored.dropped

    def late_report(self, node: str, *told: UsageInterval) -> None:
        """One that was overtaken by others."""
        minute = self.now.replace(second=0, microsecond=0)
        self.intake.keep(
            [Report(node=node, incarnation=0, sequence=0, at=self.now, minute=minute, usage=told)], [b"{}"]
        )

    def account(self, times: int = 1) -> None:
        for _ in range(times):
            keeping.bring_up_to_date(self.database, self.pace)

    def end_usage(self) -> Sequence[str]:
        return ending.end_usage(self.database, self.pace)

    def run(self, sql: str, **given: Any) -> None:
        self.database.write(lambda connection: connection.execute(text(sql), given))

    def rows(self, sql: str, **given: Any) -> list[Any]:
        return self.database.read(lambda connection: list(connection.execute(text(sql), given)))

    def passes(self, time: timedelta) -> None:
        self.now += time


@contextmanager
def ledger(url: str, now: datetime) -> Iterator[Ledger]:
    made: Ledger
    database = Database(url, pool_size=3, direct=True, moment=lambda: made.now)
    made = Ledger(database, Intake(database, timedelta(days=7)), now)
    yield made
    database.close()


def usage(
    name: str, start: datetime, stop: datetime | None = None, *, gpu: int = 0, sm: float = 50.0, memory: float = 2.0,
    tenant: str = "shop", service: str = "search", dedicated: bool = False,
) -> UsageInterval:  # fmt: skip
    return UsageInterval(
        id=name, instance=f"i-{name}", gpu=gpu, started_at=start, ended_at=stop, tenant=tenant, service=service,
        sm_percent=sm, memory_gib=memory, dedicated=dedicated, model="resnet50", evidence="observed",
    )  # fmt: skip
