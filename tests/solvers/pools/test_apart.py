"""Two pools against plain arithmetic for a request alone, and against two reference servers for many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from solvers.llm.iteration import TokenLengths, TokenPromise
from solvers.llm.judged import SKIPPED_SHARE
from solvers.llm.streams import TokenStream
from solvers.pools.apart import ApartServers, KeysSent, plan_apart
from solvers.pools.servers import DeclaredRequests, RequestTrial, ServedShares, ServerGroup, TogetherServers
from tests.solvers.llm.reference import simulate
from tests.solvers.pools.servers import BIG, KV_BYTES, LIMITS, SMALL, make_server

SENT = KeysSent(KV_BYTES, 200.0)
LENGTHS = TokenLengths(600, 1500, 60, 140, 0.2)


@dataclass(frozen=True)
class SameRequests:
    """Requests that are all alike and come evenly."""

    prompt: int
    answer: int

    def draw_requests(self, requests: int, seed: int) -> TokenStream:
        each = np.ones(requests, dtype=np.int64)
        return TokenStream(np.arange(1.0, requests + 1), self.prompt * each, self.answer * each, 0 * each)


def test_a_request_alone_takes_the_time_of_its_iterations_and_of_sending_its_memory() -> None:
    prefill, decode = (
        replace(make_server("a", 1.0, cost), limits=replace(LIMITS, tokens_per_iteration=2048)) for cost in (BIG, SMALL)
    )
    pools = ApartServers([ServerGroup(prefill, 1, 1.0)], [ServerGroup(decode, 1, 1.0)], SENT)
    first_ms = BIG.milliseconds(1000, 0.0, 0, 0.0)
    sent_ms = 1000 * KV_BYTES / (25e6 * 8)  # 200 Gbit/s of each of 8 GPUs
    # Its second token computes the first one, its third the second.
    second, third = (SMALL.milliseconds(new, 0.0, 1 - new, held) for new, held in ((1, 0), (0, 1002)))
    pace_ms = (sent_ms + second + third) / 2
    for longer, kept in ((1 + 1e-6, 1.0), (1 - 1e-6, 0.0)):
        promise = TokenPromise(first_ms * longer, pace_ms * longer, 95)
        assert pools.simulate(RequestTrial(SameRequests(1000, 3), promise, 1e-4, 200, 11)) == ServedShares(
            kept, kept, 1.0
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_shares_are_those_of_two_reference_servers_one_after_the_other(seed: int) -> None:
    rate, promise = 5.0, TokenPromise(400.0, 60.0, 95)
    prefill, decode = make_server("a", rate), make_server("b", rate, SMALL, degree=4)
    pools = ApartServers([ServerGroup(prefill, 1, rate)], [ServerGroup(decode, 1, rate)], SENT)
    trial = RequestTrial(DeclaredRequests(LENGTHS), promise, rate, 1500, seed)
    requests = trial.source.draw_requests(1500, seed)
    arrivals = requests.arrivals * 1000 / rate
    first = simulate(BIG, LIMITS, arrivals.tolist(), requests.inputs.tolist(), [1] * 1500, requests.cached.tolist())
    tokens_at = np.array([request.token_times_ms[0] for request in first.requests])
    sent = tokens_at + requests.inputs * KV_BYTES / (25e6 * 4)  # over the GPUs of the smaller server
    goes_on = np.flatnonzero(requests.outputs > 1)
    order = goes_on[np.argsort(sent[goes_on], kind="stable")]
    second = simulate(
        SMALL, LIMITS, sent[order].tolist(), (requests.inputs[order] + 1).tolist(),
        (requests.outputs[order] - 1).tolist(), requests.inputs[order].tolist(),
    )  # fmt: skip
    ended = dict(zip(order.tolist(), (request.token_times_ms[-1] for request in second.requests), strict=True))
    lost = dict(zip(order.tolist(), (request.preemptions for request in second.requests), strict=True))
    counted = range(round(SKIPPED_SHARE * 1500), 1500)
    in_time = [tokens_at[at] - arrivals[at] <= promise.ttft_ms for at in counted]
    paced = [
        (ended[at] - tokens_at[at]) / (requests.outputs[at] - 1) <= promise.tpot_ms for at in counted if at in ended
    ]
    kept = [not lost.get(at, 0) for at in counted]
    found = pools.simulate(trial)
    assert 0.5 < found.tpot < 1
    assert (found.ttft, found.tpot, found.memory) == pytest.approx(
        (np.mean(in_time), np.mean(paced), np.mean(kept)), abs=1e-3
    )


@pytest.mark.slow
def test_servers_of_one_kind_of_work_carry_more_of_it_than_those_that_do_both() -> None:
    promise = TokenPromise(600.0, 40.0, 95)
    server = make_server("a", 0.0)
    planner = plan_apart([server], LENGTHS, promise, SENT)
    ((prefill,), (decode,)) = planner.prefill, planner.decode
    pools = planner.find_servers(4.0)
    assert pools
    assert prefill.rate_per_second > 0 < decode.rate_per_second
    assert pools.gpu_counts == {"a": 8 * sum(group.count for group in (*pools.prefill, *pools.decode))}
    assert pools.simulate(RequestTrial(DeclaredRequests(LENGTHS), promise, 1.0, 4000, 1)).keeps(promise)
    one = TogetherServers([ServerGroup(decode, 1, decode.rate_per_second)])
    trial = RequestTrial(DeclaredRequests(LENGTHS), promise, decode.rate_per_second, 4000, 1)
    assert not one.simulate(trial).keeps(promise), "what gives answers alone cannot compute their prompts, too"
