"""Compares one pressure and one sensitivity a model, as in a Profile, with values of their own for each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agents.contract.campaigns import MeasuredSetting, SharedCopyTimes
    from solvers.interference.scalars import MeasuredScalars

HALVES = 2


def batch_errors(
    done: Sequence[MeasuredSetting], exact: Sequence[MeasuredSetting], draw: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Returns errors of slowdowns, as shares, by what was fitted: what a campaign measured, a random half, or all.

    Those of the campaign and of all settings are at all settings, those of a half at the other half.
    """
    order = draw.permutation(len(exact))
    half, rest = ([exact[place] for place in order[start::HALVES]] for start in range(HALVES))
    return {
        "by_batch": _errors(done, exact, by_batch=True),
        "half": _errors(half, rest, by_batch=False),
        "half_by_batch": _errors(half, rest, by_batch=True),
        "all": _errors(exact, exact, by_batch=False),
        "all_by_batch": _errors(exact, exact, by_batch=True),
    }


def _errors(
    measured: Sequence[MeasuredSetting], judged: Sequence[MeasuredSetting], *, by_batch: bool
) -> NDArray[np.float64]:
    """Returns by which share the rule misses each slowdown; a batch never measured counts as its model."""
    import numpy as np

    from app.campaigns.neighbours import slowdowns
    from solvers.interference.scalars import pressure_and_sensitivity

    found = dict(pressure_and_sensitivity(slowdowns(measured)))
    if by_batch:
        found |= pressure_and_sensitivity(slowdowns(_apart_by_batch(measured)))
    errors = []
    for setting in judged:
        for place, copy in enumerate(setting.copies):
            others = [other for number, other in enumerate(setting.copies) if number != place]
            pressure = sum(_pressure(found, other, by_batch) for other in others)
            errors.append((1 + _sensitivity(found, copy, by_batch) * pressure) * copy.alone_ms / copy.beside_ms - 1)
    return np.array(errors)


def _apart_by_batch(measured: Sequence[MeasuredSetting]) -> list[MeasuredSetting]:
    """Returns the measurements with each batch of a model as a model of its own."""
    import msgspec

    return [
        msgspec.structs.replace(
            found, copies=tuple(msgspec.structs.replace(copy, variant=_variant(copy)) for copy in found.copies)
        )
        for found in measured
    ]


def _variant(copy: SharedCopyTimes) -> str:
    return f"{copy.variant} batch {copy.batch}"


def _names(copy: SharedCopyTimes, by_batch: bool) -> list[str]:
    """Returns under which names its values may stand, the closest first."""
    return [*([f"{copy.model}/{_variant(copy)}"] if by_batch else []), f"{copy.model}/{copy.variant}"]


def _pressure(found: Mapping[str, MeasuredScalars], copy: SharedCopyTimes, by_batch: bool) -> float:
    import numpy as np

    for name in _names(copy, by_batch):
        if name in found and (known := sorted(found[name].pressure.items())):
            return float(np.interp(copy.sm_percent, [at for at, _ in known], [value.mean for _, value in known]))
    return 0.0


def _sensitivity(found: Mapping[str, MeasuredScalars], copy: SharedCopyTimes, by_batch: bool) -> float:
    for name in _names(copy, by_batch):
        if name in found and (sensitivity := found[name].sensitivity):
            return sensitivity.mean
    return 0.0
