"""Compares the pressures and sensitivities of a model, as in a Profile, with values of their own for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from agents.contract.campaigns import MeasuredSetting, SharedCopyTimes
    from solvers.interference.profile_factors import MeasuredFactors

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
    from solvers.interference.profile_factors import pressure_and_sensitivity

    found = dict(pressure_and_sensitivity(slowdowns(measured)))
    if by_batch:
        found |= pressure_and_sensitivity(slowdowns(_apart_by_batch(measured)))

    def values(copy: SharedCopyTimes, field: str) -> MeasuredFactors | None:
        known = (found[name] for name in _names(copy, by_batch) if name in found)
        return next((each for each in known if getattr(each, field)), None)

    errors = []
    for setting in judged:
        for place, copy in enumerate(setting.copies):
            others = [other for number, other in enumerate(setting.copies) if number != place]
            pressures = [each.pressures_at(other.sm_percent) for other in others if (each := values(other, "pressure"))]
            mine = values(copy, "sensitivity")
            predicted = mine.slowdown_beside(pressures) if mine else 1.0
            errors.append(predicted * copy.alone_ms / copy.beside_ms - 1)
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
