"""Has CVXPY find the SM% of all instances of a fleet at once, with the closed form as its referee (M5)."""

from __future__ import annotations

from collections.abc import Iterable

from solvers.mudi.fleet.devices import MudiDevice
from solvers.mudi.sharing.convex import ConvexFailed, raise_shares

BY_CONVEX = "smallest SM% by CVXPY, the same as in closed form"
BY_CLOSED_FORM = "smallest SM% in closed form"


def referee_shares(devices: Iterable[MudiDevice]) -> str:
    """Returns how the SM% were found, once jobs are placed: where CVXPY finds others, those in closed form stay."""
    fitted = [device.shares.fitted for device in devices if device.shares and device.shares.fitted]
    if not fitted:
        return BY_CLOSED_FORM
    try:
        found = raise_shares([services.gpu for services in fitted])
    except ConvexFailed as failure:
        return f"{BY_CLOSED_FORM} ({failure})"
    if found is None:
        return f"{BY_CLOSED_FORM} (CVXPY finds an instance too slow on a whole GPU)"
    others = sum(services.percents != percents for services, percents in zip(fitted, found, strict=True))
    return f"{BY_CLOSED_FORM} (CVXPY finds others on {others} of {len(fitted)} GPUs)" if others else BY_CONVEX
