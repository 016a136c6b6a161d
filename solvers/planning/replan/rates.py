"""Who carries how much: as few instances as possible get another rate."""

from __future__ import annotations

import numpy as np

from solvers.planning.search.tables import Floats

SAME = 1e-9  # what sums of floats may differ by


def shared(rates: Floats, caps: Floats, total: float, least: int) -> Floats:
    """Rates that add up to `total`, none above its cap, all over 0; a rate of 0 is that of a new instance.

    The `least` largest carry at least half an even share each: where that needs it, all rates are as even as they go.
    """
    total = min(total, float(caps.sum()))
    if rates.min(initial=1.0) > 0 and (rates <= caps * (1 + SAME)).all() and abs(rates.sum() - total) <= SAME * total:
        return rates
    found = np.minimum(rates, caps)
    new = rates <= 0
    if total <= 0 or not len(caps):
        return np.zeros(len(caps))
    found[new] = caps[new] * min(1.0, total / float(caps.sum()))
    floor = np.minimum(found, total / (2 * len(caps)))
    short = total - float(found.sum())
    if short > 0:
        for k in np.argsort(found - caps, kind="stable"):
            more = min(short, caps[k] - found[k])
            found[k] += more
            short -= more
            if short <= 0:
                break
    elif short < 0:
        for k in np.argsort(floor - found, kind="stable"):
            less = min(-short, found[k] - floor[k])
            found[k] -= less
            short += less
            if short >= 0:
                break
    # What sums of floats lose goes where there is room for it.
    rest = total - float(found.sum())
    if rest:
        k = int(np.argmax(caps - found)) if rest > 0 else int(np.argmax(found))
        found[k] = min(found[k] + rest, caps[k])
    if least > 1 and np.sort(found)[-least] < found.sum() / len(found) / 2:
        return even(caps, total, least)
    return found


def even(caps: Floats, total: float, least: int) -> Floats:
    """As even as the caps let them be; less in all where the `least` largest could not carry half an even share."""
    if least > 1:
        total = min(total, 2 * len(caps) * float(np.sort(caps)[-least]))
    found, rest = np.zeros(len(caps)), total
    for position, k in enumerate(np.argsort(caps, kind="stable")):
        found[k] = min(caps[k], rest / (len(caps) - position))
        rest -= found[k]
    return found
