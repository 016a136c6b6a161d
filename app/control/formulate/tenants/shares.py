"""Who may have how many GPUs when there are not enough: guarantees first, then what is left, by priority and weight.

What a tenant does not ask for is lent to the others, and is its own again as soon as it asks: entitlements follow from
what is asked now, so nothing has to be remembered of who lent what to whom.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.control.formulate.tenants.terms import TenantTerms
from solvers.planning.problem import Limit

BAND = 0.05  # of a share: a tenant that has about what it is entitled to keeps just what it has,
SPILL = 0.02  # while all of them together keep no more than this beyond what there is
ENOUGH = 1e-9


def max_min_shares(needs: Mapping[str, float], weights: Mapping[str, float], amount: float) -> dict[str, float]:
    """Weighted max-min: the level rises for all alike until each has what it needs or nothing is left."""
    left, open_to = max(amount, 0.0), {name for name, need in needs.items() if need > 0}
    found = dict.fromkeys(needs, 0.0)
    while open_to and left > ENOUGH:
        level = left / sum(weights[name] for name in open_to)
        full = {name for name in open_to if needs[name] <= level * weights[name] * (1 + ENOUGH)}
        for name in full or open_to:
            found[name] = min(needs[name], level * weights[name])
        if not full:
            break
        left -= sum(found[name] for name in full)
        open_to -= full
    return found


def fair_shares(
    terms: Mapping[str, TenantTerms], demands: Mapping[str, Mapping[int, float]], gpus: float
) -> dict[str, float]:
    """How many GPUs each tenant is entitled to. `demands` are GPUs by priority, `gpus` what can be used of the fleet.

    First what is guaranteed and asked for, by need and guarantee where even that is too much; then what is left, the
    higher priority first and by weight within one.
    """
    wanted = {tenant: _within(sum(by.values()), terms.get(tenant)) for tenant, by in demands.items()}
    weights = {tenant: terms.get(tenant, TenantTerms()).weight for tenant in wanted}
    promised = {tenant: min(need, terms.get(tenant, TenantTerms()).guarantee_gpus) for tenant, need in wanted.items()}
    found = max_min_shares(promised, weights, gpus)
    left = gpus - sum(found.values())
    asked = dict.fromkeys(wanted, 0.0)
    for priority in sorted({one for by in demands.values() for one in by}, reverse=True):
        asked = {tenant: asked[tenant] + demands[tenant].get(priority, 0.0) for tenant in wanted}
        more = {tenant: max(min(asked[tenant], wanted[tenant]) - found[tenant], 0.0) for tenant in wanted}
        lent = max_min_shares(more, weights, left)
        found = {tenant: found[tenant] + lent[tenant] for tenant in found}
        left -= sum(lent.values())
    return found


def entitled_limits(
    terms: Mapping[str, TenantTerms],
    demands: Mapping[str, Mapping[int, float]],
    gpus: float,
    used: Mapping[str, float] | None = None,
) -> dict[str, Limit]:
    """The limit of each tenant now. While there is enough for all, and where nobody was guaranteed anything, it is
    the declared one: unserved load is then weighed by priority alone.

    `used` is what the plan in force gives them. Who has its share to within a band keeps exactly that: a share that
    follows every breath of the load would move instances for nothing.
    """
    declared = {tenant: one.limit for tenant, one in terms.items()}
    limits = {tenant: limit for tenant, limit in declared.items() if limit != Limit()}
    if not any(one.guarantee_gpus for one in terms.values()):
        return limits
    used, shares = used or {}, fair_shares(terms, demands, gpus)
    cut = {tenant for tenant, share in shares.items() if share < _asked(tenant, terms, demands) * (1 - ENOUGH)}
    kept = {tenant: _kept(used.get(tenant, 0.0), shares[tenant], terms.get(tenant, TenantTerms())) for tenant in cut}
    if sum({**shares, **kept}.values()) > gpus * (1 + SPILL):
        kept = {tenant: min(kept[tenant], shares[tenant]) for tenant in cut}
    return limits | {
        tenant: Limit(kept[tenant], terms.get(tenant, TenantTerms()).limit.price_per_hour) for tenant in cut
    }


def _kept(has: float, share: float, terms: TenantTerms) -> float:
    """What a tenant has, where that is about its share and no less than its guarantee; else its share."""
    return has if abs(has - share) <= BAND * share and has >= min(share, terms.guarantee_gpus) else share


def _asked(tenant: str, terms: Mapping[str, TenantTerms], demands: Mapping[str, Mapping[int, float]]) -> float:
    return _within(sum(demands[tenant].values()), terms.get(tenant))


def _within(need: float, terms: TenantTerms | None) -> float:
    most = terms.limit.gpus if terms else None
    return need if most is None else min(need, most)
