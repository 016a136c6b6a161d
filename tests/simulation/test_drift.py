"""Profiles that promise too much: services miss their SLOs until measurements have corrected them, for good."""

from __future__ import annotations

import pytest

from app.control.formulate.formulate import formulate
from app.control.formulate.pose import mean_profiles
from app.manifests.drafts import find_q90_factor
from app.store.plans import corrections
from app.store.world.events import EventFilter, recent
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.shapes import steady
from simulation.world import read_documents, truth_of
from solvers.planning.judge.readings import value_at
from tests.simulation.worlds import all_noisy, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

TRUTH = 1.15
LEARNT_SECONDS = 780.0  # by then it is corrected, and the corrected plan is rolled out


def read_correcting(fleet: Simulation) -> list[corrections.CorrectionRow]:
    """Returns the stored rows that correct something; what was learned of a true profile is stored too."""
    rows = fleet.database.read(corrections.read_all)
    return [
        row for row in rows if row.latency or {row.sensitivity_factor, row.memory_factor, row.power_factor} != {1.0}
    ]


@pytest.mark.slow
def test_a_profile_that_promises_too_much_is_corrected_once_and_its_service_kept(database_url: str) -> None:
    documents = [gpu_type(), policy(), node("node-0"), node("node-1")]
    documents += [model("a"), model("b"), profile("a"), profile("b")]
    # Just over twice the time of a batch: a service 15 % slower misses it by far.
    documents += [service("a", 120.0, slo_ms=60), service("b", 80.0, slo_ms=60)]
    shapes = all_noisy({"shop/a": steady, "shop/b": steady}, 0.02)
    slower = profile("a")
    slower["spec"]["latencyMs"] = {
        batch: {sm: TRUTH * ms for sm, ms in curve.items()} for batch, curve in slower["spec"]["latencyMs"].items()
    }
    with open_simulation(database_url, read_documents(documents), shapes) as fleet:
        fleet.fleet.follow(truth_of(read_documents([*documents[:6], slower, *documents[7:]])))
        factors = [1.0]
        for _ in fleet.seconds(LEARNT_SECONDS, 2.0):
            for row in read_correcting(fleet):
                assert row.model == "a"
                if row.latency_factor != factors[-1]:
                    factors.append(row.latency_factor)
        assert len(factors) == 2
        assert abs(factors[-1] / TRUTH - 1) <= 0.03
        before = fleet.history.mark(fleet.fleet)
        fleet.advance(float(scaled(3600, 60)), 2.0)
        after = fleet.history.mark(fleet.fleet)
        assert min(count_attained_shares(before, after).values()) >= 0.98
        (row,) = read_correcting(fleet)
        assert row.latency_factor == factors[-1]
        assert (
            len(fleet.history.since(before.at)) <= 4
        )  # copies that were added while the promise was missed are removed


@pytest.mark.slow
def test_a_draft_is_planned_for_as_slower_until_its_copies_have_shown_their_times(database_url: str) -> None:
    error = 0.6
    spread = find_q90_factor(error)
    draft = profile("a", leftOutError=error)
    draft["spec"]["latencyMs"] = {
        batch: {sm: {"mean": ms, "q90": ms * spread} for sm, ms in curve.items()}
        for batch, curve in draft["spec"]["latencyMs"].items()
    }
    documents = [gpu_type(), policy(), node("node-0"), node("node-1"), model("a"), draft, service("a", 1000.0)]
    with open_simulation(database_url, read_documents(documents), all_noisy({"shop/a": steady}, 0.02)) as fleet:
        fleet.advance(120, 2.0)
        assert {round(ratio, 2) for ratio in find_planned_ratios(fleet)} == {round(spread, 2)}
        fleet.advance(LEARNT_SECONDS, 2.0)
        shown = find_planned_ratios(fleet)
        assert max(shown) <= 1.1, "the spread is gone where copies ran"
        events = fleet.database.read(lambda connection: recent(connection, EventFilter(reasons=["profile_wrong"]), 10))
        assert events == [], "a draft that runs at its mean is not wrong"


def find_planned_ratios(fleet: Simulation) -> list[float]:
    """Returns, by the places of its copies, what plans count on over the Profile's mean."""
    snapshot = fleet.planner.store.snapshot(lambda _: {})
    problem, means = formulate(snapshot).problem, mean_profiles(snapshot)
    ((key, planned),) = problem.profiles.items()
    assert problem.state
    places = {(line.batch, line.sm_percent) for line in problem.state.running}
    return [
        value_at(planned.latency_ms[batch], sm) / value_at(means[key].latency_ms[batch], sm)
        for batch, sm in sorted(places)
    ]
