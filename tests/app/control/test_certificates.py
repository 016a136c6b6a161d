"""A plan that only follows rates has the bound of the search whose plan moved too much."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from app.control.cycle import CycleBudget
from app.control.decide import choosing, least_change
from app.control.decide.last_question import LastQuestion
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.events import NewEvent
from app.control.domain.snapshot import Snapshot
from app.control.observe.observer import ExpectLoads
from app.control.record.planner_store import PlannerStore
from app.control.solve.inline import Inline
from tests.app.control.cycles import one_cycle
from tests.proofs.replays import begun, changed

WITHOUT_GPUS = 8  # a seed: all of them have failed


class OneMoment(PlannerStore):
    """One snapshot, and what is recorded from it; without a database."""

    def __init__(self, moment: Snapshot) -> None:
        self.moment_read = moment
        self.decisions: list[Decision] = []
        self.snapshots: list[Snapshot] = []  # that these were recorded with

    def snapshot(self, expecting: ExpectLoads) -> Snapshot:
        return self.moment_read

    def record(
        self, snapshot: Snapshot, decisions: Sequence[Decision], new_events: Sequence[NewEvent] = ()
    ) -> tuple[int, ...]:
        self.decisions += decisions
        self.snapshots += [snapshot] * len(decisions)
        return tuple(range(2, 2 + len(decisions)))

    def note(
        self, outcome: SolveOutcome, reason: str, message: str, snapshot: Snapshot | None,
        new_events: Sequence[NewEvent] = (),
    ) -> None:  # fmt: skip
        """Notes nothing."""


@pytest.mark.slow
def test_a_plan_that_follows_rates_has_the_bound_of_the_search_of_its_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((least_change, "FEW_HANDOVERS"), (least_change, "MOST_SHARE"), (choosing, "MOST_HANDOVERS")):
        monkeypatch.setattr(module, limit, -1)  # any whole plan moves too much, so the planner only follows rates
    followed = 0
    for seed in (0, 1, 2, 3, WITHOUT_GPUS):
        store = OneMoment(changed(begun(seed), Random(seed)))
        result = one_cycle(store, Inline(), lambda known: {}, LastQuestion(), CycleBudget(work=2))
        for decision in store.decisions:
            certificate = decision.plan.certificate
            if not decision.answer.is_least_change or certificate is None:
                continue
            assert (result.kept_bound is None) == (seed == WITHOUT_GPUS)
            assert (certificate.bound_age_seconds, certificate.no_bound_reason) == (0.0, "")
            assert certificate.bound is not None
            assert certificate.bound <= certificate.cost.total
            followed += 1
    assert followed >= 3
