"""Measures how far the Profiles of campaigns are from the truth of simulated GPUs, at every setting.

A campaign chooses its settings as on a node, and measures them with a random error. The truth is the physics that
`--truth made` draws, which the fitted curves do not know.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cli.arguments import part, positive, whole
from cli.bench.plan_arguments import Say
from cli.profiling.asked import whole_numbers

if TYPE_CHECKING:
    import numpy as np

    from agents.contract.campaigns import CopySetting, MeasuredSetting, SharedCopyTimes
    from simulation.truth.fitting import LoadKey
    from simulation.truth.physics import Physics

SHOWN = (
    "seed", "what", "profiles", "points", "measurements", "mean", "worst_median", "worst", "covered", "left_out",
    "random", "none", "by_batch", "half", "half_by_batch", "all", "all_by_batch",
)  # fmt: skip
TOP_MHZ = 1000  # clocks are shares of the highest
AT = datetime(2026, 1, 1, tzinfo=UTC)
MODELS = 3  # a model and its neighbours


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=5, help="truths; default 5")
    parser.add_argument("--accuracy", metavar="SHARE", type=part, default=0.04, help="of a campaign; default 0.04")
    parser.add_argument("--most", metavar="N", type=whole(2, 256), default=16, help="most measurements; default 16")
    parser.add_argument("--noise", metavar="SHARE", type=positive, default=0.01, help="of a measurement; default 0.01")
    parser.add_argument("--every", metavar="N", type=whole(1), default=6, help="of the fleet's profiles; default 6")
    parser.add_argument(
        "--clocks", metavar="MHZ,...", type=whole_numbers, default=[TOP_MHZ], help="of 1000 MHz; default the highest"
    )


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns for each seed a row of models alone and one of models beside neighbours; errors in percent."""
    from app.control.formulate.problem import build_problem
    from cli.up.fleet import fleet_file
    from simulation import world
    from simulation.physical_truth import learn
    from simulation.truth.physics import Physics

    problem = build_problem(world.read_files(fleet_file()))
    rows = []
    for seed in range(args.seeds):
        physics = Physics(seed)
        learn(physics, problem)
        keys = sorted(problem.profiles)[seed % args.every :: args.every]
        for row in (_alone(args, physics, keys, seed), _measure_slowdowns(args, physics, keys, seed)):
            rows.append(row)
            say(" ".join(f"{name} {row[name]:.4g}" if name != "what" else row[name] for name in SHOWN if name in row))
    return {"rows": rows}


def _alone(args: argparse.Namespace, physics: Physics, keys: Sequence[LoadKey], seed: int) -> dict[str, Any]:
    """Returns how far Profiles are at all batches, shares and clocks of a campaign."""
    import numpy as np

    from app.campaigns.choosing import choose
    from app.campaigns.limits import BATCHES, SM_PERCENTS, grid
    from app.campaigns.profile import ProfileSubject, profile_of
    from lab.accuracy.latency_baselines import interpolation
    from solvers.curves.measurement import Setting

    settings = grid(BATCHES, SM_PERCENTS, sorted({*args.clocks, TOP_MHZ}))
    errors, by_chance, covered, counts, left_out = [], [], [], [], []
    for index, key in enumerate(keys):
        draw = np.random.default_rng([seed, 1, index])
        true = _truth(physics, key)
        done: list[MeasuredSetting] = []
        while (setting := choose(settings, done, (), args.accuracy, args.most)) is not None:
            done.append(_measured(len(done) + 1, setting, true(setting) * _off(draw, args.noise)))
        made = profile_of(ProfileSubject(key[0], key[1], key[2], TOP_MHZ), done, settings)
        predicted = [_predicted(made.manifest["spec"], setting) for setting in settings]
        truth = np.array([true(setting) for setting in settings])
        errors.append(np.array([mean for mean, _ in predicted]) / truth - 1)
        covered.append(np.array([upper for _, upper in predicted]) >= truth)
        counts.append(len(done))
        left_out.append(made.left_out_error or 0.0)
        drawn = [settings[place] for place in draw.permutation(len(settings))[: len(done)]]
        places = [Setting(s.batch, s.sm_percent, s.clock_mhz) for s in drawn]
        seen = np.array([true(setting) * _off(draw, args.noise) for setting in drawn])
        everywhere = [Setting(s.batch, s.sm_percent, s.clock_mhz) for s in settings]
        by_chance.append(interpolation(places, seen, everywhere) / truth - 1)
    return {
        "seed": seed, "what": "alone", **_figures(errors, counts),
        "covered": 100 * float(np.mean(covered)),
        "left_out": 100 * float(np.mean(left_out)),
        "random": 100 * float(np.mean(np.abs(by_chance))),
    }  # fmt: skip


