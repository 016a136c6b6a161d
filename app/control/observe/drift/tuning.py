"""How much measuring may say against a profile, and how sure it must be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriftTuning:
    """Factors are of what the profile says."""

    lowest: float = 0.7
    highest: float = 1.5
    dead_band: float = 0.03  # the margin of plans covers more than this
    quantum: float = 0.01
    most_step: float = 0.15  # of the factor that stands
    step_seconds: float = 300.0  # between two steps
    fewest: int = 5  # minutes of instances before a shape has shown anything
    window_seconds: float = 1800.0  # that a shape is judged by
    remember_seconds: float = 7 * 86400.0  # what a shape showed holds for so long, if it is not seen again
    least_batches: float = 20.0  # in a minute
    full_share: float = 0.7  # a batch less full may be quicker than the profile's, which proves nothing
    late_share: float = 0.5  # of minutes that miss the SLO although all is as planned
    late_step: float = 0.02
    most_late: float = 0.15  # what lateness alone may add
    late_step_seconds: float = 600.0
    persistent_share: float = 0.10  # a correction beyond this
    persistent_seconds: float = 3600.0  # that stands for so long says that the profile is to be taken anew
