"""Who owns the replicas of an adopted Deployment, by real managers and real objects; and how they are handed over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.estate import OURS
from tests.clusters.made_up import Item, heading, scaled_object
from tests.kubernetes.owned import Owned, owned_place
from tests.kubernetes.scaled import ScalingServer, adopted_deployment
from tests.support.helm import finish, run_helm

pytestmark = pytest.mark.slow


@pytest.fixture
def owned(scaling_server: ScalingServer, tmp_path: Path) -> Iterator[Owned]:
    with owned_place(scaling_server, tmp_path) as found:
        yield found


def silence(item: Item, **annotations: str) -> Item:
    """Returns the workload without its replicas, and with more annotations."""
    given = {
        **item["metadata"]["annotations"],
        **{OURS + key.replace("_", "-"): annotations[key] for key in annotations},
    }
    spec = {key: value for key, value in item["spec"].items() if key != "replicas"}
    return {**item, "metadata": {**item["metadata"], "annotations": given}, "spec": spec}


def test_ten_minutes_after_somebody_made_or_scaled_it_a_workload_is_free_by_the_servers_clock(owned: Owned) -> None:
    owned.server.put(owned.place, adopted_deployment("ranker", 3))
    assert owned.hold().startswith("kubectl-create set its replicas at ")
    owned.pass_minutes(9)
    assert owned.hold().startswith("kubectl-create set its replicas at ")
    owned.pass_minutes(1.1)
    assert owned.hold() == ""
    owned.server.scale(owned.place, "deployment/ranker", 4)
    assert owned.hold().startswith("kubectl set its replicas at an unknown time before ")
    owned.pass_minutes(9)
    owned.kubectl("set", "image", "deployment/ranker", "*=registry.example/model:2")
    assert owned.hold()  # nobody knows whether it was scaled, too
    owned.pass_minutes(10.1)
    assert owned.hold() == ""


def test_whatever_scales_a_workload_holds_it_until_it_is_gone_or_paused(owned: Owned) -> None:
    owned.server.put(owned.place, adopted_deployment("ranker", 3))
    owned.pass_minutes(11)
    owned.kubectl("autoscale", "deployment/ranker", "--min=1", "--max=9", "--cpu=80%")
    assert owned.hold().startswith(f"HPA {owned.place}/ranker owns its replicas; delete that HPA, or let it follow")
    owned.kubectl("delete", "hpa/ranker")
    assert owned.hold() == ""

    [scaled_by_keda, _] = scaled_object(owned.place, "ranker", 1, 9)
    owned.server.put(owned.place, scaled_by_keda)
    assert owned.hold().startswith(f"KEDA's ScaledObject {owned.place}/ranker owns its replicas; annotate it with")
    owned.kubectl("annotate", "scaledobject/ranker", "autoscaling.keda.sh/paused=true")
    assert owned.hold() == ""
    owned.kubectl("annotate", "scaledobject/ranker", "autoscaling.keda.sh/paused-replicas=6")
    assert owned.hold().startswith(f"KEDA's ScaledObject {owned.place}/ranker is paused at 6 replicas and keeps them")
    owned.kubectl("delete", "scaledobject/ranker")

    rollout = heading("argoproj.io/v1alpha1", "Rollout", owned.place, "canary")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ranker"}
    owned.server.put(owned.place, {**rollout, "spec": {"replicas": 3, "workloadRef": reference}})
    assert owned.hold().startswith(f"Argo's Rollout {owned.place}/canary takes its pods")
    owned.kubectl("delete", "rollout/canary")

    owned.kubectl("label", "deployment/ranker", "kueue.x-k8s.io/queue-name=gpus")
    assert owned.hold().startswith("Kueue admits each pod of it by the queue gpus")


def test_a_manifest_that_declares_replicas_holds_until_it_leaves_them_out_and_nothing_drops_to_one(
    owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = adopted_deployment("ranker", 6)
    silent = silence(declared)
    owned.kubectl("apply", "-f", "-", given=declared)
    owned.pass_minutes(11)
    assert owned.hold().startswith("the manifest that kubectl apply has applied declares replicas")
    monkeypatch.setenv("KUBE_EDITOR", "sed -i /replicas:/d")
    owned.kubectl("apply", "edit-last-applied", "deployment/ranker")
    owned.kubectl("apply", "-f", "-", given=silent)
    owned.pass_minutes(11)
    assert (owned.hold(), owned.replicas) == ("", 6)

    owned.kubectl("delete", "deployment/ranker")
    owned.apply(declared, "kubectl")
    owned.apply(silent, "kubectl")
    assert owned.replicas == 1  # in the wrong order
    owned.apply(declared, "kubectl")
    owned.pass_minutes(11)
    assert owned.hold().startswith("the manifest that `kubectl apply --server-side` has applied as kubectl declares")
    owned.server.scale(owned.place, "deployment/ranker", 7)  # takes the field, as the sentence says
    owned.apply(silent, "kubectl")
    owned.hold()
    owned.pass_minutes(11)
    assert (owned.hold(), owned.replicas) == ("", 7)


@pytest.mark.parametrize(
    ("manager", "labels", "annotations", "name"),
    [
        (
            "argocd-controller", {}, {"argocd.argoproj.io/tracking-id": "models:apps/Deployment:shop/ranker"},
            "Argo CD application models",
        ),
        (
            "kustomize-controller",
            {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"}, {},
            "Flux's Kustomization flux/apps",
        ),
        (
            "helm-controller", {"helm.toolkit.fluxcd.io/name": "ranker", "helm.toolkit.fluxcd.io/namespace": "flux"},
            {}, "Flux's HelmRelease flux/ranker",
        ),
    ],
)  # fmt: skip
def test_a_tool_that_deploys_a_workload_owns_its_replicas_until_its_manifests_say_that_they_have_none(
    owned: Owned, manager: str, labels: dict[str, str], annotations: dict[str, str], name: str
) -> None:
    item = adopted_deployment("ranker", 6)
    item["metadata"]["labels"] = labels
    item["metadata"]["annotations"] |= annotations
    owned.apply(item, manager)
    owned.pass_minutes(11)
    assert owned.hold().startswith(f"{name} declares its replicas")
    owned.server.scale(owned.place, "deployment/ranker", 7)
    owned.hold()
    owned.pass_minutes(11)
    assert owned.hold().startswith(f"{name} manages it and may set back the replicas that kubectl set; leave ")
    owned.apply(silence(item, replicas_left_out="true"), manager)
    owned.hold()
    owned.pass_minutes(11)
    assert (owned.hold(), owned.replicas) == ("", 7)
    owned.apply(item, manager)
    assert owned.hold().startswith(f"{name} declares its replicas"), "whatever an annotation said"


@pytest.mark.parametrize(
    ("manager", "sentence"),
    [
        ("Terraform", "Terraform declares its replicas"),
        ("rollouts-controller", "Argo Rollouts scales"),
        ("kueue", "Kueue set its replicas"),
        ("acme-operator", "the manager acme-operator declares its replicas"),
    ],
)
def test_each_manager_that_declares_replicas_is_named_and_gives_them_up_to_one_scale_by_hand(
    owned: Owned, manager: str, sentence: str
) -> None:
    item = adopted_deployment("ranker", 6)
    owned.apply(item, manager)
    owned.pass_minutes(11)
    assert owned.hold().startswith(sentence)
    owned.server.scale(owned.place, "deployment/ranker", 7)
    owned.apply(silence(item), manager)
    owned.hold()
    owned.pass_minutes(11)
    assert (owned.hold(), owned.replicas) == ("", 7)


def test_a_release_of_helm_that_declares_replicas_is_named_until_its_chart_leaves_them_out(
    owned: Owned, tmp_path: Path
) -> None:
    chart, item = tmp_path / "ranker", adopted_deployment("ranker", 6)
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: ranker\nversion: 1.0.0\n")

    def release(verb: str, *words: str) -> None:
        (chart / "templates" / "deployment.json").write_text(json.dumps(item))
        place = ("-n", owned.place, *words)
        finish(run_helm(tmp_path, verb, "first", str(chart), *place, KUBECONFIG=str(owned.server.server.admin)))

    release("install")
    owned.pass_minutes(11)
    assert owned.hold().startswith(f"Helm's release {owned.place}/first declares its replicas")
    owned.server.scale(owned.place, "deployment/ranker", 7)
    owned.hold()
    owned.pass_minutes(11)
    managed = f"Helm's release {owned.place}/first manages it and may set back the replicas that kubectl set"
    assert owned.hold().startswith(managed)
    with pytest.raises(AssertionError, match=r'conflict with "kubectl" with subresource "scale".*: \.spec\.replicas'):
        release("upgrade")
    release("upgrade", "--force-conflicts")
    owned.pass_minutes(11)
    assert (owned.hold()[:14], owned.replicas) == ("Helm's release", 6)  # it is held again, and stays as Helm says

    owned.server.scale(owned.place, "deployment/ranker", 7)
    del item["spec"]["replicas"]
    item["metadata"]["annotations"][f"{OURS}replicas-left-out"] = "true"
    release("upgrade")
    owned.hold()
    owned.pass_minutes(11)
    assert (owned.hold(), owned.replicas) == ("", 7)


def test_what_an_operator_made_or_asks_for_no_gpu_is_held(owned: Owned) -> None:
    owner = heading("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", owned.place, "llama")
    owned.server.put(owned.place, {**owner, "spec": {"replicas": 1}})
    found = owned.server.cluster.read("-n", owned.place, "get", "leaderworkerset/llama")
    item = adopted_deployment("ranker", 3)
    item["metadata"]["ownerReferences"] = heading("", "", "", "", owner=found)["metadata"]["ownerReferences"]
    plain = adopted_deployment("plain", 3)
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    owned.server.put(owned.place, item, plain)
    owned.pass_minutes(11)
    holds = {name: workload.hold for name, workload in owned.scaler.find().items()}
    assert holds == {
        "ranker": f"LeaderWorkerSet {owned.place}/llama made it and sets its replicas; scale that one",
        "plain": "none of its pods asks for GPUs, so nothing is known of what they serve",
    }
