"""The rules that a policy with shareAcrossTenants: false adds, because planners keep it in the simplest way.

The rule itself is the judge's (tenants_apart): a GPU with an own runtime or a job has one tenant only. Planners do not
look for a tenant's things that could share: such a service has its GPUs alone, and so has a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from app.manifests.faults import ManifestFault
from app.manifests.model import JSON, Kind, Manifest, WrittenSpec

FIELD = "shareAcrossTenants"
PLANNERS = ("joint", "hetsev", "morak")


def keeps_apart(policy: Mapping[str, JSON] | None) -> bool:
    """Returns whether the policy forbids tenants to share a GPU with an own runtime or a job."""
    return policy is not None and policy.get(FIELD) is False


def has_own_runtime(model: WrittenSpec) -> bool:
    """Returns whether one of a Model's variants brings a runtime of its own."""
    runtimes = (variant.get("runtime") or {} for variant in model.get("variants", ()))
    return any("image" in runtime or "command" in runtime for runtime in runtimes)


def find_unseparated(
    manifests: Iterable[Manifest], models: Mapping[str, Mapping[str, JSON]]
) -> Iterator[ManifestFault]:
    """Yields what planners could not keep apart, of a world whose policy wants it."""
    for manifest in manifests:
        spec: WrittenSpec = manifest.spec
        if manifest.kind is Kind.POLICY and spec.get("planner", "joint") not in PLANNERS:
            why = f"the planner {spec['planner']} puts jobs beside services"
            yield _fault(manifest, "spec.planner", why, " or ".join(PLANNERS), spec["planner"])
        elif manifest.kind is Kind.JOB and spec.get("preemptible") is False:
            why = "a job that stays could come to share its GPU"
            yield _fault(manifest, "spec.preemptible", why, "true", False)
        elif (
            manifest.kind is Kind.SERVICE
            and spec.get("isolation") != "dedicated"
            and has_own_runtime(models.get(str(spec["model"]), {}))
        ):
            why = f"Model {spec['model']} brings its own runtime, and a shared GPU could have two tenants"
            yield _fault(manifest, "spec.isolation", why, "dedicated", str(spec.get("isolation", "shared")))


def _fault(manifest: Manifest, field: str, why: str, allowed: str, value: JSON) -> ManifestFault:
    return ManifestFault(
        document=f"{manifest.document} {manifest.key}".strip(),
        field=field,
        message=f"the policy says {FIELD}: false, and {why}",
        allowed=allowed,
        value=value,
    )
