"""A ledger on a real database, in a time that a test sets: nodes are declared, agents report, housekeeping passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text

from agents.contract import Copy, GpuMinute, Inventory, Report, UsageInterval
from app.access import Principal, Scope
from app.ledger import keeping
from app.manifests.model import Key, Kind
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.nodes.intake import Intake
from app.nodes.pace import Pace
from app.store import closing
from app.store.database import Database
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
    pace: Pace = field(default_factory=lambda: Pace(0))

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
        self.database.write(lambda connection: delete(connection, ADMIN, Key(Kind.NODE, "", name)))

    def report(
        self, node: str, *usage: UsageInterval, copies: Sequence[Copy] = (), energy_mj: int | None = None
    ) -> None:
        self.sequence += 1
        gpus = () if energy_mj is None else (GpuMinute(index=0, energy_counter_mj=energy_mj),)
        minute = self.now.replace(second=0, microsecond=0)
        told = Report(
            node=node, incarnation=1, sequence=self.sequence, at=self.now, minute=minute, usage=usage,
            copies=tuple(copies), inventory=Inventory(), gpus=gpus,
        )  # fmt: skip
        self.intake.keep([told], [b"{}"])

    def late_report(self, node: str, *told: UsageInterval) -> None:
        """One that was overtaken by others."""
        minute = self.now.replace(second=0, microsecond=0)
        self.intake.keep(
            [Report(node=node, incarnation=0, sequence=0, at=self.now, minute=minute, usage=told)], [b"{}"]
        )

    def account(self, times: int = 1) -> None:
        for _ in range(times):
            keeping.bring_up_to_date(self.database, self.pace)

    def end_usage(self) -> None:
        self.database.write(lambda c: closing.end_lost(c, 1000))
        self.database.write(closing.settle_missing)

    def run(self, sql: str, **given: Any) -> None:
        self.database.write(lambda connection: connection.execute(text(sql), given))

    def rows(self, sql: str, **given: Any) -> list[Any]:
        return self.database.read(lambda connection: list(connection.execute(text(sql), given)))

    def passes(self, time: timedelta) -> None:
        self.now += time


@contextmanager
def ledger(url: str, now: datetime) -> Iterator[Ledger]:
    made: Ledger
    database = Database(url, pool_size=2, direct=True, moment=lambda: made.now)
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
