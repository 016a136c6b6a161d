"""What is asked of many lines at once is what is asked of each alone."""

from __future__ import annotations

from math import inf, isnan, nan
from random import Random

import pytest

from solvers.latency import limits, max_rate, timeout_for
from solvers.planning.judge.readings import NOTHING, Resident
from solvers.planning.problem import Instance, Policy, Problem, Service
from solvers.planning.search.promise import SLACK_SHARE, keep, timeouts
from tests.support.soak import scaled

LINES = 80
PROBLEM = Problem({}, {}, {}, {}, {}, policy=Policy(exec_margin=0.0))


def drawn(r: Random) -> tuple[list[Service], list[int], list[float], list[float]]:
    """Draws lines around the loads that are accepted, with and without a timeout and beyond both."""
    percentiles = [r.choice((90.0, 95.0, 99.0)) for _ in range(LINES)]
    batches = [r.choice((1, 2, 4, 8, 16)) for _ in range(LINES)]
    exec_ms = [r.uniform(1, 50) for _ in range(LINES)]
    slos_ms = [each * r.choice((0.9, 1.0, 1.2, 1.7, 2.5, 6.0)) for each in exec_ms]
    variations = [r.choice((0.0, 0.0, 0.2)) for _ in range(LINES)]
    most = [max_rate(*line)[0] for line in zip(batches, exec_ms, slos_ms, percentiles, variations, strict=True)]
    rates = [rate * r.choice((0.3, 0.98, 0.9999, 1.0, 1.01)) or 1.0 for rate in most]
    services = [
        Service(f"t/{at}", "t", "m", ("v",), slos_ms[at], percentiles[at], rates[at], variation=variations[at])
        for at in range(LINES)
    ]
    return services, batches, exec_ms, rates


def expected(service: Service, batch: int, exec_ms: float, rate: float) -> float | None:
    from solvers.latency.kernels import accepted_load

    row = limits(service.percentile, [batch], service.variation).prompt[batch]
    accepted = accepted_load(row, service.slo_ms / exec_ms)
    if rate * exec_ms / batch / 1000 <= accepted * (1 + SLACK_SHARE):
        return 0.0
    return timeout_for(batch, exec_ms, service.slo_ms, service.percentile, rate, service.variation)


@pytest.mark.parametrize("seed", range(scaled(100, 10)))
def test_timeouts_of_many_lines_are_those_of_each(seed: int) -> None:
    lines = drawn(Random(seed))
    found = timeouts(*lines)
    assert found == [expected(*line) for line in zip(*lines, strict=True)]
    assert None in found
    assert 0.0 in found
    assert any(timeout for timeout in found)


@pytest.mark.parametrize("seed", range(scaled(100, 10)))
def test_a_line_keeps_its_slo_among_others_as_it_does_alone(seed: int) -> None:
    r = Random(seed)
    services, batches, exec_ms, rates = drawn(r)
    wanted = timeouts(services, batches, exec_ms, rates)
    stated = [
        r.choice((timeout or 0.0, 0.0, each / 2, each * 2, nan)) for timeout, each in zip(wanted, exec_ms, strict=True)
    ]
    residents = [
        Resident(
            Instance("i", f"t/{index}", "n", 0, "v", batches[index], stated[index], 10, 1.0, 1000.0, rates[index]),
            services[index],
            None, NOTHING, exec_ms[index], 0.0, 0.0, exec_ms[index],
        )
        for index in range(LINES)
    ]  # fmt: skip
    found = keep(PROBLEM, residents)
    assert found == [keep(PROBLEM, [resident])[0] for resident in residents]
    assert all(found[index] for index, timeout in enumerate(wanted) if timeout is not None and stated[index] == timeout)
    assert not any(found[index] for index, timeout in enumerate(stated) if isnan(timeout) or timeout > exec_ms[index])


def test_no_lines_need_no_timeouts() -> None:
    assert timeouts([], [], [], []) == []
    assert keep(PROBLEM, []) == []


@pytest.mark.parametrize("exec_ms", [inf, -1.0])
def test_an_impossible_time_of_a_batch_is_refused_by_its_name(exec_ms: float) -> None:
    with pytest.raises(ValueError, match="exec_ms is"):
        timeouts([Service("t/s", "t", "m", ("v",), 100.0, 95.0, 1.0)], [1], [exec_ms], [1.0 if exec_ms > 0 else -1.0])
