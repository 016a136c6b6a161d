"""The items that a GPU of a power problem admits, as arrays."""

from __future__ import annotations

import numpy as np

from lab.morak.problem import PoweredGpu, PowerProblem
from solvers.morak.power.options import PowerTables
from solvers.planning.problem import Curve


def tables(problem: PowerProblem, gpu: PoweredGpu) -> PowerTables:
    """Returns the items that this GPU admits."""
    gpu_type = problem.gpu_types[gpu.gpu_type]
    admitted = [model for model in problem.models if gpu.models is None or model.name in gpu.models]
    models = tuple(sorted((m for m in admitted if gpu.gpu_type in m.profiles), key=lambda model: model.name))
    items = [(place, share) for place, model in enumerate(models) for share in model.sm_percents.get(gpu_type.name, ())]
    batches = sorted({batch for model in models for batch in model.profiles[gpu_type.name].latency_ms})
    clocks = np.array(gpu_type.clocks_mhz) / gpu_type.top_clock_mhz
    exec_ms = np.full((len(items), len(batches)), np.inf)
    memory_gib = np.full((len(items), len(batches)), np.inf)
    columns = np.zeros((5, len(items)))
    slower, power_w = np.ones((len(items), len(clocks))), np.ones((len(items), len(clocks)))
    for row, (place, share) in enumerate(items):
        model, profile = models[place], models[place].profiles[gpu_type.name]
        demand = profile.demand
        for column, batch in enumerate(batches):
            curve = profile.latency_ms.get(batch)
            if curve and curve[0][0] <= share <= curve[-1][0]:
                exec_ms[row, column] = _read_curve(curve, share)
                memory_gib[row, column] = profile.memory_gib[batch]
        columns[:, row] = (
            share,
            _read_curve(demand.whole_pressure, share),
            demand.most_sensitivity,
            model.limit_ms,
            model.weight,
        )
        slower[row] = (1 / clocks) ** demand.clock_exponent
        power_w[row] = _read_curve(demand.power_w, share) * clocks**demand.power_exponent
    return PowerTables(
        gpu_type=gpu_type,
        models=tuple(model.name for model in models),
        model=np.array([place for place, _ in items], np.int64),
        share=columns[0].astype(np.int64),
        batch=np.array(batches, np.int64),
        exec_ms=exec_ms,
        memory_gib=memory_gib,
        pressure=columns[1].copy(),
        sensitivity=columns[2].copy(),
        limit_ms=columns[3].copy(),
        batch_worth=columns[4][:, None] * np.array(batches, np.float64)[None, :] * 1000,
        most_worth=np.full(len(items), np.inf),
        slower=slower,
        power_w=power_w,
        kind=np.array([place for place, _ in items], np.int64),
    )


def _read_curve(curve: Curve, share: int) -> float:
    return float(np.interp(share, [point[0] for point in curve], [point[1] for point in curve]))
