"""GPUs that turn slower: their curves are corrected where they did, and SLOs hold again."""

from __future__ import annotations

import pytest

from app.control.observe.drift.correct import update_correction
from lab.bench.drifting import DriftOrder, TruthFactor, run_drift
from simulation.run import Simulation
from simulation.world import read_documents
from tests.simulation.worlds import gpu_type, model, node, policy, profile, service

AGAIN_SECONDS = 1200.0  # by then SLOs hold again, wherever the copies have gone meanwhile


@pytest.mark.soak  # an hour; the law: test_correct.py, a run: test_bench_drift.py
def test_gpus_that_turn_slower_in_one_range_are_corrected_there_and_slos_hold_again(database_url: str) -> None:
    documents = [gpu_type(), policy(), *(node(f"node-{number}") for number in range(3))]
    documents += [model("a"), model("b"), profile("a"), profile("b")]
    documents += [service("a", 150.0, slo_ms=60), service("b", 60.0, slo_ms=60)]

    def choose(fleet: Simulation) -> TruthFactor:
        shares = sorted(copy.wanted.sm_percent for node in fleet.fleet.nodes.values() for copy in node.serving())
        middle = shares[(len(shares) - 1) // 2]
        return lambda key, sm_percent: 1.2 if sm_percent <= middle else 1.0

    order = DriftOrder(read_documents(documents), choose, 1200.0, 7200.0, 0, work=10)
    found = run_drift(database_url, order, update_correction)
    assert found["false_steps"] == 0
    assert found["slo_again_seconds"] <= AGAIN_SECONDS
    assert found["turns"] <= 1
    assert found["error_running_percent"] <= 4.0
