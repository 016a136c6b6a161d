"""Divides scarce GPUs among tenants: guarantees first, then the rest, by priority and weight.

GPUs that a tenant does not need are lent to the others, and return as soon as it needs them: entitlements follow from
the demand of the moment, so no loans have to be remembered.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.control.formulate.tenants.terms import TenantTerms
from solvers.planning.problem import Limit

BAND_SHARE = 0.05  # of an entitlement: a tenant whose use is this close to it keeps exactly what it has,
SPILL_SHARE = 0.02  # as long as all tenants together exceed the fleet by no more than this
TOLERANCE_SHARE = 1e-9


def max_min_shares(needs: Mapping[str, float], weights: Mapping[str, float], amount: float) -> dict[str, float]:
    """Divides an amount by weighted max-min fairness.

    The level rises for all alike until each has what it needs or nothing is left.
    """
    rest, open_to = max(amount, 0.0), {name for name, need in needs.items() if need > 0}
    found = dict.fromkeys(needs, 0.0)
    while open_to and rest > TOLERANCE_SHARE:
        level = rest / sum(weights[name] for name in open_to)
        full = {name for name in open_to if needs[name] <= level * weights[name] * (1 + TOLERANCE_SHARE)}
        for name in full or open_to:
            found[name] = min(needs[name], level * weights[name])
        if not full:
            break
        rest -= sum(found[name] for name in full)
        open_to -= full
    return found


def fair_shares(
    terms: Mapping[str, TenantTerms], demands: Mapping[str, Mapping[int, float]], gpus: float
) -> dict[str, float]:
    """Returns the GPUs that each tenant is entitled to. `demands` are GPUs by priority, `gpus` the usable fleet.

    Guaranteed demand comes first, divided by need and guarantee if even that is too much; then the rest, higher
    priorities first and by weight within a priority.
    """
    wanted = {tenant: _cap_need(sum(by.values()), terms.get(tenant)) for tenant, by in demands.items()}
    weights = {tenant: terms.get(tenant, TenantTerms()).weight for tenant in wanted}
    promised = {tenant: min(need, terms.get(tenant, TenantTerms()).guarantee_gpus) for tenant, need in wanted.items()}
    found = max_min_shares(promised, weights, gpus)
    rest = gpus - sum(found.values())
    needed = dict.fromkeys(wanted, 0.0)
    for priority in sorted({priority for by in demands.values() for priority in by}, reverse=True):
        needed = {tenant: needed[tenant] + demands[tenant].get(priority, 0.0) for tenant in wanted}
        more = {tenant: max(min(needed[tenant], wanted[tenant]) - found[tenant], 0.0) for tenant in wanted}
        lent = max_min_shares(more, weights, rest)
        found = {tenant: found[tenant] + lent[tenant] for tenant in found}
        rest -= sum(lent.values())
    return found


def find_entitled_limits(
    terms: Mapping[str, TenantTerms],
    demands: Mapping[str, Mapping[int, float]],
    gpus: float,
    used: Mapping[str, float] | None = None,
) -> dict[str, Limit]:
    """Returns the current limit of each tenant. While GPUs suffice, or if no tenant has a guarantee, it is the declared
    limit: unserved load is then weighed by priority alone.

    `used` is what the plan in force gives them. A tenant whose use is close to its entitlement keeps exactly that:
    a limit that followed every fluctuation of the load would move instances for nothing.
    """
    declared = {tenant: tenant_terms.limit for tenant, tenant_terms in terms.items()}
    limits = {tenant: limit for tenant, limit in declared.items() if limit != Limit()}
    if not any(tenant_terms.guarantee_gpus for tenant_terms in terms.values()):
        return limits
    used, shares = used or {}, fair_shares(terms, demands, gpus)
    cut = {
        tenant
        for tenant, share in shares.items()
        if share < _cap_need(sum(demands[tenant].values()), terms.get(tenant)) * (1 - TOLERANCE_SHARE)
    }
    capped = {
        tenant: _entitlement(used.get(tenant, 0.0), shares[tenant], terms.get(tenant, TenantTerms())) for tenant in cut
    }
    if sum({**shares, **capped}.values()) > gpus * (1 + SPILL_SHARE):
        capped = {tenant: min(capped[tenant], shares[tenant]) for tenant in cut}
    return limits | {
        tenant: Limit(capped[tenant], terms.get(tenant, TenantTerms()).limit.price_per_hour, "share") for tenant in cut
    }


def _entitlement(has: float, share: float, terms: TenantTerms) -> float:
    """Returns what a tenant has, if that is close to its share and no less than its guarantee; else its share."""
    return has if abs(has - share) <= BAND_SHARE * share and has >= min(share, terms.guarantee_gpus) else share


def _cap_need(need: float, terms: TenantTerms | None) -> float:
    most = terms.limit.gpus if terms else None
    return need if most is None else min(need, most)
