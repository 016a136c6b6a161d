"""Postgres as a scaler uses it, at a time that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime

from app.manifests.words import Mode
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import scale_plans
from app.store.plans.scale_rows import ScaleDraft, ScalePlan, ScaleRow, ScaleState, ScaleTarget

BEGAN = datetime(2026, 6, 1, tzinfo=UTC)


class ScalerStore:
    """Postgres as a scaler uses it, at a time that the test sets."""

    def __init__(self, url: str, is_simulated: bool = True) -> None:
        self.now = BEGAN
        self.database = Database(url, direct=True, moment=(lambda: self.now) if is_simulated else None)

    def lead(self, holder: str) -> int:
        epoch = self.database.write(lambda c: lease.take(c, holder, 10.0, lease.SCALER))
        assert epoch
        return epoch

    def record(self, epoch: int, *drafts: ScaleDraft) -> ScalePlan:
        found = self.database.write(lambda c: scale_plans.record(c, epoch, drafts))
        assert found
        return found

    def begin(self, epoch: int, row: ScaleRow, version: str = "7") -> bool:
        return self.database.write(lambda c: scale_plans.begin_write(c, epoch, row, version))

    def settle(
        self, epoch: int, row: ScaleRow, state: ScaleState, outcome: str = "", asked_seconds: float = 0.0
    ) -> bool | None:
        return self.database.write(lambda c: scale_plans.settle(c, epoch, row, state, outcome, asked_seconds))

    def decide(self, row: ScaleRow, state: ScaleState) -> bool:
        return self.database.write(lambda c: scale_plans.decide(c, row, state, "ines"))

    def expire(self) -> None:
        """Lets the lease run out, as that of a scaler that was killed."""
        self.database.write(lambda c: lease.release(c, "dead", lease.SCALER))

    def read(self, generation: int | None = None) -> ScalePlan:
        found = self.database.read(lambda c: scale_plans.read_plan(c, generation))
        assert found
        return found


def draft(
    wanted: int | None, replicas: int = 4, mode: Mode = "auto", name: str = "ranker", hold: str = ""
) -> ScaleDraft:
    return ScaleDraft(ScaleTarget("shop", "Deployment", name), name, mode, replicas, wanted, "its load", hold)
