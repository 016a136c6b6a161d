"""What is believed of lengths: nothing by noise, a class where they differ, and the same for a new leader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from agents.contract.gateways import GatewayCounts, LengthTotals, ServiceCounts
from app.control.observe.loads.lengths import HELD_SECONDS, STEP, LengthBelief
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.reports import ReportBatch
from app.store.fleet.load_news import GatewayCounters
from solvers.llm.iteration import TokenLengths, log_normal
from tests.support.soak import scaled

CHAT = "shop/chat"
DECLARED = TokenLengths(1155.0, 3500.0, 211.0, 480.0)


def answers(random: np.random.Generator, count: int, longer_in: float = 1.0, longer_out: float = 1.0) -> LengthTotals:
    """Answers whose lengths are so many times the declared ones."""
    inputs = random.lognormal(*log_normal(*DECLARED.input), count) * longer_in
    outputs = random.lognormal(*log_normal(*DECLARED.output), count) * longer_out
    return LengthTotals(count, int(inputs.sum()), int(outputs.sum()))


@pytest.mark.parametrize("seed", range(scaled(100, 10)))
def test_requests_as_declared_change_nothing(seed: int) -> None:
    random, belief = np.random.default_rng(seed), LengthBelief()
    for cycle in range(500):
        belief.add(answers(random, int(random.integers(1, 200))))
        assert belief.means(DECLARED, 30.0 * cycle) == (0.0, 0.0)


def test_longer_requests_are_believed_within_minutes_in_one_class_that_stays() -> None:
    random, belief = np.random.default_rng(1), LengthBelief()
    believed = []
    for cycle in range(400):
        belief.add(answers(random, 60, longer_in=1.5))
        believed.append(belief.means(DECLARED, 30.0 * cycle))
    assert all(output == 0.0 for _, output in believed)
    assert believed[20][0] > 1.3 * 1155, "after ten minutes, two requests a second"
    assert 1.5 / 1.05 <= believed[-1][0] / 1155 <= 1.5 * STEP * 1.05
    assert len({input_mean for input_mean, _ in believed[100:]}) == 1


def test_shorter_requests_are_believed_after_half_an_hour() -> None:
    random, belief = np.random.default_rng(2), LengthBelief()
    belief.add(answers(random, 3000, longer_out=0.5))
    assert belief.means(DECLARED, 0.0) == (0.0, 0.0)
    assert belief.means(DECLARED, HELD_SECONDS - 1) == (0.0, 0.0)
    assert belief.means(DECLARED, HELD_SECONDS)[1] == pytest.approx(0.5 * 211, rel=0.12)
    belief.add(answers(random, 4000))
    assert belief.means(DECLARED, HELD_SECONDS + 1)[1] == pytest.approx(211, rel=0.12), "longer ones at once"


def test_another_declaration_begins_again_from_what_it_says() -> None:
    random, belief = np.random.default_rng(3), LengthBelief()
    belief.add(answers(random, 3000, longer_out=1.5))
    assert belief.means(DECLARED, 0.0)[1] > 1.4 * 211
    assert belief.means(TokenLengths(1155.0, 3500.0, 316.0, 720.0), 1.0) == (0.0, 0.0)


def test_few_answers_and_ones_that_cannot_be_true_are_bounded() -> None:
    random, belief = np.random.default_rng(4), LengthBelief()
    belief.add(answers(random, 450, 3.0, 3.0))
    assert belief.means(DECLARED, 0.0) == (0.0, 0.0)
    belief.add(LengthTotals(4000, 10**12, 10**12))
    assert belief.means(DECLARED, 1.0)[0] <= 4.0 * STEP * 1155


def test_a_new_leader_believes_what_gateways_have_counted_before() -> None:
    at, counted = datetime(2026, 1, 1, tzinfo=UTC), answers(np.random.default_rng(5), 2000, 1.5, 1.5)
    loads = Loads()
    for second in range(2):
        now = at + timedelta(seconds=second)
        counts = GatewayCounts("g1", second + 1, (ServiceCounts(CHAT, 2000 + second, lengths=counted),))
        loads.take(ReportBatch(now, gateways=(GatewayCounters("gateway-1", now, counts),)), now)
    found = loads.expect({CHAT: 2.0}, {}, {}, at + timedelta(seconds=2), {CHAT: DECLARED})[CHAT]
    assert found.input_mean == pytest.approx(1.5 * 1155, rel=0.15)
    assert found.output_mean == pytest.approx(1.5 * 211, rel=0.15)
