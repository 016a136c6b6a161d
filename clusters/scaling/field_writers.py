"""Field managers that declare replicas, by the names that the API server notes: each with what to do about it."""

from __future__ import annotations

from clusters.objects import KubeObject, namespace_of, read_text

MANAGER = "gpuwright"  # of every write of ours
SETTLED = f"{MANAGER}-settled-"  # begins the name of one that only makes a new version
# Nothing writes again by these names: people, and autoscalers whose objects are looked up beside.
PASSING = ("kubectl", "kube-controller-manager", "keda", "keda-operator")
SCALE_BY_HAND = "scale it once by hand to another number"

TRACKING_ID, RELEASE, RELEASE_NAMESPACE = (
    "argocd.argoproj.io/tracking-id", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace",
)  # fmt: skip
KUSTOMIZATION, HELM_RELEASE = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"


def is_ours(manager: str) -> bool:
    return manager == MANAGER or manager.startswith(SETTLED)


def declares_again(manager: str) -> bool:
    """Returns whether a manager that has written replicas will write them again, for all that is known of it."""
    return not (manager in PASSING or manager.startswith("kubectl-"))


def say_declared(item: KubeObject, manager: str, *, is_applied: bool) -> str:
    """Returns the sentence on a manager that declares replicas, and how it hands them over.

    First somebody scales by hand, to another number: that takes the field from its only owner. An owner that leaves it
    out before removes it, and the default is 1.
    """
    known = {
        "argocd-controller": _argo,
        "argocd-application-controller": _argo,
        "kustomize-controller": _kustomization,
        "helm-controller": _helm_release,
        "helm": _helm,
        "rollouts-controller": _rollouts,
        "kueue": _kueue,
    }
    if manager in known:
        return known[manager](item)
    if manager.lower().startswith(("terraform", "hashicorp")):
        return (
            "Terraform declares its replicas, and the next apply sets them back; "
            f"add spec[0].replicas to ignore_changes of its lifecycle, then {SCALE_BY_HAND}"
        )
    if manager.startswith("kubectl") and is_applied:
        declared = f"the manifest that `kubectl apply --server-side` has applied as {manager} declares replicas"
        return f"{declared}; {SCALE_BY_HAND}, then leave `replicas` out of the manifest"
    does = "declares its replicas" if is_applied else "set its replicas last and may do so again"
    return f"the manager {manager} {does}; end that, then {SCALE_BY_HAND}"


def _argo(item: KubeObject) -> str:
    name = read_text(item, "metadata", "annotations", TRACKING_ID).partition(":")[0]
    name = name or read_text(item, "metadata", "labels", "app.kubernetes.io/instance")
    return (
        f"{f'Argo CD application {name}' if name else 'Argo CD'} declares its replicas; name /spec/replicas in its "
        f"ignoreDifferences with RespectIgnoreDifferences=true, {SCALE_BY_HAND}, then leave `replicas` out of its "
        "manifests"
    )


def _kustomization(item: KubeObject) -> str:
    return (
        f"Flux's Kustomization {_labelled(item, KUSTOMIZATION)} declares its replicas; suspend it, {SCALE_BY_HAND}, "
        "leave `replicas` out of its manifests, then resume it"
    )


def _helm_release(item: KubeObject) -> str:
    return (
        f"Flux's HelmRelease {_labelled(item, HELM_RELEASE)} declares its replicas; suspend it, {SCALE_BY_HAND}, "
        "leave `replicas` out of its values, then resume it"
    )


def _helm(item: KubeObject) -> str:
    name = read_text(item, "metadata", "annotations", RELEASE)
    place = read_text(item, "metadata", "annotations", RELEASE_NAMESPACE) or namespace_of(item)
    release = f"Helm's release {place}/{name}" if name else "Helm"
    return (
        f"{release} declares its replicas, and the next upgrade sets them back; {SCALE_BY_HAND}, "
        "then leave `replicas` out of the chart's values"
    )


def _rollouts(item: KubeObject) -> str:
    return f"Argo Rollouts scales {namespace_of(item)}/{read_text(item, 'metadata', 'name')} for a Rollout; scale that"


def _kueue(item: KubeObject) -> str:
    return "Kueue set its replicas and may do so again; take it out of its queue, or scale it by hand"


def _labelled(item: KubeObject, group: str) -> str:
    """Returns the object of Flux that labels name."""
    parts = (read_text(item, "metadata", "labels", f"{group}/{key}") for key in ("namespace", "name"))
    return "/".join(filter(None, parts)) or "of unknown name"
