"""Drafts: Profiles whose fit misses what it was not shown by more than its goal."""

from __future__ import annotations

from math import pi, sqrt
from statistics import NormalDist

from app.manifests.model import WrittenSpec

ERROR_GOAL = 0.1  # as far as live corrections may find a Profile off before it counts as wrong
Q90_DEVIATIONS = NormalDist().inv_cdf(0.9)
DEVIATIONS_OF_MEAN_ERROR = sqrt(pi / 2)  # of a normal error, by its mean size


def is_draft(profile: WrittenSpec) -> bool:
    """Returns whether the Profile's fit errs by more than its goal."""
    return float(profile.get("leftOutError") or 0.0) > float(profile.get("errorGoal", ERROR_GOAL))


def describe_draft(profile: WrittenSpec) -> str:
    """Returns the Profile's error and goal in words; empty for one that is no draft."""
    if not is_draft(profile):
        return ""
    goal = float(profile.get("errorGoal", ERROR_GOAL))
    error, allowed = write_error(profile["leftOutError"]), write_error(goal)
    return f"draft, error {f'above {allowed}' if error == allowed else error} (goal {allowed})"


def write_error(error: float) -> str:
    """Returns an error in percent, with two digits or more."""
    percent = 100 * error
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def find_q90_factor(error: float) -> float:
    """Returns what times are below with a probability of 0.9, over their mean, where fits err by `error` on average.

    Errors are normal on the logarithm, as spreads of values are.
    """
    return float((1.0 + error) ** (Q90_DEVIATIONS * DEVIATIONS_OF_MEAN_ERROR))


def find_error_goal(accuracy: float | None) -> float:
    """Returns the goal of a campaign that is to reach this accuracy, which few real servers are quiet enough for."""
    return max(accuracy or 0.0, ERROR_GOAL)
