"""Explains why a GPU idles or a model runs nowhere, and the least change that helps while all else stays."""

from __future__ import annotations

import numpy as np

from lab.morak import judge
from lab.morak.problem import PoweredGpu, PoweredModel, PoweredSetting, PowerProblem, Starved
from lab.morak.tables import tables
from solvers.morak.power.options import LET_GO, PowerOption, PowerTables, enumerate_options
from solvers.morak.power.problem import PoweredResident

CUT_SHORT = ("it would still fit; the search was stopped early", "more work")


def starved(problem: PowerProblem, settings: tuple[PoweredSetting, ...]) -> tuple[Starved, ...]:
    """Explains everything that gets nothing: GPUs first, each kind by name."""
    busy = {setting.gpu for setting in settings}
    runs = {resident.model for setting in settings for resident in setting.residents}
    free_w = _free_w(problem, settings)
    gpus = [_gpu(problem, gpu, free_w) for gpu in sorted(problem.gpus, key=lambda g: g.name) if gpu.name not in busy]
    models = [
        _model(problem, model, busy, free_w)
        for model in sorted(problem.models, key=lambda model: model.name)
        if model.name not in runs
    ]
    return (*gpus, *models)


def _free_w(problem: PowerProblem, settings: tuple[PoweredSetting, ...]) -> float:
    """Returns the watts of the budget that are not drawn; below 0 if idle GPUs alone exceed the budget."""
    if problem.budget_w is None:
        return np.inf
    idle = sum(problem.gpu_types[gpu.gpu_type].idle_w for gpu in problem.gpus)
    types = {gpu.name: problem.gpu_types[gpu.gpu_type] for gpu in problem.gpus}
    return problem.budget_w - idle - sum(judge.watts(problem, s) - types[s.gpu].idle_w for s in settings)


def _gpu(problem: PowerProblem, gpu: PoweredGpu, free_w: float) -> Starved:
    items = tables(problem, gpu)
    idle_w, cap_w = problem.gpu_types[gpu.gpu_type].idle_w, problem.cap_w(gpu)
    if not len(items.share):
        return Starved("gpu", gpu.name, f"no model it admits was measured on {gpu.gpu_type}",
                       f"a profile on {gpu.gpu_type}")  # fmt: skip
    alone = least_alone(items, np.inf)
    if alone is None:
        return Starved("gpu", gpu.name, *_slow_words(*_fastest(items, _ceiling(problem, gpu, free_w), cap_w)))
    if idle_w + alone.watts > cap_w * (1 + LET_GO):
        needed = _up(idle_w + alone.watts)
        return Starved("gpu", gpu.name, f"its cap is {cap_w:g} W; {_words(alone)} draws {idle_w + alone.watts:.6g} W, "
                       "and nothing less", f"a cap of {needed:.6f} W")  # fmt: skip
    budget = problem.budget_w or 0.0
    if alone.watts <= free_w:
        return Starved("gpu", gpu.name, *CUT_SHORT)
    needed = _up(budget - free_w + alone.watts)
    return Starved("gpu", gpu.name, f"of the fleet's {budget:g} W, {max(free_w, 0.0):.6g} W are left; "
                   f"{_words(alone)} takes {alone.watts:.6g} W", f"a budget of {needed:.6f} W")  # fmt: skip


