"""Quick steps of ordinary services beside language models; a language model whose load rises calls for a full plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.control.answer.replay import Record, read_record, replay, write_record
from app.control.domain.decision import SolveOutcome
from app.control.domain.events import Reason
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.fast.base import step_base
from app.control.fast.lane import FastLane, LaneResult
from app.control.fast.leaving import draft_leaving
from app.control.formulate.formulate import formulate
from app.control.observe.loads.recent import RecentLoad
from app.control.record.records import RecordedPlan, read_plan
from app.control.solve.inline import Inline
from app.control.solve.versions import versions
from app.store.plans import plan_reads
from simulation.run import Simulation, open_simulation
from simulation.shapes import spike
from simulation.world import read_documents
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from tests.app.control.decide.test_several_gpus import FILE, planned
from tests.app.control.test_certificates import OneMoment
from tests.simulation.worlds import CALM_TICK_SECONDS
from tests.support.soak import scaled

CHAT, SUMMARIES, PHOTOS = "shop/assistant", "shop/summaries", "shop/photos"
RATES = {CHAT: 2.0, SUMMARIES: 12.0, PHOTOS: 1500.0}
CARRIED = 26.4  # requests a second that the instance of SUMMARIES carries
HELD_PLACES = 4


@cache
def running(mode: str = "auto") -> Snapshot:
    """The example's plan in force."""
    snapshot, _ = planned()
    declared = tuple(
        replace(item, spec={**item.spec, "mode": mode}) if item.kind == "Policy" else item for item in snapshot.declared
    )
    return replace(snapshot, declared=declared, assigned=None, target=1)


@pytest.fixture(scope="module", autouse=True)
def plan_in_force() -> None:
    """Made before the first test, which would pay for it."""
    running()


