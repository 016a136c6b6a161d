"""Writes pressures and sensitivities that were measured beside neighbours into Profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from agents.contract.campaigns import MeasuredSetting
from app.campaigns.neighbours import slowdowns
from app.manifests.model import API_VERSION, Free, WrittenSpec
from app.manifests.uncertain import MEAN_QUANTILE, is_uncertain, value_at
from solvers.interference import fit
from solvers.interference.scalars import MeasuredScalars, SpreadValue, pressure_and_sensitivity

DIGITS = 4
MOST_PRESSURE = 1.0  # that a Profile may have


@dataclass(frozen=True, slots=True)
class DeclaredProfile:
    """A Profile as it is declared."""

    name: str
    spec: WrittenSpec

    @property
    def variant(self) -> str:
        return f"{self.spec['model']}/{self.spec['variant']}"


@dataclass(frozen=True, slots=True)
class NeighbourProfiles:
    """Profiles as manifests, and how far their rule misses a mix that was left out (None: too few mixes)."""

    manifests: list[Free]
    left_out_error: float | None


def neighbour_profiles(declared: Sequence[DeclaredProfile], measured: Sequence[MeasuredSetting]) -> NeighbourProfiles:
    """Returns the Profiles of all models that were measured beside others on a GPU type.

    They are found together, since pressures have one scale: that of the pressures which are declared already, so that
    models that were not measured stay comparable; without any the largest is 1.
    """
    observations = slowdowns(measured)
    if not observations:
        return NeighbourProfiles([], None)
    found = pressure_and_sensitivity(observations)
    factor = _scale(declared, found)
    at = max(each.at for each in measured)
    manifests = [
        {
            "apiVersion": API_VERSION,
            "kind": "Profile",
            "metadata": {"name": profile.name},
            "spec": {**profile.spec, **scalar_fields(found[profile.variant], at, factor)},
        }
        for profile in declared
        if profile.variant in found
    ]
    return NeighbourProfiles(manifests, fit(observations).measured.errors.get("scalar"))


def scalar_fields(scalars: MeasuredScalars, at: datetime | None = None, factor: float = 1.0) -> dict[str, object]:
    """Returns the fields of a Profile as uncertain values; what was not measured is left out."""
    fields: dict[str, object] = {}
    if scalars.pressure:
        fields["pressure"] = {
            str(percent): _uncertain(value, at, factor, MOST_PRESSURE) for percent, value in scalars.pressure.items()
        }
    if scalars.sensitivity:
        fields["sensitivity"] = _uncertain(scalars.sensitivity, at, 1 / factor)
    return fields


def _uncertain(value: SpreadValue, at: datetime | None, factor: float, most: float = float("inf")) -> dict[str, object]:
    mean, q90 = (round(min(most, factor * each), DIGITS) for each in (value.mean, value.q90))
    date = {"at": at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"} if at else {}
    return {"mean": mean, "q90": q90, "n": value.samples, **date, "source": "measured"}


def _scale(declared: Sequence[DeclaredProfile], found: Mapping[str, MeasuredScalars]) -> float:
    """Returns the factor on measured pressures that keeps their mean where it is declared."""
    known, measured = 0.0, 0.0
    for profile in declared:
        scalars = found.get(profile.variant)
        if scalars is None or "pressure" not in profile.spec:
            continue
        for percent, value in scalars.pressure.items():
            known += _pressure_at(profile.spec["pressure"], percent)
            measured += value.mean
    largest = max((value.mean for scalars in found.values() for value in scalars.pressure.values()), default=0.0)
    if known <= 0 or measured <= 0:
        return 1.0
    return min(known / measured, MOST_PRESSURE / largest)


def _pressure_at(pressure: object, percent: int) -> float:
    if not isinstance(pressure, Mapping) or is_uncertain(pressure):
        return value_at(pressure, MEAN_QUANTILE)
    points = sorted((float(share), value_at(value, MEAN_QUANTILE)) for share, value in pressure.items())
    return float(np.interp(percent, [share for share, _ in points], [value for _, value in points]))
