"""The tuning of corrections: how far measurements may correct a profile, and how sure they must be."""

from __future__ import annotations

from dataclasses import dataclass, field

from solvers.learning.tuning import FilterTuning, PriorTuning


@dataclass(frozen=True, slots=True)
class DriftTuning:
    """Factors are relative to the profile."""

    lowest: float = 0.7
    highest: float = 1.5
    dead_band: float = 0.03  # the margin of plans covers more than this
    band_deviations: float = 3.5  # of a region's mean, beyond the dead band: it is looked at each minute
    quantum: float = 0.01
    most_step: float = 0.15  # of the current factor of power or memory
    step_seconds: float = 300.0  # between two steps
    slower_step_seconds: float = 120.0  # before a step that some region needs, because it is slower than planned
    fewest: int = 5  # minutes of instances before memory, power or lateness counts
    window_seconds: float = 1800.0  # of observations that count
    region_percent: int = 5  # width of a region
    most_regions: int = 48  # of one profile; the one without traffic for longest is forgotten
    store_seconds: float = 600.0  # between two times that a filter is stored
    least_batches: float = 20.0  # in a minute
    full_share: float = 0.7  # less full batches may be faster than the profile's, which proves nothing
    late_share: float = 0.5  # of minutes that miss the SLO although everything is as planned
    late_step: float = 0.02
    most_late: float = 0.15  # that lateness alone may add
    late_step_seconds: float = 600.0
    persistent_share: float = 0.10  # a correction beyond this
    persistent_seconds: float = 3600.0  # after which the profile should be measured again
    filter: FilterTuning = field(default_factory=FilterTuning)
    prior: PriorTuning = field(default_factory=PriorTuning)