class Ticks:
    """A fast lane over one plan in force, and what it answered."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.store, self.snapshot = OneMoment(snapshot), snapshot
        self.store.epoch = 1
        self.lane = FastLane(self.store, Inline(), step_base(snapshot, formulate(snapshot)))
        self.second = 0

    def tick(self, rates: Mapping[str, float]) -> LaneResult:
        self.second += 1
        readings = {name: RecentLoad(rate) for name, rate in (RATES | dict(rates)).items()}
        now = self.snapshot.at + timedelta(seconds=self.second)
        return self.lane.answer(readings, now, lambda: None)

    def calls(self, service: str, rates: list[float]) -> list[int]:
        """Returns the seconds at which it called for a full plan."""
        return [self.second for rate in rates if self.tick({service: rate}).calls_for == Reason.LOAD_ROSE]


@pytest.mark.slow
def test_a_spike_of_an_ordinary_service_is_answered_beside_language_models_that_stay() -> None:
    ticks = Ticks(running())
    result = ticks.tick({PHOTOS: 2600.0})
    assert (result.generation, result.calls_for) == (2, None)
    (decision,) = ticks.store.decisions
    assert decision.services == (PHOTOS,)
    assert not decision.plan.unserved
    before, after = running().in_force, decision.desired
    models = {node: [line for line in wanted.instances if line.service != "photos"] for node, wanted in before.items()}
    assert any(models.values())
    for node, lines in models.items():
        assert [line for line in after[node].instances if line.service != "photos"] == lines
    problem = formulate(running()).problem
    carried = sum(line.rate_per_second for line in decision.plan.instances if line.service == PHOTOS)
    verdict = judge(problem.change_rates({PHOTOS: carried}), decision.plan, simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    record = Record(
        2, decision.lane, SolveOutcome.SOLVED, ticks.store.snapshots[0], decision.drafts, dict(versions()),
        decision.plan, dict(decision.desired),
    )  # fmt: skip
    assert replay(read_record(write_record(record)), Inline()).is_identical
    assert ticks.lane.base and ticks.lane.base.snapshot.target == 2
    assert ticks.tick({PHOTOS: 2600.0}) == LaneResult(), "the next step begins from this one"


@pytest.mark.slow
def test_where_language_models_hold_every_gpu_a_spike_calls_for_a_full_plan() -> None:
    snapshot = running()
    held = {"h1": tuple(range(HELD_PLACES))}
    closed = {
        node: replace(facts, failed_gpus=tuple(gpu for gpu in range(8) if gpu not in held.get(node, ())))
        for node, facts in snapshot.nodes.items()
    }
    ticks = Ticks(replace(snapshot, nodes=closed))
    assert ticks.lane.base and ticks.lane.base.ordinary is None
    assert ticks.tick({PHOTOS: 2600.0}) == LaneResult(0, Reason.LOAD_ROSE)


def test_a_rise_that_the_instances_of_a_language_model_carry_triggers_nothing() -> None:
    ticks = Ticks(running())
    assert ticks.calls(SUMMARIES, [2 * RATES[SUMMARIES]] * 120) == []


def test_noise_around_what_a_language_model_carries_triggers_nothing() -> None:
    for seed in range(scaled(20, 2)):
        counts = np.random.default_rng(seed).poisson(CARRIED, 1_000)
        assert Ticks(running()).calls(SUMMARIES, [float(count) for count in counts]) == []


def test_a_language_model_above_what_it_carries_calls_for_a_full_plan_ever_less_often() -> None:
    ticks = Ticks(running())
    first, *others = ticks.calls(SUMMARIES, [2 * CARRIED] * 600)
    assert first < 10
    assert len(others) < 20, "nothing changes, so it asks less and less often"
    assert ticks.store.decisions == []
    rates = ticks.lane.rates_of_rising_models(ticks.snapshot.at + timedelta(seconds=ticks.second))
    assert rates.keys() <= {SUMMARIES}


def test_a_full_plan_that_knew_the_load_and_found_nothing_better_is_not_asked_again() -> None:
    snapshot = running()
    expected = {**snapshot.expected, SUMMARIES: ExpectedLoad(2 * CARRIED)}
    assert Ticks(replace(snapshot, expected=expected)).calls(SUMMARIES, [2 * CARRIED] * 120) == []


def test_both_at_once_make_a_step_and_a_call() -> None:
    ticks = Ticks(running())
    result = ticks.tick({PHOTOS: 2600.0, CHAT: 90.0})
    assert result == LaneResult(2, Reason.LOAD_ROSE)
    assert [decision.services for decision in ticks.store.decisions] == [(PHOTOS,)]
    at = ticks.snapshot.at + timedelta(seconds=1)
    assert ticks.lane.rates_of_rising_models(at) == {CHAT: 90.0 * 1.05}
    assert ticks.lane.rates_of_rising_models(at + timedelta(seconds=40)) == {}


def test_where_plans_are_only_proposed_nothing_is_called_for() -> None:
    assert Ticks(running("approve")).calls(SUMMARIES, [2 * CARRIED] * 60) == []


def test_late_tokens_alone_call_for_nothing() -> None:
    ticks = Ticks(running())
    for second in range(120):
        now = ticks.snapshot.at + timedelta(seconds=second)
        readings = {SUMMARIES: RecentLoad(RATES[SUMMARIES], answers=12, within=0.0)}
        assert ticks.lane.answer(readings, now, lambda: None) == LaneResult()


def test_on_a_notice_ordinary_services_leave_at_once_and_language_models_wait_for_a_full_plan() -> None:
    snapshot = running()
    node = next(node for node, wanted in snapshot.in_force.items() if any(i.is_wide for i in wanted.instances))
    at = snapshot.at + timedelta(minutes=2)
    facts = replace(snapshot.nodes[node], reclaimed_at=at, draining_gpus=tuple(range(8)))
    drafted = draft_leaving(replace(snapshot, nodes={**snapshot.nodes, node: facts}), Inline(), None)
    assert drafted.decision
    assert drafted.decision.services == (PHOTOS,)
    assert {line.owner for line in drafted.decision.desired[node].instances} == {CHAT, SUMMARIES}
    assert {held.service for held in drafted.held_back} == {CHAT, SUMMARIES}


@pytest.mark.slow
def test_a_fleet_answers_both_before_the_next_cycle_is_due(database_url: str) -> None:
    documents = yaml.safe_load(Path(FILE).read_text())
    for document in documents:
        if document["kind"] == "Policy":
            document["spec"]["mode"] = "auto"
    shapes = {PHOTOS: spike(64.0, 1.7, 1.0), SUMMARIES: spike(94.0, 4.0, 1.0)}
    with open_simulation(database_url, read_documents(documents), shapes) as simulation:
        _serve_tokens_by_batches(simulation)
        simulation.advance(63, CALM_TICK_SECONDS)
        simulation.advance(7)
        assert _in_force(simulation).lane == "fast"
        simulation.advance(48)
        plan = _in_force(simulation)
        assert plan.lane == "full"
        assert simulation.clock.seconds < 121, "when the next cycle is due"
        assert sum(i.rate_per_second for i in plan.plan.instances if i.service == SUMMARIES) >= 4 * RATES[SUMMARIES]


def _in_force(simulation: Simulation) -> RecordedPlan:
    generation = simulation.database.read(plan_reads.read_generation_in_force)
    recorded = simulation.database.read(lambda connection: read_plan(connection, generation))
    assert recorded
    return recorded


def _serve_tokens_by_batches(simulation: Simulation) -> None:
    """Lets simulated copies of language models answer batches: they have no iterations."""
    truth = simulation.fleet.truth
    profiles = {
        key: replace(known, latency_ms={256: ((100, 300.0),)}, memory_gib={256: 80.0}) if known.iteration else known
        for key, known in truth.problem.profiles.items()
    }
    simulation.fleet.follow(replace(truth, problem=replace(truth.problem, profiles=profiles)))
