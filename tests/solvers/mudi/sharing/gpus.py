"""Shared GPUs small enough to try every SM%, drawn by Hypothesis, and the trying."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import strategies as st

from solvers.mudi.sharing.judge import violations
from solvers.mudi.sharing.problem import Curve, SharedGpu, SharingResident

MOST_PERCENT = 9
VALUES = st.floats(0.0, 1.0).map(lambda value: round(value, 3))


@st.composite
def latencies(draw: st.DrawFn, convex: bool) -> Curve:
    percents = sorted(draw(st.sets(st.integers(1, MOST_PERCENT), min_size=1, max_size=4)))
    drops = draw(st.lists(st.floats(0.0, 8.0), min_size=len(percents) - 1, max_size=len(percents) - 1))
    lengths = [high - low for low, high in pairwise(percents)]
    if convex:
        drops = sorted(drops, reverse=True)
        drops = [drop * length for drop, length in zip(drops, lengths, strict=True)]
    value = draw(st.floats(0.5, 10.0))
    curve = [(percents[-1], value)]
    for percent, drop in zip(reversed(percents[:-1]), reversed(drops), strict=True):
        value += drop
        curve.insert(0, (percent, value))
    return tuple(curve)


@st.composite
def pressures(draw: st.DrawFn, may_fall: bool) -> Curve:
    percents = sorted(draw(st.sets(st.integers(1, MOST_PERCENT), min_size=1, max_size=3)))
    values = draw(st.lists(VALUES, min_size=len(percents), max_size=len(percents)))
    return tuple(zip(percents, values if may_fall else sorted(values), strict=True))


@st.composite
def shared_gpus(draw: st.DrawFn, convex: bool = False, may_fall: bool = False, most_residents: int = 3) -> SharedGpu:
    residents = []
    for i in range(draw(st.integers(1, most_residents))):
        curve = draw(latencies(convex))
        # What is allowed lies on the curve or a little above it, so that both answers come up.
        limit_ms = draw(st.sampled_from(curve))[1] * draw(st.floats(1.0, 3.0))
        batch = draw(st.integers(1, 32))
        residents.append(
            SharingResident(
                name=f"r{i}",
                batch=batch,
                latency_ms=curve,
                slo_ms=draw(st.floats(limit_ms, 4 * limit_ms)),
                rate_per_second=1000 * batch / limit_ms,  # W = rate x SLO: the SLO cancels out
                pressure=draw(pressures(may_fall)),
                sensitivity=draw(VALUES),
            )
        )
    return SharedGpu(tuple(residents), other_pressure=draw(VALUES), free_percent=draw(st.integers(2, 27)))


def right_answers(gpu: SharedGpu) -> list[dict[str, int]]:
    """Every right choice of SM%, by trying each."""
    names = [resident.name for resident in gpu.residents]
    ranges = [range(resident.least_percent, resident.most_percent + 1) for resident in gpu.residents]
    tried = (dict(zip(names, percents, strict=True)) for percents in product(*ranges))
    return [percents for percents in tried if not violations(gpu, percents)]
