"""Shares a service's rate among its instances so that as few as possible get another rate."""

from __future__ import annotations

import numpy as np

from solvers.planning.fleet.grids import Floats

SAME_SHARE = 1e-9  # what sums of floats may differ by


def sum_of(values: Floats) -> float:
    """Returns what `values.sum()` does, in half the time: most arrays here have a few values."""
    return float(np.add.reduce(values))


def share_total(rates: Floats, caps: Floats, total: float, least: int) -> Floats:
    """Returns rates above 0 that add up to `total`, none above its cap; in `rates`, 0 marks a new instance.

    The `least` largest carry at least half an even share each; if nothing else does that, all rates become even.
    """
    total = min(total, most := sum_of(caps))
    fits = rates.min(initial=1.0) > 0 and (rates <= caps * (1 + SAME_SHARE)).all()
    if fits and abs(sum_of(rates) - total) <= SAME_SHARE * total:
        return rates
    if total <= 0 or not len(caps):
        return np.zeros(len(caps))
    found = np.minimum(rates, caps)
    new = rates <= 0
    found[new] = caps[new] * min(1.0, total / most)
    short = total - sum_of(found)
    if short > 0:
        _raise(found, caps, short)
    elif short < 0:
        _lower(found, np.minimum(found, total / (2 * len(caps))), -short)
    # What sums of floats lose goes where there is room for it.
    rest = total - sum_of(found)
    if rest:
        k = int(np.argmax(caps - found)) if rest > 0 else int(np.argmax(found))
        found[k] = min(found[k] + rest, caps[k])
    if least > 1 and np.sort(found)[-least] < found.sum() / len(found) / 2:
        return spread_evenly(caps, total, least)
    return found


def _raise(rates: Floats, caps: Floats, short: float) -> None:
    """Raises rates until they add up to `short` more, first where most room is left."""
    for k in np.argsort(rates - caps, kind="stable"):
        more = min(short, caps[k] - rates[k])
        rates[k] += more
        short -= more
        if short <= 0:
            return


def _lower(rates: Floats, floor: Floats, over: float) -> None:
    """Lowers rates until they add up to `over` less, first those that are furthest above their floor."""
    for k in np.argsort(floor - rates, kind="stable"):
        less = min(over, rates[k] - floor[k])
        rates[k] -= less
        over -= less
        if over <= 0:
            return


def spread_evenly(caps: Floats, total: float, least: int) -> Floats:
    """Spreads `total` as evenly as the caps allow; less of it if the `least` largest could not carry half a share."""
    if least > 1:
        total = min(total, 2 * len(caps) * float(np.sort(caps)[-least]))
    found, rest = np.zeros(len(caps)), total
    for position, k in enumerate(np.argsort(caps, kind="stable")):
        found[k] = min(caps[k], rest / (len(caps) - position))
        rest -= found[k]
    return found
