"""Two pools against plain arithmetic for a request alone, and against two reference servers for many."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from solvers.llm.iteration import TokenLengths, TokenPromise
from solvers.llm.judged import SKIPPED_SHARE
from solvers.llm.streams import TokenStream
from solvers.pools.apart import ApartServers, plan_apart
from solvers.pools.links import NETWORK, NVLINK, KeysSent, ServerLink
from solvers.pools.servers import DeclaredRequests, RequestTrial, ServedShares, ServerGroup, TogetherServers
from tests.solvers.llm.reference import simulate
from tests.solvers.pools.servers import BIG, KV_BYTES, LIMITS, SMALL, make_server

SENT = KeysSent(ServerLink(NETWORK, {"a": 200.0, "b": 200.0}), KV_BYTES)
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
    sent_ms = 1000 * KV_BYTES / (25e6 * 8)  # 200 Gbit/s of each of 8 GPUs
    # The second server computes the prompt's last token again, which gives the first token, and then two more.
    tokens_ms = [SMALL.milliseconds(new, new * 999.0, 1 - new, held) for new, held in ((1, 0), (0, 1001), (0, 1002))]
    first_ms = BIG.milliseconds(1000, 0.0, 0, 0.0) + sent_ms + tokens_ms[0]
    pace_ms = (tokens_ms[1] + tokens_ms[2]) / 2
    for longer, kept in ((1 + 1e-6, 1.0), (1 - 1e-6, 0.0)):
        promise = TokenPromise(first_ms * longer, pace_ms * longer, 95)
        assert pools.simulate(RequestTrial(SameRequests(1000, 3), promise, 1e-4, 200, 11)) == ServedShares(
            kept, kept, 1.0
        )


def test_cells_share_the_requests_and_cost_what_all_of_them_cost() -> None:
    prefill, decode = make_server("a", 2.0), make_server("a", 2.0, SMALL)
    groups = [ServerGroup(prefill, 1, 2.0)], [ServerGroup(decode, 1, 2.0)]
    sent = KeysSent(ServerLink(NVLINK, {"a": 2400.0}, most_gpus=16), KV_BYTES)
    one, three = ApartServers(*groups, sent), ApartServers(*groups, sent, 3)
    promise = TokenPromise(400.0, 60.0, 95)
    trials = [RequestTrial(DeclaredRequests(LENGTHS), promise, rate, 500, 1) for rate in (2.0, 6.0)]
    assert one.simulate(trials[0]) == three.simulate(trials[1])
    assert (three.cost_per_hour, three.gpu_counts) == (3 * one.cost_per_hour, {"a": 48})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_shares_are_those_of_two_reference_servers_one_after_the_other(seed: int) -> None:
    rate, promise = 5.0, TokenPromise(400.0, 46.0, 95)
    prefill, decode = make_server("a", rate), make_server("b", rate, SMALL, degree=4)
    pools = ApartServers([ServerGroup(prefill, 1, rate)], [ServerGroup(decode, 1, rate)], SENT)
    trial = RequestTrial(DeclaredRequests(LENGTHS), promise, rate, 1500, seed)
    requests = trial.source.draw_requests(1500, seed)
    arrivals = requests.arrivals * 1000 / rate
    first = simulate(BIG, LIMITS, arrivals.tolist(), requests.inputs.tolist(), [1] * 1500, requests.cached.tolist())
    ready = np.array([request.token_times_ms[0] for request in first.requests])
    there, sent_until, received_until = ready.copy(), 0.0, 0.0
    for at in np.argsort(ready, kind="stable"):  # one after the other, over the GPUs of each server
        begins = max(sent_until, ready[at])
        sent_until = begins + requests.inputs[at] * KV_BYTES / (25e6 * 8)
        received_until = max(received_until, begins) + requests.inputs[at] * KV_BYTES / (25e6 * 4)
        there[at] = max(sent_until, received_until)
    order = np.argsort(there, kind="stable")
    second = simulate(
        SMALL, LIMITS, there[order].tolist(), requests.inputs[order].tolist(), requests.outputs[order].tolist(),
        (requests.inputs[order] - 1).tolist(),
    )  # fmt: skip
    answers = dict(zip(order.tolist(), second.requests, strict=True))
    times = {at: answer.token_times_ms for at, answer in answers.items()}
    lost = {at: answer.preemptions for at, answer in answers.items()}
    counted = range(round(SKIPPED_SHARE * 1500), 1500)
    in_time = [times[at][0] - arrivals[at] <= promise.ttft_ms for at in counted]
    paced = [
        (times[at][-1] - times[at][0]) / (len(times[at]) - 1) <= promise.tpot_ms for at in counted if len(times[at]) > 1
    ]
    kept = [not lost[at] for at in counted]
    found = pools.simulate(trial)
    assert 0.3 < found.tpot < 1
    assert (found.ttft, found.tpot, found.memory) == pytest.approx(
        (np.mean(in_time), np.mean(paced), np.mean(kept)), abs=1e-3
    )


@pytest.mark.slow
def test_servers_of_one_kind_of_work_carry_more_of_it_than_those_that_do_both() -> None:
    promise = TokenPromise(600.0, 40.0, 95)
    server = make_server("a", 0.0)
    planner = plan_apart([server], LENGTHS, promise, SENT)
    rated = planner.divided[-1]  # the longest wait for a first token
    ((prefill,), (decode,)) = rated.prefill, rated.decode
    pools = planner.find_servers(4.0)
    assert pools
    assert prefill.rate_per_second > 0 < decode.rate_per_second
    assert pools.gpu_counts == {"a": 8 * sum(group.count for group in (*pools.prefill, *pools.decode))}
    assert pools.simulate(RequestTrial(DeclaredRequests(LENGTHS), promise, 1.0, 4000, 1)).keeps(promise)
    one = TogetherServers([ServerGroup(decode, 1, decode.rate_per_second)])
    trial = RequestTrial(DeclaredRequests(LENGTHS), promise, decode.rate_per_second, 4000, 1)
    assert not one.simulate(trial).keeps(promise), "what gives answers alone cannot compute their prompts, too"
