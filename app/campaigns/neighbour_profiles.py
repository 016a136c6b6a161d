"""Writes pressures and sensitivities that were measured beside neighbours into Profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from agents.contract.campaigns import MeasuredSetting
from app.campaigns.neighbours import slowdowns
from app.manifests.model import API_VERSION, Free, WrittenSpec
from app.manifests.uncertain import MEAN_QUANTILE, is_pair, is_uncertain, value_at
from solvers.interference.choice import fit
from solvers.interference.profile_factors import MeasuredFactors, SpreadValue, name_candidate, pressure_and_sensitivity
from solvers.interference.pure_factors import COMPUTE, FACTORS

Value = TypeVar("Value")
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
    models that were not measured stay comparable; without any the largest of each factor is 1.
    """
    observations = slowdowns(measured)
    if not observations:
        return NeighbourProfiles([], None)
    found = _name_as_declared(declared, pressure_and_sensitivity(observations))
    scales = {name: _scale(declared, found, name) for name in FACTORS}
    at = max(each.at for each in measured)
    manifests = [
        {
            "apiVersion": API_VERSION,
            "kind": "Profile",
            "metadata": {"name": profile.name},
            "spec": {**profile.spec, **interference_fields(found[profile.variant], at, scales)},
        }
        for profile in declared
        if profile.variant in found
    ]
    return NeighbourProfiles(manifests, fit(observations).errors.get(name_candidate(found)))


def interference_fields(
    measured: MeasuredFactors, at: datetime | None = None, scales: Mapping[str, float] | None = None
) -> dict[str, object]:
    """Returns the fields of a Profile as uncertain values, by factor if there are two; what was not measured lacks."""
    scale = scales or dict.fromkeys(FACTORS, 1.0)
    fields: dict[str, object] = {}
    if measured.pressure:
        fields["pressure"] = _name_factors(
            {
                name: {
                    str(percent): _uncertain(value, at, scale[name], MOST_PRESSURE)
                    for percent, value in by_share.items()
                }
                for name, by_share in measured.pressure.items()
            }
        )
    if measured.sensitivity:
        fields["sensitivity"] = _name_factors(
            {name: _uncertain(value, at, 1 / scale[name]) for name, value in measured.sensitivity.items()}
        )
    return fields


def _name_as_declared(
    declared: Sequence[DeclaredProfile], found: Mapping[str, MeasuredFactors]
) -> Mapping[str, MeasuredFactors]:
    """Returns the factors by the names under which they press more like what is declared of the same models.

    Models that were not measured keep their pairs: what is bandwidth there must not become compute here.
    """
    rows: list[tuple[float, ...]] = []  # measured on compute and on bandwidth, then declared
    for profile in declared:
        pressure, measured = profile.spec.get("pressure"), found.get(profile.variant)
        if is_pair(pressure) and measured is not None and len(measured.pressure) == len(FACTORS):
            stated = [_read_factor(pressure, name) or 0.0 for name in FACTORS]
            for percent in measured.pressure[COMPUTE]:
                values = [measured.pressure[name][percent].mean for name in FACTORS]
                rows.append((*values, *(_pressure_at(each, percent) for each in stated)))
    apart = np.array(rows).reshape(-1, 2 * len(FACTORS))
    apart -= apart.mean(axis=0) if len(apart) else 0.0  # what all models have in common names nothing
    if (apart[:, :2] * apart[:, 2:]).sum() >= (apart[:, :2] * apart[:, :1:-1]).sum():
        return found
    return {model: MeasuredFactors(_swap(each.pressure), _swap(each.sensitivity)) for model, each in found.items()}


def _swap(by_factor: Mapping[str, Value]) -> dict[str, Value]:
    return {name: by_factor[other] for name, other in (FACTORS, FACTORS[::-1]) if other in by_factor}


def _name_factors(values: Mapping[str, dict[str, object]]) -> dict[str, object]:
    """Returns the values by factor; of compute alone its own."""
    return dict(values) if len(values) > 1 else values[COMPUTE]


def _uncertain(value: SpreadValue, at: datetime | None, factor: float, most: float = float("inf")) -> dict[str, object]:
    mean, q90 = (round(min(most, factor * each), DIGITS) for each in (value.mean, value.q90))
    date = {"at": at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"} if at else {}
    return {"mean": mean, "q90": q90, "n": value.samples, **date, "source": "measured"}


def _scale(declared: Sequence[DeclaredProfile], found: Mapping[str, MeasuredFactors], name: str) -> float:
    """Returns what a factor's measured pressures are multiplied by, so that their mean stays where it is declared."""
    known, measured = 0.0, 0.0
    for profile in declared:
        pressure = _read_factor(profile.spec.get("pressure"), name)
        by_share = found[profile.variant].pressure.get(name) if profile.variant in found else None
        if pressure is None or by_share is None:
            continue
        for percent, value in by_share.items():
            known += _pressure_at(pressure, percent)
            measured += value.mean
    by_model = (each.pressure.get(name, {}) for each in found.values())
    largest = max((value.mean for by_share in by_model for value in by_share.values()), default=0.0)
    if known <= 0 or measured <= 0:
        return 1.0
    return min(known / measured, MOST_PRESSURE / largest)


def _read_factor(pressure: object, name: str) -> object:
    """Returns a factor's part of a declared pressure; one that names no factor is all compute."""
    if is_pair(pressure):
        assert isinstance(pressure, Mapping)
        return pressure.get(name)
    return pressure if name == COMPUTE else None


def _pressure_at(pressure: object, percent: int) -> float:
    if not isinstance(pressure, Mapping) or is_uncertain(pressure):
        return value_at(pressure, MEAN_QUANTILE)
    points = sorted((float(share), value_at(value, MEAN_QUANTILE)) for share, value in pressure.items())
    return float(np.interp(percent, [share for share, _ in points], [value for _, value in points]))
