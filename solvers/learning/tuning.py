"""The tuning of filters and of their fit. None of it comes from measurements at hand; docs/forecast.md says why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilterTuning:
    """Of a region's filter. Logarithms of measured over declared; a minute is one sample."""

    fewest: int = 5  # minutes of instances before a region counts
    fewest_minutes: int = 3  # different ones, also before a change is believed
    memory_minutes: int = 20  # that a filter averages over under a steady noise
    refused_deviations: float = 3.5  # a sample further away is an outlier, until more agree with it
    changed_deviations: float = 5.0  # of the last samples' median: the region itself has changed
    most_recent: int = 8  # samples that are kept
    recent_seconds: float = 1800.0  # older samples do not count as the last
    first_noise: float = 0.03
    least_noise: float = 0.005
    noise_share: float = 0.1  # by which a sample moves the estimated noise
    drift_per_day: float = 0.03  # by which a region without traffic may have moved
    remember_seconds: float = 7 * 86400.0  # how long a region without traffic counts


@dataclass(frozen=True, slots=True)
class PriorTuning:
    """The belief before any traffic: how far a curve may be off as a whole, and one place of it from another."""

    whole_deviation: float = 0.2
    place_deviation: float = 0.1
    sm_octaves: float = 0.5  # over which two places of a curve have little in common
    batch_octaves: float = 2.0
    place_noise: float = 0.01  # of what a region stands for
    neighbour_deviation: float = 0.5  # of the logarithm of what a neighbour's pressure does
    least_impact: float = 0.02  # a neighbour that is declared to slow by less cannot explain anything
    iterations: int = 5  # of the linearisation
    most_neighbour_factor: float = 3.0
