"""Checks the world after a change: no reference breaks, nothing in use is deleted, and tenants stay apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection

from app.access import Principal
from app.manifests import prices
from app.manifests import references as rules
from app.manifests.adapters_fit import find_unheld
from app.manifests.apart import find_unseparated, keeps_apart
from app.manifests.caps import find_unfit_caps, wrong_caps
from app.manifests.faults import ManifestFault, quote
from app.manifests.language_fit import find_unfit
from app.manifests.model import JSON, Free, Key, Kind, Manifest, WrittenSpec
from app.problem import HttpProblem
from app.store.world import objects, references
from app.store.world.objects import Selection, StoredObject
from app.world.decisions import Action, ObjectDecision

MOST_NAMED = 100
POLICY = Key(Kind.POLICY, "", "default")
LOOKED_AT = (Kind.POLICY, Kind.MODEL, Kind.SERVICE, Kind.JOB)
MOST = 100_000


def check(
    connection: Connection,
    principal: Principal,
    decisions: Sequence[ObjectDecision],
    documents: Mapping[Key, str],
    currency: str,
) -> None:
    """Raises a problem that names every broken reference; `documents` has the place of each manifest."""
    deleted = {d.key: d.before for d in decisions if d.action is Action.DELETED and d.before}
    written = [d for d in decisions if d.action in (Action.CREATED, Action.UPDATED)]
    manifests = [Manifest(*d.key, d.object.spec, d.object.labels, documents.get(d.key, "")) for d in written]
    world = _AfterChange(connection, manifests, set(deleted))
    faults = rules.find_missing(manifests, world) + _clashes(connection, manifests, set(deleted)) + _too_dear(manifests)
    faults += foreign(manifests, currency) + find_unfit(manifests, world)
    faults += find_unheld(manifests, world, _list_profiles(connection, manifests, set(deleted)))
    faults += find_unfit_caps(manifests, world) + find_together(connection, manifests, set(deleted))
    if faults:
        raise invalid(faults)
    rewritten = {decision.object.uid for decision in written}
    _refuse_orphans(connection, principal, deleted, rewritten)
    _refuse_broken(connection, principal, written)


def dangling(
    connection: Connection, manifests: Sequence[Manifest], sketches: Sequence[Manifest], at_fault: frozenset[Key]
) -> list[ManifestFault]:
    """Returns references to missing objects, of manifests and of sketches of those that are at fault themselves."""
    referring = rules.drop_faulty_references([*manifests, *sketches], at_fault)
    return rules.find_missing(referring, _AfterChange(connection, manifests, set(), referring))


def invalid(faults: Sequence[ManifestFault]) -> HttpProblem:
    """Returns a 422 with every fault."""
    count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
    return HttpProblem("invalid", f"{count}; nothing was stored", faults=faults)


class _AfterChange:
    """Returns the objects that references can find after the change."""

    def __init__(
        self,
        connection: Connection,
        manifests: Sequence[Manifest],
        deleted: set[Key],
        referring: Sequence[Manifest] | None = None,  # if others than the manifests that are written refer
    ) -> None:
        self._connection = connection
        self._written = {manifest.key: manifest.spec for manifest in manifests}
        self._deleted = deleted
        asking = manifests if referring is None else referring
        wanted = {reference.key for manifest in asking for reference in rules.list_references(manifest)}
        self._there = objects.get_many(connection, wanted - self._written.keys() - deleted)

    def spec(self, key: Key) -> Mapping[str, JSON] | None:
        if key in self._written:
            return self._written[key]
        stored = self._there.get(key)
        return stored.spec if stored else None

    def names(self, kind: Kind, tenant: str) -> Iterable[str]:
        known = set(objects.names(self._connection, kind, tenant))
        known |= {
            key.name for key, spec in self._written.items() if key.kind is kind and rules.admits(kind, spec, tenant)
        }
        return known - {key.name for key in self._deleted if key.kind is kind}


def _too_dear(manifests: Sequence[Manifest]) -> list[ManifestFault]:
    """Returns the prices that the ledger's integers cannot hold."""
    return [
        ManifestFault(
            document=manifest.document,
            field=f"spec.{field}",
            message=f"{price:g} an hour is more than the ledger can hold",
            allowed=f"a price of at most {prices.HIGHEST:g}",
            value=price,
        )
        for manifest in manifests
        if manifest.kind is Kind.GPU_TYPE
        for field, price in prices.find_too_high(manifest.spec)
    ]


def foreign(manifests: Sequence[Manifest], currency: str) -> list[ManifestFault]:
    """Returns budgets in another currency than that of the prices; none if `currency` is empty."""
    found: list[ManifestFault] = []
    for manifest in manifests:
        budget = manifest.spec.get("budget") if manifest.kind is Kind.TENANT else None
        named = (budget or {}).get("currency") or currency
        if currency and named != currency:
            found.append(
                ManifestFault(
                    document=f"{manifest.document} {manifest.key}".strip(),
                    field="spec.budget.currency",
                    message=f"{quote(named)} is not the currency that prices are in",
                    allowed=f"{currency}, or leave the field out",
                    value=named,
                )
            )
    return found


def _clashes(connection: Connection, manifests: Sequence[Manifest], deleted: set[Key]) -> list[ManifestFault]:
    models = {str(m.spec["model"]) for m in manifests if m.kind is Kind.PROFILE}
    if not models:
        return []
    changed = {manifest.key for manifest in manifests} | deleted
    there = {
        rules.profile_of(stored.spec): stored.name
        for stored in objects.read_objects_of_models(connection, Kind.PROFILE, models)
        if stored.key not in changed
    }
    return rules.find_clashes(manifests, there)


