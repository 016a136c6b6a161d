"""Times Mudi's decision M5: from new rates to the smallest SM% of every service on every GPU."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from solvers.mudi.sharing.convex import ConvexSharing
from solvers.mudi.sharing.fleet import SharedFleet
from solvers.mudi.sharing.judge import violations
from solvers.mudi.sharing.problem import Curve, SharedGpu, SharingResident

CLUSTER_GPUS = (12, 1000)  # GPUs of Mudi's cluster, and of its simulated cluster
ROUNDS = 200
CONVEX_ROUNDS = 10
MOST_RESIDENTS = 4


def draw_gpu(draws: np.random.Generator, number: int) -> SharedGpu:
    """Draws a GPU with one to four services with two-piece curves, and up to three training jobs."""
    count = int(draws.integers(1, MOST_RESIDENTS + 1))
    return SharedGpu(
        residents=tuple(_resident(draws, f"s{number}-{i}", count) for i in range(count)),
        other_pressure=sum(draws.uniform(0.2, 0.9) for _ in range(int(draws.integers(0, 4)))),
    )


def _resident(draws: np.random.Generator, name: str, count: int) -> SharingResident:
    batch = int(draws.choice((1, 2, 4, 8, 16, 32)))
    cut_percent = int(draws.integers(20, 61))
    cut_ms = draws.uniform(1.0, 3.0) * batch**0.8
    curve = two_piece(-cut_ms / 12, -cut_ms / 500, cut_percent, cut_ms, least=5, most=100)
    load = draws.uniform(0.2, 0.9) * count**-0.5
    return SharingResident(
        name, batch, curve,
        slo_ms=cut_ms * draws.uniform(4, 12),
        rate_per_second=1000 * load * batch / cut_ms,
        pressure=((5, 0.05), (100, draws.uniform(0.3, 0.9))),
        sensitivity=draws.uniform(0.0, 0.3),
    )  # fmt: skip


def two_piece(first_slope: float, second_slope: float, cut_percent: int, cut_ms: float, least: int, most: int) -> Curve:
    """Builds Mudi's latency curve from the slopes around the cut-off, in ms per SM%, and the latency there."""
    percents = sorted({least, cut_percent, most})
    slopes = [first_slope if percent <= cut_percent else second_slope for percent in percents]
    return tuple((p, cut_ms + slope * (p - cut_percent)) for p, slope in zip(percents, slopes, strict=True))


def timed_ms(decide: Callable[[int], object], rounds: int) -> list[float]:
    """Returns how long each round took, after a first to warm up."""
    decide(0)
    times_ms = []
    for number in range(rounds):
        begun = perf_counter()
        decide(number)
        times_ms.append((perf_counter() - begun) * 1000)
    return sorted(times_ms)


def measure_size(gpus: int, seed: int) -> dict[str, float]:
    """Returns the figures of a cluster of that size."""
    draws = np.random.default_rng(seed)
    shared = [draw_gpu(draws, number) for number in range(gpus)]
    residents = [resident for each in shared for resident in each.residents]
    fleet = SharedFleet.of(shared)
    declared = np.array([resident.rate_per_second for resident in residents])
    rates = draws.uniform(0.8, 1.2, (ROUNDS, len(residents))) * declared
    slo_ms = np.array([resident.slo_ms for resident in residents])
    batch = np.array([resident.batch for resident in residents])
    at_least = np.array([resident.batches_at_least for resident in residents])

    def decide(number: int) -> object:
        """Decides for other rates, with W = rate x SLO."""
        return fleet.decide(slo_ms / np.maximum(rates[number] * slo_ms / 1000 / batch, at_least))

    warm_ms = timed_ms(decide, ROUNDS)
    fresh_ms = timed_ms(lambda _: (fresh := SharedFleet.of(shared)).decide(fresh.most_exec_ms), CONVEX_ROUNDS)

    decided = fleet.decide(fleet.most_exec_ms)
    ends = zip(decided.blocked.tolist(), decided.totals.tolist(), strict=True)
    fits = [not stuck and total <= 100 for stuck, total in ends]
    for each, first, right in zip(shared, fleet.first, fits, strict=False):
        percents = decided.percents[first : first + len(each.residents)].tolist()
        named = dict(zip((resident.name for resident in each.residents), percents, strict=True))
        assert not right or violations(each, named) == []

    convex = ConvexSharing(residents)
    pressures = [[number / 1000] * len(residents) for number in range(CONVEX_ROUNDS)]
    convex_ms = timed_ms(lambda number: convex.least_whole_percents(pressures[number]), CONVEX_ROUNDS)
    return {
        "gpus": gpus,
        "services": len(residents),
        "gpus_that_fit": sum(fits),
        "p50_ms": median(warm_ms),
        "p99_ms": warm_ms[int(0.99 * ROUNDS)],
        "from_dataclasses_ms": median(fresh_ms),
        "one_convex_solve_ms": median(convex_ms),
    }


def run(seed: int) -> dict[str, object]:
    """Runs both sizes; Mudi reports decisions under 18 ms for 12 GPUs and under 30 ms for 1,000."""
    return {"must_ms": {"12": 18, "1000": 30}, "sizes": [measure_size(gpus, seed) for gpus in CLUSTER_GPUS]}
