"""Field managers that declare replicas, by the names that the API server notes: each with what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusters.estate import OURS
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
INSTANCE = "argocd.argoproj.io/instance"
LEFT_OUT = OURS + "replicas-left-out"  # annotation: who manages the workload says that its manifests have none
LEAVE_OUT = f"`replicas` out of {{manifests}}, where you annotate the workload with {LEFT_OUT}=true"


@dataclass(frozen=True, slots=True)
class DeployTool:
    """A tool that writes what its manifests say again and again, and how a workload shows that it does."""

    managers: tuple[str, ...]
    hand_over: str  # what to do, with a place for where replicas are left out
    manifests: str  # that is where
    find_name: Callable[[KubeObject], str]  # of what manages the workload by its labels and annotations; empty: nothing
    unnamed: str  # if the workload is managed, and does not say by which

    def name(self, item: KubeObject) -> str:
        return self.find_name(item) or self.unnamed


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
    tool = next((tool for tool in TOOLS if manager in tool.managers), None)
    if tool:
        leave = LEAVE_OUT.format(manifests=tool.manifests)
        return f"{tool.name(item)} declares its replicas{tool.hand_over.format(leave=leave)}"
    if manager == "rollouts-controller":
        return (
            f"Argo Rollouts scales {namespace_of(item)}/{read_text(item, 'metadata', 'name')} for a Rollout; scale that"
        )
    if manager == "kueue":
        return "Kueue set its replicas and may do so again; take it out of its queue, or scale it by hand"
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


def say_managed(item: KubeObject, managers: frozenset[str], scaled_by: str) -> str:
    """Returns the sentence on a tool that manages a workload which another has scaled past it; empty if none does.

    Nothing in the cluster says whether its manifests still have replicas, which the tool would then write back. So it
    counts as owner until an annotation says that they have none.
    """
    if read_text(item, "metadata", "annotations", LEFT_OUT) == "true":
        return ""
    for tool in TOOLS:
        if tool.find_name(item) or not managers.isdisjoint(tool.managers):
            leave = LEAVE_OUT.format(manifests=tool.manifests)
            return f"{tool.name(item)} manages it and may set back the replicas that {scaled_by} set; leave {leave}"
    return ""


def _find_application(item: KubeObject) -> str:
    name = read_text(item, "metadata", "annotations", TRACKING_ID).partition(":")[0]
    name = name or read_text(item, "metadata", "labels", INSTANCE)
    return f"Argo CD application {name}" if name else ""


def _find_kustomization(item: KubeObject) -> str:
    name = _find_labelled(item, KUSTOMIZATION)
    return f"Flux's Kustomization {name}" if name else ""


def _find_helm_release(item: KubeObject) -> str:
    name = _find_labelled(item, HELM_RELEASE)
    return f"Flux's HelmRelease {name}" if name else ""


def _find_release(item: KubeObject) -> str:
    name = read_text(item, "metadata", "annotations", RELEASE)
    place = read_text(item, "metadata", "annotations", RELEASE_NAMESPACE) or namespace_of(item)
    return f"Helm's release {place}/{name}" if name else ""


def _find_labelled(item: KubeObject, group: str) -> str:
    """Returns the object of Flux that labels name."""
    parts = (read_text(item, "metadata", "labels", f"{group}/{key}") for key in ("namespace", "name"))
    return "/".join(filter(None, parts))


SUSPEND = f"; suspend it, {SCALE_BY_HAND}, leave {{leave}}, then resume it"
IGNORE = (
    f"; name /spec/replicas in its ignoreDifferences with RespectIgnoreDifferences=true, {SCALE_BY_HAND}, "
    "then leave {leave}"
)
UPGRADE = f", and the next upgrade sets them back; {SCALE_BY_HAND}, then leave {{leave}}"
# What makes a workload comes before what it makes it with: Flux installs releases of Helm.
TOOLS = (
    DeployTool(
        ("argocd-controller", "argocd-application-controller"), IGNORE, "its manifests", _find_application, "Argo CD"
    ),
    DeployTool(
        ("kustomize-controller",), SUSPEND, "its manifests", _find_kustomization, "Flux's Kustomization of unknown name"
    ),
    DeployTool(("helm-controller",), SUSPEND, "its values", _find_helm_release, "Flux's HelmRelease of unknown name"),
    DeployTool(("helm",), UPGRADE, "the chart's values", _find_release, "Helm"),
)