def _model(problem: PowerProblem, model: PoweredModel, busy: set[str], free_w: float) -> Starved:
    admitting = [gpu for gpu in problem.gpus if gpu.models is None or model.name in gpu.models]
    measured = [gpu for gpu in admitting if model.sm_percents.get(gpu.gpu_type)]
    if not measured:
        types = ", ".join(sorted({gpu.gpu_type for gpu in admitting})) or "any GPU that admits it"
        return Starved("model", model.name, f"it was not measured on {types}", f"a profile on {types}")
    found: list[tuple[float, PoweredGpu, PowerOption]] = []
    capped: list[tuple[float, PoweredGpu, PowerOption]] = []
    for gpu in sorted(measured, key=lambda gpu: gpu.name):
        alone = least_alone(_narrow(tables(problem, gpu), model), np.inf)
        if alone:
            draw = problem.gpu_types[gpu.gpu_type].idle_w + alone.watts
            fits = draw <= problem.cap_w(gpu) * (1 + LET_GO)
            (found if fits else capped).append((alone.watts if fits else draw, gpu, alone))
    if not found and not capped:
        idle_gpus = [gpu for gpu in measured if gpu.name not in busy]
        slow, gpu_type = min(
            (_fastest(_narrow(tables(problem, gpu), model), _ceiling(problem, gpu, free_w), problem.cap_w(gpu)),
             gpu.gpu_type) for gpu in idle_gpus or measured
        )  # fmt: skip
        reason, relaxation = _slow_words(*slow)
        return Starved("model", model.name, reason,
                       relaxation if idle_gpus else f"{relaxation} and one more GPU of {gpu_type}")  # fmt: skip
    if not found:
        draw, gpu, alone = min(
            capped, key=lambda each: (each[1].name in busy, each[0] - problem.cap_w(each[1]), each[1].name)
        )
        higher = f"a cap of {_up(draw):.6f} W on"
        return Starved("model", model.name, f"every GPU's cap is below its power draw: {gpu.name} is capped at "
                       f"{problem.cap_w(gpu):g} W, {_words(alone)} there draws {draw:.6g} W",
                       f"one more GPU of {gpu.gpu_type} and {higher} it" if gpu.name in busy
                       else f"{higher} {gpu.name}")  # fmt: skip
    idle = [each for each in found if each[1].name not in busy]
    if idle:
        watts, gpu, alone = min(idle, key=lambda each: (each[0], each[1].name))
        if watts <= free_w:
            return Starved("model", model.name, *CUT_SHORT)
        needed = _up((problem.budget_w or 0.0) - free_w + watts)
        return Starved("model", model.name, f"the fleet's budget is used; {_words(alone)} on {gpu.name} takes "
                       f"{watts:.6g} W, {max(free_w, 0.0):.6g} W are left", f"a budget of {needed:.6f} W")  # fmt: skip
    watts, gpu, alone = min(found, key=lambda each: (each[0], each[1].name))
    more = watts + problem.gpu_types[gpu.gpu_type].idle_w
    budget = "" if more <= free_w else f" and a budget of {_up((problem.budget_w or 0.0) - free_w + more):.6f} W"
    return Starved("model", model.name, "every GPU is worth more with the models it runs now",
                   f"one more GPU of {gpu.gpu_type}{budget}")  # fmt: skip


def _ceiling(problem: PowerProblem, gpu: PoweredGpu, free_w: float) -> float:
    """Returns the most this GPU could draw if it were idle now and all others stayed as they are."""
    return min(problem.cap_w(gpu), problem.gpu_types[gpu.gpu_type].idle_w + free_w)


def least_alone(items: PowerTables, cap_w: float) -> PowerOption | None:
    """Returns the option of a single resident that draws the least watts under the cap."""
    found = enumerate_options(items, cap_w if np.isfinite(cap_w) else 1e9, 1, len(items.share) + 1)
    real = [option for option in found[0] if option.residents] if found else []
    return real[0] if real else None


def _narrow(items: PowerTables, model: PoweredModel) -> PowerTables:
    return items.only(np.flatnonzero(items.model == items.models.index(model.name)))


def _fastest(items: PowerTables, *ceilings_w: float) -> tuple[float, float, str, int, float]:
    """Returns the option of least exec / limit that fits into memory and under the first ceiling that admits any:
    (ratio, exec, model, batch, clock)."""
    took = np.where(items.fits_memory(), items.exec_ms, np.inf)[:, None, :]
    took = took * items.slower[:, :, None]
    for ceiling_w in ceilings_w:
        under = items.gpu_type.idle_w + items.power_w <= ceiling_w * (1 + LET_GO)
        if np.isfinite(took[under]).any():
            took = np.where(under[:, :, None], took, np.inf)
            break
    ratio = took / items.limit_ms[:, None, None]
    item, clock, batch = np.unravel_index(int(np.argmin(ratio)), ratio.shape)
    name = items.models[items.model[item]]
    exec_ms = float(took[item, clock, batch])
    return float(ratio[item, clock, batch]), exec_ms, name, int(items.batch[batch]), items.gpu_type.clocks_mhz[clock]


def _slow_words(ratio: float, exec_ms: float, model: str, batch: int, clock_mhz: float) -> tuple[str, str]:
    if not np.isfinite(ratio):
        return f"no batch of {model} fits into its memory", "a GPU with more memory"
    return (f"{model} takes {exec_ms:.6g} ms at its fastest (batch {batch}, {clock_mhz:g} MHz); its limit is "
            f"{exec_ms / ratio:g} ms", f"a limit of {_up(exec_ms):.6f} ms for {model}")  # fmt: skip


def _words(option: PowerOption) -> str:
    resident: PoweredResident = option.residents[0]
    return f"{resident.model} at batch {resident.batch}, {resident.sm_percent} SM% and {option.clock_mhz:g} MHz"


def _up(value: float) -> float:
    """Adds a little, so that the printed number suffices when it is read back."""
    return value * (1 + 1e-9) + 1e-6