def _list_profiles(connection: Connection, manifests: Sequence[Manifest], deleted: set[Key]) -> list[WrittenSpec]:
    """Returns the profiles of the models of services with adapters, as they are after the change."""
    models = {str(m.spec["model"]) for m in manifests if m.kind is Kind.SERVICE and m.spec.get("adapters")}
    if not models:
        return []
    changed = {manifest.key for manifest in manifests} | deleted
    there = objects.read_objects_of_models(connection, Kind.PROFILE, models)
    kept: list[WrittenSpec] = [stored.spec for stored in there if stored.key not in changed]
    return kept + [manifest.spec for manifest in manifests if manifest.kind is Kind.PROFILE]


def _refuse_orphans(
    connection: Connection, principal: Principal, deleted: Mapping[Key, StoredObject], rewritten: set[UUID]
) -> None:
    """Refuses to delete an object with referrers, unless they are deleted or declared again as well."""
    going = {stored.uid for stored in deleted.values()} | rewritten
    cluster_wide = [key for key in deleted if not key.kind.tenanted]
    found = references.referrers(connection, cluster_wide, besides=going, limit=MOST_NAMED)
    tenants = [key.name for key in cluster_wide if key.kind is Kind.TENANT]
    found += references.members(connection, tenants, besides=going, limit=MOST_NAMED)
    if found:
        gone = sorted({str(referred) for referred, _ in found})
        raise HttpProblem(
            "conflict",
            f"{', '.join(gone[:5])} cannot be deleted: other objects refer to it; delete or change those first",
            referrers=_visible(principal, [referrer for _, referrer in found]),
        )


def _refuse_broken(connection: Connection, principal: Principal, written: Sequence[ObjectDecision]) -> None:
    """Refuses a Model without the variants or tenants that others refer to, a GpuType that forbids nodes' caps."""
    rewritten = {decision.key for decision in written}
    broken = _check_models(connection, written, rewritten) + _check_types(connection, written, rewritten)
    if broken:
        whys = sorted({f"{key}: {found.why}" for key, found in broken})
        raise HttpProblem(
            "conflict",
            f"other objects depend on what would change ({'; '.join(whys[:5])}); change those first",
            referrers=_visible(principal, [found.referrer.key for _, found in broken]),
        )


def _check_types(
    connection: Connection, written: Sequence[ObjectDecision], rewritten: set[Key]
) -> list[tuple[Key, rules.Broken]]:
    types = {d.key: d.object.spec for d in written if d.key.kind is Kind.GPU_TYPE and d.action is Action.UPDATED}
    if not types:
        return []
    return [
        (key, rules.Broken(rules.Referrer(node.key), f"Node {node.name}: {wrong.field} {wrong.why}"))
        for node in objects.read_capped_nodes(connection, [key.name for key in types])
        if node.key not in rewritten
        for key in (Key(Kind.GPU_TYPE, "", str(node.spec["gpuType"])),)
        for wrong in wrong_caps(node.spec, types[key])
    ]


def _check_models(
    connection: Connection, written: Sequence[ObjectDecision], rewritten: set[Key]
) -> list[tuple[Key, rules.Broken]]:
    models = {d.key: d for d in written if d.key.kind is Kind.MODEL and d.action is Action.UPDATED}
    if not models:
        return []
    by_model: dict[Key, list[rules.Referrer]] = {}
    for model, referrer, part in references.parts(connection, [key.name for key in models]):
        if referrer not in rewritten:
            by_model.setdefault(model, []).append(rules.Referrer(referrer, part))
    return [
        (key, found)
        for key, referrers in by_model.items()
        for found in rules.find_broken(models[key].object.spec, referrers)
    ]


def _visible(principal: Principal, referrers: Iterable[Key]) -> list[Free]:
    """Returns the referrers that this principal may see; those of other tenants are only counted."""
    distinct = sorted(set(referrers))
    own = [key for key in distinct if not principal.tenant or key.tenant in ("", principal.tenant)]
    visible: list[Free] = []
    for key in own[:MOST_NAMED]:
        named = {"kind": str(key.kind), "tenant": key.tenant, "name": key.name}
        visible.append({name: value for name, value in named.items() if value})
    hidden = len(distinct) - len(own)
    if hidden:
        visible.append({"tenant": "another tenant", "count": hidden})
    return visible


def find_together(
    connection: Connection, manifests: Sequence[Manifest], deleted: Collection[Key]
) -> list[ManifestFault]:
    """Returns the faults of the world after a change; it reads the world only if the policy wants tenants apart."""
    written = {manifest.key: manifest for manifest in manifests if manifest.kind in LOOKED_AT}
    if not written:
        return []
    policy = written[POLICY].spec if POLICY in written else None
    if policy is None and POLICY not in deleted:
        stored = objects.get(connection, POLICY)
        policy = stored.spec if stored else None
    if not keeps_apart(policy):
        return []
    there = {
        stored.key: Manifest(*stored.key, stored.spec, stored.labels, "")
        for kind in LOOKED_AT
        for stored in objects.page(connection, Selection(kind), ("", ""), MOST)
        if stored.key not in deleted
    }
    world = {**there, **written}
    models = {key.name: found.spec for key, found in world.items() if key.kind is Kind.MODEL}
    return list(find_unseparated(world.values(), models))
