"""Interference of models never measured beside others (gavel), of mixes left out (miso), and choices of neighbours."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.gavel import FILE, TYPES, GavelTable, family, read_gavel
from lab.accuracy.interference_baselines import AGAINST_ALONE, BETWEEN_LEVELS, Fit
from lab.accuracy.miso import read_miso
from lab.interference.strangers import InterferenceModel, fit
from lab.interference.traits import Traits
from solvers.interference.candidate import FittedInterference, Floats
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

FAMILY_SPLITS, BATCH_SPLITS, MIX_FOLDS = 20, 4, 3
GPUS = 6  # to choose from, as many as Mudi has services
CHOICES = 20  # sets of GPUs drawn for each job
NEAR_BEST = 0.01
OURS = "ours"


def rows(data: Path) -> list[AccuracyRow]:
    """Returns gavel's rows and miso's."""
    table = read_gavel(data)
    by_family = [_half(table.families, seed) for seed in range(FAMILY_SPLITS)]
    seen_models = [frozenset(m for m in table.models if family(m) in seen) for seen in by_family]
    errors, chosen = _halves(table, seen_models)
    batches, _ = _halves(table, [_half(table.models, seed) for seed in range(BATCH_SPLITS)], False)
    return [
        _row("interference.gavel", str(FILE), errors, "pairs with a model of an unseen family; throughput; 20 halves"),
        _row(
            "interference.gavel.batches", str(FILE), batches, "as above, but models with another batch count as unseen"
        ),
        _measured(table),
        chosen,
        _miso(data),
    ]


def _half(names: Sequence[str], seed: int) -> frozenset[str]:
    """Draws half of the names; of an odd number, one more at every other seed."""
    order = list(names)
    random.Random(seed).shuffle(order)  # noqa: S311 # a split, no secret
    return frozenset(order[: (len(order) + seed % 2) // 2])


def _halves(
    table: GavelTable, splits: Sequence[frozenset[str]], by_family: bool = True
) -> tuple[dict[str, Floats], AccuracyRow]:
    """Returns errors of throughput by method, and the row of choices of a neighbour."""
    errors: dict[str, list[Floats]] = {}
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for seed, seen in enumerate(splits):
        for gpu_type in TYPES:
            traits = table.traits(gpu_type)
            if not by_family:
                traits = Traits(traits.numbers, {}, traits.compute_to_memory)
            known = [each for each in table.pairs[gpu_type] if each.run.models <= seen]
            judged = [each for each in table.pairs[gpu_type] if not each.run.models <= seen]
            fits = {OURS: fit(known, traits), **{name: each(known, traits) for name, each in AGAINST_ALONE.items()}}
            for name, fitted in fits.items():
                errors.setdefault(name, []).append(_errors(fitted, judged))
                if by_family:
                    hits.setdefault(name, []).extend(_choices(fitted, judged, seen, seed))
    found = {name: np.concatenate(each) for name, each in errors.items()}
    share = {name: 100 * np.array(each).mean(0) for name, each in hits.items()}
    both = ", ".join(f"{name} {each[1]:.1f}" for name, each in share.items())
    resident = {name: float(each[0]) for name, each in share.items()}
    return found, AccuracyRow(
        "colocation.gavel",
        str(FILE),
        len(hits.get(OURS, ())),
        resident.pop(OURS, 0.0),
        resident,
        note=f"a job of an unseen family goes to one of {GPUS} GPUs where the resident's predicted slowdown is least;"
        f" optimal: measured at most {NEAR_BEST:.0%} above the least. By both slowdowns added: {both}. Mudi: 92.67",
    )


def _errors(fitted: FittedInterference | InterferenceModel, judged: Sequence[SlowdownObservation]) -> Floats:
    """Returns errors of the predicted throughput, relative to the measured one."""
    predicted = np.maximum(fitted.log_slowdowns([each.run for each in judged]), 0.0)
    found: Floats = np.abs(np.exp(np.log([each.slowdown for each in judged]) - predicted) - 1)
    return found


def _choices(
    fitted: FittedInterference | InterferenceModel,
    judged: Sequence[SlowdownObservation],
    seen: frozenset[str],
    seed: int,
) -> Iterator[tuple[bool, bool]]:
    """Yields, for draws of GPUs whose residents are known, if the choice is near the best: for the resident; for both.

    Mudi chooses by what the resident loses, since a service has a promise and a job has none."""
    measured = {(each.run.model, each.run.neighbours[0].model): each.slowdown for each in judged}
    jobs = sorted({job for job, _ in measured} - seen)
    draw = random.Random(seed)  # noqa: S311
    for job in jobs:
        able = [other for other in sorted(seen) if (job, other) in measured and (other, job) in measured]
        if len(able) < GPUS:
            continue
        truth = np.array([(measured[other, job], measured[job, other]) for other in able])
        runs = [SharedRun(a, 100, (Neighbour(b),)) for other in able for a, b in ((other, job), (job, other))]
        predicted = np.exp(np.maximum(fitted.log_slowdowns(runs), 0.0)).reshape(-1, 2)
        for _ in range(CHOICES):
            gpus = draw.sample(range(len(able)), GPUS)
            yield (
                _is_near_best(predicted[gpus, 0], truth[gpus, 0]),
                _is_near_best(predicted[gpus].sum(1), truth[gpus].sum(1)),
            )


def _is_near_best(predicted: Floats, truth: Floats) -> bool:
    return bool(truth[int(predicted.argmin())] <= truth.min() * (1 + NEAR_BEST))


def _measured(table: GavelTable) -> AccuracyRow:
    """Judges pairs left out of models that were measured beside others: what a vector adds to a scalar."""
    errors: dict[str, list[Floats]] = {}
    methods = set()
    for gpu_type in TYPES:
        traits, pairs = table.traits(gpu_type), table.pairs[gpu_type]
        mixes = sorted({each.run.mix for each in pairs})
        random.Random(0).shuffle(mixes)  # noqa: S311
        for fold in range(MIX_FOLDS):
            out = set(mixes[fold::MIX_FOLDS])
            known = [each for each in pairs if each.run.mix not in out]
            judged = [each for each in pairs if each.run.mix in out]
            model = fit(known, traits)
            methods.add(model.measured.method)
            errors.setdefault(OURS, []).append(_errors(model, judged))
            for name, each in AGAINST_ALONE.items():
                errors.setdefault(name, []).append(_errors(each(known, traits), judged))
    note = f"pairs left out of models that other pairs have; throughput; chosen: {', '.join(sorted(methods))}"
    return _row("interference.gavel.measured", str(FILE), {k: np.concatenate(each) for k, each in errors.items()}, note)


def _miso(data: Path) -> AccuracyRow:
    observations, traits = read_miso(data)
    mixes = sorted({each.run.mix for each in observations})
    random.Random(0).shuffle(mixes)  # noqa: S311
    errors: dict[str, list[Floats]] = {}
    methods = []
    for fold in range(MIX_FOLDS):
        out = set(mixes[fold::MIX_FOLDS])
        known = [each for each in observations if each.run.mix not in out]
        judged = [each for each in observations if each.run.mix in out]
        logs = np.log([each.slowdown for each in judged])
        runs = [each.run for each in judged]
        model = fit(known, traits)
        methods.append(model.measured.method)
        fits: dict[str, FittedInterference | InterferenceModel] = {OURS: model}
        fits |= {name: _fitted(each, known, traits) for name, each in BETWEEN_LEVELS.items()}
        for name, fitted in fits.items():
            errors.setdefault(name, []).append(np.abs(np.exp(logs - fitted.log_slowdowns(runs)) - 1))
    note = f"speed at 50 and 14 % against 100 %, whole mixes left out; chosen: {', '.join(sorted(set(methods)))}"
    return _row("interference.miso", "miso", {name: np.concatenate(each) for name, each in errors.items()}, note)


def _fitted(method: Fit, known: Sequence[SlowdownObservation], traits: Traits) -> FittedInterference:
    return method(known, traits)


def _row(what: str, data: str, errors: dict[str, Floats], note: str) -> AccuracyRow:
    means = {name: 100 * float(each.mean()) for name, each in errors.items()}
    high = {name: 100 * float(np.quantile(each, 0.9)) for name, each in errors.items()}
    quantiles = ", ".join(f"{name} {value:.1f}" for name, value in high.items())
    return AccuracyRow(what, data, len(errors[OURS]), means.pop(OURS), means, note=f"{note}; 0.9 quantile: {quantiles}")
