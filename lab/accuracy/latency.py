"""The errors of fitted latency curves on measured latencies that they have not seen.

Each of 20 seeds withholds a random fifth of a model's settings from the choice, lets `next_setting` choose what is
measured among the others, and judges the curve on every setting that was not measured. Seed 0 withholds nothing. The
baselines measure as many settings, drawn at random, and are judged in the same way. Other numbers of measurements than
16, and the rounded latencies, are judged with the first five seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.latency_baselines import BASELINES
from lab.accuracy.latency_tables import CLOCK_MHZ, HASGPU, PARVAGPU, Table, hasgpu, parvagpu
from solvers.curves.choose import next_setting
from solvers.curves.curve import fit
from solvers.curves.measurement import Measurement, Setting

SEEDS = 20
FEW_SEEDS = 5  # of figures beside the first
OTHER_COUNTS = (4, 8, 32)
MOST = 16  # measurements, which the figure without a count is for
WITHHELD_SHARE = 0.2
QUANTILE = 0.9
CHOSEN = "chosen settings, linear interpolation"
ALONE = {  # candidates that know no physics, on the measurements of ours
    "chosen settings, interpolation of logarithms": "table",
    "chosen settings, InSS's local regression": "local regression",
}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """Errors in percent on what a curve had not seen, by predictor, and whether each value was below the quantile."""

    errors: Mapping[str, Floats]
    below: NDArray[np.bool_]
    method: str


def rows(data: Path) -> list[AccuracyRow]:
    """Returns both tables' errors by number of measurements, and the coverage of the upper quantile."""
    found: list[AccuracyRow] = []
    covered: list[Judged] = []
    for name, source, tables in (
        ("latency.hasgpu", str(HASGPU), hasgpu(data)),
        ("latency.parvagpu", str(PARVAGPU), parvagpu(data)),
    ):
        by_count = {**judge(tables, [MOST]), **judge(tables, OTHER_COUNTS, FEW_SEEDS)}
        covered += by_count[MOST]
        found += [row(name, source, count, judged) for count, judged in by_count.items() if judged]
    printed = judge(parvagpu(data, printed=True), [MOST], FEW_SEEDS)[MOST]
    found.append(row("latency.parvagpu.printed", str(PARVAGPU), MOST, printed))
    below = np.concatenate([judged.below for judged in covered])
    note = f"share of left-out latencies below the {QUANTILE} quantile, both tables, {SEEDS} seeds, {MOST} measurements"
    found.append(AccuracyRow("coverage.latency", "hasgpu, parvagpu", len(below), 100.0 * below.mean(), note=note))
    return found


def judge(tables: Mapping[str, Table], counts: Sequence[int], seeds: int = SEEDS) -> dict[int, list[Judged]]:
    """Returns what was judged at each number of measurements, for every model and seed."""
    found: dict[int, list[Judged]] = {count: [] for count in counts}
    for table in tables.values():
        for seed in range(seeds):
            chosen = chosen_settings(table, seed, max(counts))
            for count in counts:
                if count <= len(chosen):
                    found[count].append(_judged(table, chosen[:count], seed))
    return found


def chosen_settings(table: Table, seed: int, most: int) -> list[Setting]:
    """Lets `next_setting` choose what is measured; the stated accuracy is 0, so that it uses all measurements."""
    settings = sorted(table)
    if seed:
        kept = np.random.default_rng(seed).permutation(len(settings))[round(WITHHELD_SHARE * len(settings)) :]
        settings = [settings[index] for index in sorted(kept)]
    done: list[Measurement] = []
    while (setting := next_setting(done, settings, 0.0, most)) is not None:
        done.append(_measured(setting, table))
    return [measurement.setting for measurement in done]


def _judged(table: Table, chosen: Sequence[Setting], seed: int) -> Judged:
    measurements = [_measured(setting, table) for setting in chosen]
    curve = fit(measurements, CLOCK_MHZ)
    left, latencies = _left_out(table, chosen)
    means, deviations = (np.array(found) for found in curve.predict(left))
    errors = {"ours": _errors(np.exp(means), latencies)}
    upper = np.exp(means + deviations * NormalDist().inv_cdf(QUANTILE))
    errors[CHOSEN] = _errors(
        BASELINES["random settings, linear interpolation"](chosen, _latencies(table, chosen), left), latencies
    )
    for name, method in ALONE.items():
        alone, _ = fit(measurements, CLOCK_MHZ, method).predict(left)
        errors[name] = _errors(np.exp(np.array(alone)), latencies)
    settings = sorted(table)
    drawn = np.random.default_rng(1000 + seed).permutation(len(settings))[: len(chosen)]
    random = [settings[index] for index in drawn]
    others, truth = _left_out(table, random)
    for name, baseline in BASELINES.items():
        errors[name] = _errors(baseline(random, _latencies(table, random), others), truth)
    return Judged(errors, latencies <= upper, curve.method)


def row(name: str, source: str, count: int, judged: Sequence[Judged]) -> AccuracyRow:
    pooled = {key: np.concatenate([part.errors[key] for part in judged]) for key in judged[0].errors}
    means = {key: round(float(values.mean()), 3) for key, values in pooled.items()}
    ours = means.pop("ours")
    below = np.concatenate([part.below for part in judged])
    methods = [part.method for part in judged]
    used = ", ".join(f"{method} {methods.count(method)}" for method in sorted(set(methods)))
    note = (
        f"{count} measurements; median {np.median(pooled['ours']):.2f} %, {100 * below.mean():.1f} % below q{QUANTILE}"
    )
    what = name if count == MOST else f"{name}.{count}"
    return AccuracyRow(what, source, len(below), ours, means, note=f"{note}; chosen curves: {used}")


def _left_out(table: Table, known: Sequence[Setting]) -> tuple[list[Setting], Floats]:
    left = sorted(set(table) - set(known))
    return left, _latencies(table, left)


def _latencies(table: Table, settings: Sequence[Setting]) -> Floats:
    return np.array([table[setting] for setting in settings])


def _errors(predicted: Floats, latencies: Floats) -> Floats:
    result: Floats = 100.0 * np.abs(predicted / latencies - 1.0)
    return result


def _measured(setting: Setting, table: Table) -> Measurement:
    return Measurement(*_three(setting), table[setting], 0.0, 1)


def _three(setting: Setting) -> tuple[int, float, int]:
    return setting.batch, setting.sm_percent, setting.clock_mhz
