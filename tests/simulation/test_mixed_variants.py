"""A service whose variants are mixed: the requests that were served have the promised mean accuracy."""

from __future__ import annotations

from math import sqrt

import pytest

from app.manifests.offline import DeclaredFiles
from simulation.fleet.history import count_attained_shares
from simulation.fleet.node import LightNode
from simulation.run import open_simulation
from simulation.serving.totals import Total
from simulation.shapes import steady, wave
from simulation.world import read_documents
from tests.simulation.test_node_loss import MADE_GOOD, THROUGH, lose
from tests.simulation.worlds import SETTLING_TICK_SECONDS, all_noisy, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

NAME, PROMISE = "shop/a", 0.73
LARGE, SMALL = 0.76, 0.70
SECONDS = scaled(6 * 3600, 1200)
TICK_SECONDS = float(scaled(1, 3))  # while requests are counted
SHAPES = {"wave": wave(0.6, 1.1, 1200.0), "steady": steady}


def world() -> DeclaredFiles:
    """The small variant is three times as fast; the promise is 4 % below the accuracy of the large one."""
    known = model("a")
    runtime = known["spec"]["variants"][0]["runtime"]
    known["spec"]["variants"].append({"name": "small", "accuracy": SMALL, "runtime": runtime})
    small = profile("a", speed=3.0)
    small["metadata"]["name"], small["spec"]["variant"] = "a-small", "small"
    nodes = [node(f"node-{number}", gpus=1) for number in range(6)]
    asked = service("a", 900.0, meanAccuracy=PROMISE)
    return read_documents([gpu_type(), policy(pricing="gpu"), *nodes, known, profile("a"), small, asked])


def variants_of(node: LightNode) -> set[str]:
    return {copy.wanted.variant for copy in node.serving()}


def mean(before: Total, after: Total) -> tuple[float, float]:
    """Returns the mean accuracy of the requests answered in between, and its deviation by random routing."""
    answered = after.answered - before.answered
    found = (after.accuracy_sum - before.accuracy_sum) / answered
    share = (LARGE - found) / (LARGE - SMALL)
    return found, (LARGE - SMALL) * sqrt(share * (1 - share) / answered)


@pytest.mark.parametrize("name", [*SHAPES][: scaled(2, 1)])
def test_served_requests_have_the_promised_mean_accuracy(database_url: str, name: str) -> None:
    with open_simulation(database_url, world(), all_noisy({NAME: SHAPES[name]}, 0.02)) as simulation:
        simulation.advance(300, SETTLING_TICK_SECONDS)
        mark, before = simulation.history.mark(simulation.fleet), simulation.fleet.services[NAME].copied()
        simulation.advance(SECONDS, TICK_SECONDS)
        found, deviation = mean(before, simulation.fleet.services[NAME])
        assert set().union(*map(variants_of, simulation.fleet.nodes.values())) == {"fp16", "small"}
        assert found >= PROMISE - 4 * deviation
        assert min(count_attained_shares(mark, simulation.history.mark(simulation.fleet)).values()) >= 0.97


@pytest.mark.parametrize("variant", ["fp16", "small"][: scaled(2, 1)])
def test_once_a_lost_node_is_made_good_the_promise_is_kept_again(database_url: str, variant: str) -> None:
    with open_simulation(database_url, world(), all_noisy({NAME: steady}, 0.02)) as simulation:
        fleet = simulation.fleet
        simulation.advance(300, SETTLING_TICK_SECONDS)
        lose(simulation, min(name for name, at in fleet.nodes.items() if variant in variants_of(at)))
        simulation.advance(MADE_GOOD)
        simulation.advance(THROUGH - MADE_GOOD, SETTLING_TICK_SECONDS)
        before = fleet.services[NAME].copied()
        simulation.advance(600, TICK_SECONDS)
        found, deviation = mean(before, fleet.services[NAME])
        assert found >= PROMISE - 4 * deviation