def _measure_slowdowns(
    args: argparse.Namespace, physics: Physics, keys: Sequence[LoadKey], seed: int
) -> dict[str, Any]:
    """Returns how far the slowdowns are that Profiles give, at all settings of three models on one kind of GPU."""
    import numpy as np

    from app.campaigns.limits import BESIDE_BATCHES, BESIDE_SM_PERCENTS, neighbour_settings
    from app.campaigns.neighbour_profiles import DeclaredProfile, neighbour_profiles
    from app.campaigns.neighbours import choose_neighbour_setting
    from lab.bench.profiler_batches import batch_errors

    settings = neighbour_settings(BESIDE_BATCHES, BESIDE_SM_PERCENTS, TOP_MHZ, MODELS - 1)
    errors, without, counts, rules = [], [], [], []
    for index, key in enumerate(keys):
        draw = np.random.default_rng([seed, 2, index])
        others = sorted(other for other in physics.known if other[2] == key[2] and other[0] != key[0])
        if len(others) < MODELS - 1:
            continue
        chosen = [key, *(others[place] for place in sorted(draw.permutation(len(others))[: MODELS - 1]))]
        names = [f"{model}/{variant}" for model, variant, _ in chosen]
        done: list[MeasuredSetting] = []
        while (setting := choose_neighbour_setting(settings, names, done, (), args.accuracy, args.most)) is not None:
            done.append(_measured_together(len(done) + 1, setting, chosen, physics, partial(_off, draw, args.noise)))
        declared = [DeclaredProfile(name, _spec_of(one)) for name, one in zip(names, chosen, strict=True)]
        predicted = _predicted_slowdowns(neighbour_profiles(declared, done).manifests)
        exact = [_measured_together(1, setting, chosen, physics, lambda: 1.0) for setting in settings]
        true = [each for found in exact for each in _pair_with_others(found.copies)]
        slowdowns = np.array([mine.beside_ms / mine.alone_ms for mine, _ in true])
        errors.append(np.array([predicted(mine, rest) for mine, rest in true]) / slowdowns - 1)
        without.append(1 / slowdowns - 1)
        counts.append(len(done))
        rules.append(batch_errors(done, exact, draw))
    return {
        "seed": seed, "what": "beside", **_figures(errors, counts),
        "none": 100 * float(np.mean(np.abs(np.concatenate(without)))),
        **{name: 100 * float(np.mean(np.abs(np.concatenate([rule[name] for rule in rules])))) for name in rules[0]},
    }  # fmt: skip


def _figures(errors: Sequence[np.ndarray[Any, Any]], counts: Sequence[int]) -> dict[str, float]:
    import numpy as np

    worst = [float(np.abs(each).max()) for each in errors]
    return {
        "profiles": len(errors),
        "points": sum(len(each) for each in errors),
        "measurements": float(np.mean(counts)),
        "mean": 100 * float(np.mean(np.abs(np.concatenate(list(errors))))),
        "worst_median": 100 * float(np.median(worst)),
        "worst": 100 * max(worst),
    }


def _truth(physics: Physics, key: LoadKey) -> Callable[[CopySetting], float]:
    top_mhz = physics.gpu(key[2]).top_clock_mhz
    return lambda s: physics.alone_ms(key, s.batch, s.sm_percent, top_mhz * s.clock_mhz / TOP_MHZ)


