"""Requests are longer than declared: a plan as declared breaks the promise, one for the measured keeps it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.contract.gateways import GatewayCounts, LengthTotals, ServiceCounts
from app.control.answer.explain.question import Explain
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.domain.times import read_declared_rates
from app.control.formulate.formulate import formulate
from app.control.formulate.language import read_declared_lengths
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.reports import ReportBatch
from app.control.record.encoding import join_snapshot, snapshot_parts
from app.control.solve.inline import Inline
from app.manifests.model import Kind
from app.manifests.offline import load
from app.store.fleet.load_news import GatewayCounters
from solvers.llm.iteration import TokenLengths
from solvers.llm.streams import stream
from solvers.planning.judge import judge
from solvers.planning.plan import Plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FILE = Path(__file__).parents[4] / "examples" / "language-models.yaml"
NAME = "shop/summaries"
LONGER = 1.5


@pytest.mark.slow
def test_the_plan_grows_to_the_lengths_that_gateways_count_and_the_promise_holds_again() -> None:
    manifests = [m for m in load([FILE]).manifests.values() if m.kind is not Kind.SERVICE or m.name == "summaries"]
    declared = tuple(
        DeclaredObject(str(m.kind), m.tenant, m.name, {**m.spec, "ratePerSecond": 22} if m.tenant else m.spec)
        for m in manifests
    )
    rates, lengths = read_declared_rates(declared), read_declared_lengths(declared)
    longer = longer_by(lengths[NAME], LONGER)
    counted, loads = LengthTotals(), Loads()
    requests = stream(replace(longer, context_tokens=8192), 15_000, 7)
    plans: list[tuple[Snapshot, Plan]] = []
    for seconds in range(0, 601, 10):
        now, until = NOON + timedelta(seconds=seconds), int(rates[NAME] * seconds)
        if until:
            counted = LengthTotals(until, int(requests.inputs[:until].sum()), int(requests.outputs[:until].sum()))
        counts = GatewayCounts("a", seconds + 1, (ServiceCounts(NAME, until, lengths=counted),))
        loads.take(ReportBatch(now, gateways=(GatewayCounters("edge", now, counts),)), now)
        if seconds not in {0, 300, 600}:
            continue
        snapshot = Snapshot(
            at=now, epoch=1, declared=declared, nodes={name: NodeStatus(name, "reporting") for name in ("a1", "h1")},
            expected=loads.expect(rates, rates, {}, now, lengths),
        )  # fmt: skip
        plan = Inline().solve(formulate(snapshot).problem, seconds=0, work=4).plan
        assert plan
        plans.append((snapshot, plan))
    (before, small), (after, large), (later, _) = plans
    assert before.expected[NAME].input_mean == 0.0, "nothing is counted yet"
    assert later.expected[NAME].input_mean == after.expected[NAME].input_mean, "the class stays"
    assert costs(large) > costs(small)
    assert not keeps_promise(before, small, longer)
    assert keeps_promise(after, large, longer)

    again = join_snapshot(snapshot_parts(after))
    assert formulate(again).problem == formulate(after).problem, "a replay plans for the same lengths"
    assert formulate(after).problem.services[NAME].tokens != formulate(before).problem.services[NAME].tokens
    said = Explain(after, large, "service", NAME).answered()["sentences"]
    assert any("as gateways count them; 900 and 150 are declared" in sentence for sentence in said)
    said = Explain(before, small, "service", NAME).answered()["sentences"]
    assert not any("gateways" in sentence for sentence in said)


def longer_by(lengths: TokenLengths, factor: float) -> TokenLengths:
    return replace(
        lengths, input_mean=factor * lengths.input_mean, input_p95=factor * lengths.input_p95,
        output_mean=factor * lengths.output_mean, output_p95=factor * lengths.output_p95,
    )  # fmt: skip


def costs(plan: Plan) -> float:
    assert plan.certificate
    return plan.certificate.cost.resource


def keeps_promise(snapshot: Snapshot, plan: Plan, lengths: TokenLengths) -> bool:
    """Returns whether the plan is right where requests have these lengths in truth."""
    problem = formulate(snapshot).problem
    service = problem.services[NAME]
    assert service.tokens
    true = replace(service, tokens=replace(service.tokens, lengths=lengths))
    return judge(replace(problem, services={**problem.services, NAME: true}), plan).is_right
