"""Servers under a constant number of requests: a concurrency left out, and every run of a model, degree and lengths.

The sizes of the covariance's levels are learned from one half of those groups, and judged on the other half.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.llm.composed import composed_rows
from lab.data.csv_rows import read_rows
from lab.language.closed_loop import ClosedLoopModel, ClosedLoopRun, ConcurrencyOpinions, learned_levels

Floats = NDArray[np.float64]

FILE = Path("aiconfigurator") / "silicon_h100_h200.csv"
CONFIGURATION = ("backend_version", "precision", "gemm_quant_mode", "moe_quant_mode", "attention_dp_size")
COLUMNS = (
    "silicon_data_source", "batch_size", "mode", "silicon_ttft_ms", "silicon_tpot_ms", "moe_ep_size", "model_path",
    "system", "backend", *CONFIGURATION, "tp_size", "isl", "osl",
)  # fmt: skip
QUANTITIES = ("ttft", "tpot")
LINE = "interpolation of logarithms"
NEAREST = "nearest degree and lengths of the model"


def rows(data: Path) -> list[AccuracyRow]:
    """Returns the errors of both protocols, and those of a composition without any run."""
    measured = read_runs(data)
    runs = sorted(measured, key=lambda run: (run.levels, run.concurrency))
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    sweeps: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        groups[run.model, run.gpu_type, run.degree, run.input_tokens, run.output_tokens].append(index)
        sweeps[run.levels[-1]].append(index)
    found = []
    for column, quantity in enumerate(QUANTITIES):
        times = np.array([measured[run][column] for run in runs])
        single, whole, kept = _predicted(runs, times, list(groups.values()), list(sweeps.values()))
        found += _single_rows(quantity, runs, times, single, sweeps)
        near = np.concatenate([_nearest(runs, times, group) for group in groups.values()])
        order = np.concatenate([np.array(group) for group in groups.values()])
        found.append(
            _row(
                f"silicon.group.{quantity}",
                times[order],
                whole[order],
                {NEAREST: near},
                f"{len(groups)} groups of a model, a GPU type, a degree and lengths, each left out whole; "
                f"levels learned from groups of the other half ({kept} runs)",
            )
        )
    return found + composed_rows(data, measured)


def read_runs(data: Path) -> dict[ClosedLoopRun, tuple[float, float]]:
    """Returns mean TTFT and TPOT in ms of each configuration; repeats are one run, so none can stand in for another."""
    repeats: dict[ClosedLoopRun, list[tuple[float, float]]] = defaultdict(list)
    for entry in read_rows(data / FILE, COLUMNS):
        stated = re.search(r"silicon_concurrency=(\d+)", entry["silicon_data_source"])
        concurrency = int(stated[1]) if stated else int(entry["batch_size"] or 0)
        if entry["mode"] == "agg" and concurrency:
            times = float(entry["silicon_ttft_ms"]), float(entry["silicon_tpot_ms"])
            repeats[_run(entry, concurrency)].append(times)
    return {run: (_mean(each, 0), _mean(each, 1)) for run, each in repeats.items()}


def _run(entry: Mapping[str, str], concurrency: int) -> ClosedLoopRun:
    experts = "experts spread" if entry["moe_ep_size"] not in ("", "0", "1") else ""
    return ClosedLoopRun(
        entry["model_path"],
        entry["system"],
        entry["backend"],
        " ".join([*(entry[field] for field in CONFIGURATION), experts]),
        int(entry["tp_size"]),
        int(entry["isl"]),
        int(entry["osl"]),
        concurrency,
    )


def _mean(times: Sequence[tuple[float, float]], column: int) -> float:
    return sum(each[column] for each in times) / len(times)


def _predicted(
    runs: Sequence[ClosedLoopRun], times: Floats, groups: Sequence[list[int]], sweeps: Sequence[list[int]]
) -> tuple[Floats, Floats, int]:
    """Returns each run predicted without itself, and without its group; levels come from the other half's groups."""
    order = np.random.default_rng(0).permutation(len(groups))
    single, whole = np.empty(len(runs)), np.empty(len(runs))
    around = {sweep[at]: (sweep[at - 1], sweep[at + 1]) for sweep in sweeps for at in range(1, len(sweep) - 1)}
    used = 0
    for half in (order[::2], order[1::2]):
        other = [index for place in set(order) - set(half) for index in groups[place]]
        levels = learned_levels([runs[index] for index in other], np.log(times[other]))
        model = ClosedLoopModel(runs, times, levels)
        opinions = ConcurrencyOpinions(model, times)
        for place in half:
            whole[groups[place]] = model.leave_out(groups[place])
            for index in groups[place]:
                single[index] = (
                    opinions.leave_out(index, *around[index]) if index in around else model.leave_out([index])[0]
                )
        used = len(other)
    return single, whole, used


def _single_rows(
    quantity: str, runs: Sequence[ClosedLoopRun], times: Floats, single: Floats, sweeps: Mapping[str, list[int]]
) -> list[AccuracyRow]:
    """Judges concurrencies between others of their sweep, where interpolation has an answer; the ends beside them."""
    inner, ends, line = [], [], []
    for sweep in sweeps.values():
        if len(sweep) < 3:
            continue
        ends += [sweep[0], sweep[-1]]
        for place in range(1, len(sweep) - 1):
            before, index, after = sweep[place - 1 : place + 2]
            logs = np.log([runs[each].concurrency for each in (before, index, after)])
            share = (logs[1] - logs[0]) / (logs[2] - logs[0])
            inner.append(index)
            line.append(float(np.exp((1 - share) * np.log(times[before]) + share * np.log(times[after]))))
    outer = np.abs(single[ends] / times[ends] - 1)
    note = (
        f"a concurrency left out, between others of its sweep; at the ends of sweeps ({len(ends)}) "
        f"mean {100 * outer.mean():.1f}, median {100 * np.median(outer):.1f} %"
    )
    return [_row(f"silicon.{quantity}", times[inner], single[inner], {LINE: np.array(line)}, note)]


def _row(what: str, truth: Floats, predicted: Floats, others: Mapping[str, Floats], note: str) -> AccuracyRow:
    """Returns means for TPOT and medians for TTFT, whose tails are queues."""
    centre = np.median if what.endswith("ttft") else np.mean
    errors = {name: 100 * np.abs(each / truth - 1) for name, each in {"ours": predicted, **others}.items()}
    ours = errors.pop("ours")
    judged = "median" if what.endswith("ttft") else "mean"
    words = f"{judged}; {note}; mean {ours.mean():.1f}, median {np.median(ours):.1f} %"
    figures = {name: round(float(centre(each)), 3) for name, each in errors.items()}
    return AccuracyRow(what, str(FILE), len(truth), round(float(centre(ours)), 3), figures, note=words)


def _nearest(runs: Sequence[ClosedLoopRun], times: Floats, group: Sequence[int]) -> Floats:
    """Returns for each run of the group what the run of its model that is most like it had, outside the group."""
    out = set(group)
    found = []
    for index in group:
        run = runs[index]
        alike = [at for at, other in enumerate(runs) if other.model == run.model and at not in out]
        alike = alike or [at for at in range(len(runs)) if at not in out]
        mine = np.array(run.numbers)
        away = [
            float(np.abs(np.array(runs[at].numbers) - mine).sum())
            + (runs[at] != replace(runs[at], framework=run.framework, configuration=run.configuration))
            for at in alike
        ]
        found.append(times[alike[int(np.argmin(away))]])
    return np.array(found)