def _off(draw: np.random.Generator, noise: float) -> float:
    return max(0.1, 1 + noise * float(draw.standard_normal()))


def _measured(sequence: int, setting: CopySetting, latency_ms: float) -> MeasuredSetting:
    from agents.contract.campaigns import MeasuredSetting

    return MeasuredSetting(sequence, setting, AT, latency_ms=latency_ms, spread_ms=0.0, samples=1)


def _predicted(spec: Mapping[str, Any], setting: CopySetting) -> tuple[float, float]:
    """Returns mean and upper quantile as the planner reads them; a table's places alone are in logarithms."""
    import numpy as np

    slow = float((TOP_MHZ / setting.clock_mhz) ** spec.get("clockExponent", 1.0))
    batches = sorted(spec["latencyMs"], key=int)

    def average_error(name: str) -> float:
        rows = []
        for batch in batches:
            row = spec["latencyMs"][batch]
            shares = sorted(row, key=float)
            rows.append(np.interp(setting.sm_percent, [float(s) for s in shares], [row[s][name] for s in shares]))
        return float(np.interp(setting.batch, [int(batch) for batch in batches], rows)) * slow

    return average_error("mean"), average_error("q90")


def _measured_together(
    sequence: int, setting: CopySetting, keys: Sequence[LoadKey], physics: Physics, off: Callable[[], float]
) -> MeasuredSetting:
    """Returns what is measured at a setting: each copy alone, and among the others."""
    from agents.contract.campaigns import MeasuredSetting, SharedCopyTimes
    from simulation.truth.physics import RunningLoad

    group = [RunningLoad(keys[0], setting.batch, setting.sm_percent)]
    group += [
        RunningLoad(keys[1 + neighbour.number], neighbour.batch, neighbour.sm_percent) for neighbour in setting.beside
    ]
    times = physics.together(group).times_ms
    copies = tuple(
        SharedCopyTimes(
            load.key[0],
            load.key[1],
            int(load.batch),
            load.sm_percent,
            physics.alone_ms(load.key, load.batch, load.sm_percent) * off(),
            time * off(),
            0.0,
            1,
        )
        for load, time in zip(group, times, strict=True)
    )
    return MeasuredSetting(sequence, setting, AT, latency_ms=times[0], spread_ms=0.0, samples=1, copies=copies)


def _pair_with_others(copies: Sequence[SharedCopyTimes]) -> list[tuple[SharedCopyTimes, list[SharedCopyTimes]]]:
    """Returns each copy with those beside it."""
    return [(mine, [other for other in copies if other is not mine]) for mine in copies]


def _spec_of(key: LoadKey) -> dict[str, Any]:
    return {"model": key[0], "variant": key[1], "gpuType": key[2]}


def _predicted_slowdowns(
    manifests: Sequence[Mapping[str, Any]],
) -> Callable[[SharedCopyTimes, Sequence[SharedCopyTimes]], float]:
    """Returns the planner's rule with the values of these Profiles."""
    import numpy as np

    from solvers.interference.pure_factors import BANDWIDTH, COMPUTE

    specs = {f"{made['spec']['model']}/{made['spec']['variant']}": made["spec"] for made in manifests}

    def values(copy: SharedCopyTimes, field: str) -> Mapping[str, Any]:
        """Returns a field by factor; one that names no factor is all compute."""
        value = specs[f"{copy.model}/{copy.variant}"].get(field, {})
        return value if BANDWIDTH in value or not value else {COMPUTE: value}

    def pressure(other: SharedCopyTimes, factor: str) -> float:
        row = values(other, "pressure").get(factor, {})
        shares = sorted(row, key=float)
        means = [row[share]["mean"] for share in shares]
        return float(np.interp(other.sm_percent, [float(share) for share in shares], means)) if means else 0.0

    def slowdown(mine: SharedCopyTimes, others: Sequence[SharedCopyTimes]) -> float:
        return 1 + sum(
            float(sensitivity["mean"]) * sum(pressure(other, factor) for other in others)
            for factor, sensitivity in values(mine, "sensitivity").items()
        )

    return slowdown
