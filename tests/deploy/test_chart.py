"""The chart: it lints, every object fits the schemas of three releases, and containers are as hardened as they say."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.settings import PREFIX, UNPREFIXED, Settings
from cli.verbs import agent, db, gateway, planner, scaler, serve
from scripts.kubernetes.programs import KUBERNETES
from tests.support.helm import CHART, EVERYTHING, Resource, finish, render, run_helm
from tests.support.patience import patience

pytestmark = pytest.mark.slow

NEWEST = int(KUBERNETES.read_version().split(".")[1])
VERSIONS = [f"1.{minor}" for minor in (NEWEST, NEWEST - 1, NEWEST - 2)]
VERBS = {"serve": serve, "planner": planner, "db": db, "gateway": gateway, "scaler": scaler, "agent": agent}
OF_OTHERS = ("monitoring.coreos.com/v1",)  # the Prometheus Operator's, for which Kubernetes has no schema
MONITORING = CHART.parent / "monitoring"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> list[Resource]:
    """What an installation makes by itself."""
    return render(tmp_path_factory.mktemp("helm"), {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Resource]:
    """With all that may be switched on."""
    return render(tmp_path_factory.mktemp("helm"), EVERYTHING)


def pods(resources: list[Resource]) -> Iterator[tuple[str, Resource]]:
    for one in resources:
        if one["kind"] in ("DaemonSet", "Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]


def containers(resources: list[Resource]) -> Iterator[Resource]:
    for _, pod in pods(resources):
        yield from pod["spec"].get("initContainers", ())
        yield from pod["spec"]["containers"]


def named(resources: list[Resource], kind: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources if one["kind"] == kind}


def test_helm_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    for values in ({}, EVERYTHING):
        assert "0 chart(s) failed" in finish(run_helm(tmp_path, "lint", "--strict", str(CHART), values=values))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schemas_of_kubernetes(whole: list[Resource], version: str) -> None:
    ours = [one for one in whole if one["apiVersion"] not in OF_OTHERS]
    assert len(ours) >= 20
    for one in ours:
        kubernetes_validate.validate(one, version, strict=True)
    wrong = next(iter(named(whole, "Deployment").values()))
    wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)
    del wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"]


def test_by_itself_it_makes_server_planner_and_migration_and_gives_no_rights(bare: list[Resource]) -> None:
    assert sorted(name for name, _ in pods(bare)) == ["gpuwright-api", "gpuwright-migrate", "gpuwright-planner"]
    kinds = {one["kind"] for one in bare}
    assert kinds == {"Deployment", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service"}


def test_no_part_that_runs_twice_is_evicted_as_a_whole(whole: list[Resource]) -> None:
    twice = {name for name, one in named(whole, "Deployment").items() if one["spec"]["replicas"] > 1}
    assert twice == {"gpuwright-api", "gpuwright-planner", "gpuwright-scaler", "gpuwright-routes"}
    assert named(whole, "PodDisruptionBudget").keys() == {*twice, "gpuwright-copies"}


ACCOUNTS = {
    "scaler": "gpuwright-scaler", "api": "gpuwright-api", "agent": "gpuwright-runner", "routes": "gpuwright-routes",
    "planner": "gpuwright-planner",
}  # fmt: skip
ROOT = {"folders": ["CHOWN", "FOWNER"], "helper": ["SYS_ADMIN", "CHOWN"]}  # of a GPU node, and what each may do


def test_every_container_is_nobody_on_a_root_that_it_cannot_write(whole: list[Resource], bare: list[Resource]) -> None:
    for _, pod in pods(whole):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        name = spec["containers"][0]["name"]
        assert spec["automountServiceAccountToken"] is (name in ("api", "planner", "scaler", "routes"))
        assert spec.get("serviceAccountName") == ACCOUNTS.get(name)
        assert not spec.keys() & {"hostNetwork", "hostIPC"} and spec.get("hostPID", False) is (name in ("agent", "mps"))
    assert not any(pod["spec"]["automountServiceAccountToken"] for _, pod in pods(bare))
    found = list(containers(whole))
    of_agents = {*ROOT, "join", "agent", "mps"}
    assert {one["name"] for one in found} == {
        "sidecar", "haproxy", "api", "planner", "scaler", "routes", "migrate", *of_agents
    }  # fmt: skip
    for container in found:
        secured, added = container["securityContext"], ROOT.get(container["name"])
        assert secured["allowPrivilegeEscalation"] is False
        assert secured["readOnlyRootFilesystem"] is True
        assert secured["capabilities"] == {"drop": ["ALL"], **({"add": added} if added else {})}
        assert secured.get("runAsUser", 1) > 0 or added
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert re.fullmatch(r"registry\.example\.org/gpuwright-[a-z]+:0\.1\.0", container["image"])


def test_what_each_container_runs_is_a_verb_that_takes_these_words_and_settings_that_there_are(
    whole: list[Resource],
) -> None:
    known = {
        f.name.upper() if f.name in UNPREFIXED else PREFIX + f.name.upper() for f in dataclasses.fields(Settings)
    } | {"XDG_CACHE_HOME", "NODE_NAME"}
    ran = set()
    for container in containers(whole):
        if "command" in container:
            assert container["name"] in ("haproxy", *ROOT)
            continue
        parser = argparse.ArgumentParser()
        VERBS[container["args"][0]].add_arguments(parser)
        parser.parse_args(container["args"][1:])
        ran.add(container["args"][0])
        assert {one["name"] for one in container.get("env", ())} <= known
    assert ran == VERBS.keys()


def test_every_volume_is_there_and_every_selector_finds_pods(whole: list[Resource]) -> None:
    labelled = [pod["metadata"]["labels"] for _, pod in pods(whole)]
    for _, pod in pods(whole):
        mounted = {
            mount["name"]
            for one in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            for mount in one.get("volumeMounts", ())
        }
        assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
    for one in whole:
        match one["kind"]:
            case "Service":
                wanted = one["spec"]["selector"]
            case _ if one["metadata"]["name"].endswith("-copies"):
                continue  # whose pods an agent makes
            case "PodDisruptionBudget" | "Deployment" | "DaemonSet":
                wanted = one["spec"]["selector"]["matchLabels"]
            case "NetworkPolicy":
                wanted = one["spec"]["podSelector"]["matchLabels"]
            case "ServiceMonitor":
                wanted = one["spec"]["selector"]["matchLabels"]
                [port] = [endpoint["port"] for endpoint in one["spec"]["endpoints"]]
                [is_kept] = [endpoint["honorLabels"] for endpoint in one["spec"]["endpoints"]]
                assert is_kept, "its namespace, service and job would be renamed, and no recipe or alert finds them"
                [service] = [
                    each
                    for each in named(whole, "Service").values()
                    if wanted.items() <= each["metadata"]["labels"].items()
                ]
                assert port in {each["name"] for each in service["spec"]["ports"]}
            case _:
                continue
        assert any(wanted.items() <= labels.items() for labels in labelled), one["metadata"]["name"]


def test_nothing_is_let_in_or_out_but_what_a_policy_names(whole: list[Resource]) -> None:
    policies = {name: one["spec"] for name, one in named(whole, "NetworkPolicy").items()}
    closed = policies["gpuwright-nothing-else"]
    assert closed["policyTypes"] == ["Ingress", "Egress"] and not closed.keys() & {"ingress", "egress"}
    assert not any("app.kubernetes.io/component" in label for label in closed["podSelector"]["matchLabels"])
    ports = {port["port"] for rule in policies["gpuwright-database"]["egress"] for port in rule["ports"]}
    assert ports == {5432, 6432}
    [names] = policies["gpuwright-names"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert names["to"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "kube-system"}


def test_a_database_and_names_at_other_ports_are_reached(tmp_path: Path) -> None:
    made = render(tmp_path, {"network": {"databasePorts": [15432], "names": {"namespace": "", "ports": [5353]}}})
    policies = {name: one["spec"] for name, one in named(made, "NetworkPolicy").items()}
    assert policies["gpuwright-database"]["egress"] == [{"ports": [{"port": 15432, "protocol": "TCP"}]}]
    both = [{"port": 5353, "protocol": protocol} for protocol in ("UDP", "TCP")]
    assert policies["gpuwright-names"]["egress"] == [{"ports": both}]
    # a rule without ports would let everything out
    helm = run_helm(tmp_path, "template", "gpuwright", str(CHART), values={"network": {"databasePorts": []}})
    assert "network.databasePorts names no port" in helm.communicate(timeout=patience())[1]


def test_the_secrets_that_are_asked_for_are_those_that_the_page_makes(bare: list[Resource]) -> None:
    page = (CHART.parents[1] / "docs" / "deployment.md").read_text()
    made = set(re.findall(r"--from-literal=([a-z-]+)=", page))
    asked = [one["valueFrom"]["secretKeyRef"] for each in containers(bare) for one in each["env"] if "valueFrom" in one]
    assert {one["key"] for one in asked} == made
    names = {one["name"] for one in asked} | {
        volume["secret"]["secretName"]
        for _, pod in pods(bare)
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert names == set(re.findall(r"create secret generic (\S+)", page))


def test_the_gateways_haproxy_has_the_base_that_is_tested_for_a_user_without_rights(whole: list[Resource]) -> None:
    base = (CHART.parent / "haproxy" / "haproxy.cfg").read_text()
    written = named(whole, "ConfigMap")["gpuwright-gateway"]["data"]["haproxy.cfg"]
    assert set(base.splitlines()) - set(written.splitlines()) == {
        "    user haproxy",
        "    group haproxy",
        "    bind :80",
    }
    assert set(written.splitlines()) - set(base.splitlines()) == {"    bind :8000"}


def test_alerts_and_dashboard_are_those_of_every_other_installation(whole: list[Resource]) -> None:
    [rules] = named(whole, "PrometheusRule").values()
    assert rules["spec"] == yaml.safe_load((MONITORING / "gpuwright.rules.yml").read_text())
    shown = json.loads(named(whole, "ConfigMap")["gpuwright-dashboard"]["data"]["gpuwright.json"])
    written = (MONITORING / "gpuwright-dashboard.json").read_text().replace("${DS_PROMETHEUS}", "prometheus")
    assert shown == json.loads(written)


def test_a_scaler_of_two_namespaces_has_its_rights_in_these_alone(tmp_path: Path) -> None:
    made = render(tmp_path, {"roles": {"scaler": {"enabled": True, "namespaces": ["shop", "lab"]}}})
    bound = {one["metadata"]["namespace"] for one in named_all(made, "RoleBinding")}
    assert bound == {"shop", "lab"}
    everywhere = [one["roleRef"]["name"] for one in named_all(made, "ClusterRoleBinding")]
    assert everywhere == ["gpuwright-reader"]


def named_all(resources: list[Resource], kind: str) -> list[Resource]:
    return [one for one in resources if one["kind"] == kind]


def test_every_value_that_is_documented_is_used_and_every_one_that_is_used_is_documented() -> None:
    text = "\n".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    text = text.replace("$monitor.", ".Values.monitoring.serviceMonitor.")
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", text)) - {"monitoring.serviceMonitor"}
    documented = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert used == documented


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The paths of values; what an operator fills with names of his own is one value."""
    if isinstance(value, dict) and value and not path.lower().endswith(("labels", "resources")):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".lstrip("."))
    else:
        yield path


def test_a_scaler_has_the_account_that_may_scale_and_reaches_what_it_reads(
    whole: list[Resource], tmp_path: Path
) -> None:
    policy = named(whole, "NetworkPolicy")["gpuwright-scaler"]["spec"]
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [443, 6443, 9090]
    enabled = {"scaler": {"enabled": True, "prometheus": "http://prometheus:9090", "followers": ["keda"]}}
    made = render(tmp_path, {**enabled, "roles": {"scaler": {"namespaces": ["shop", "chat"]}}})
    assert named(made, "ServiceAccount").keys() == {"gpuwright-scaler"}
    assert sorted(one["metadata"]["namespace"] for one in made if one["kind"] == "RoleBinding") == ["chat", "shop"]
    [container] = [one for one in containers(made) if one["name"] == "scaler"]
    assert {"name": "GPUWRIGHT_SCALE_NAMESPACES", "value": "shop,chat"} in container["env"]
    sources = named(made, "NetworkPolicy")["gpuwright-scaler"]["spec"]["ingress"][0]["from"]
    names = [one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in sources]
    assert names == ["monitoring", "keda"]
    helm = run_helm(tmp_path, "template", "gpuwright", str(CHART), values={"scaler": {"enabled": True}})
    assert "scaler.prometheus is empty" in helm.communicate(timeout=patience())[1]


def test_a_scaler_of_ray_serve_reads_its_services_and_speaks_to_no_kubernetes(tmp_path: Path) -> None:
    values = {"enabled": True, "prometheus": "http://prometheus:9090", "rayServices": "ray-services"}
    made = render(tmp_path, {"scaler": values})
    assert not {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} & {one["kind"] for one in made}
    spec = named(made, "Deployment")["gpuwright-scaler"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    [container] = spec["containers"]
    assert {"name": "GPUWRIGHT_RAY_SERVICES", "value": "/ray/services.yaml"} in container["env"]
    assert {"name": "ray", "mountPath": "/ray", "readOnly": True} in container["volumeMounts"]
    assert {"name": "ray", "secret": {"secretName": "ray-services", "defaultMode": 0o440}} in spec["volumes"]
    policy = named(made, "NetworkPolicy")["gpuwright-scaler"]["spec"]
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [8265, 9090]


def test_a_planner_has_its_hooks_as_files_by_themselves_and_reaches_what_they_call(
    whole: list[Resource], bare: list[Resource]
) -> None:
    """In a Secret that is mounted whole, each file is a link, which `load_hooks` refuses."""
    spec = named(whole, "Deployment")["gpuwright-planner"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert {"name": "GPUWRIGHT_HOOKS_FILE", "value": "/hooks/hooks.yaml"} in container["env"]
    assert [mount for mount in container["volumeMounts"] if mount["name"] == "hooks"] == [
        {"name": "hooks", "mountPath": f"/hooks/{key}", "subPath": key, "readOnly": True}
        for key in ("hooks.yaml", "rent-node")
    ]
    assert {"name": "hooks", "secret": {"secretName": "hooks", "defaultMode": 0o550}} in spec["volumes"]
    policy = named(whole, "NetworkPolicy")["gpuwright-hooks"]["spec"]
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [443, 6443]
    [without] = [one for one in containers(bare) if one["name"] == "planner"]
    assert "GPUWRIGHT_HOOKS_FILE" not in {one["name"] for one in without["env"]}


@pytest.mark.parametrize("given", [{"hooksFiles": ["rent-node"]}, {"karpenter": True}])
def test_what_is_for_hooks_is_refused_without_their_secret(tmp_path: Path, given: dict[str, object]) -> None:
    """No planner would have them."""
    helm = run_helm(tmp_path, "template", "gpuwright", str(CHART), values={"planner": given})
    assert f"planner.{next(iter(given))} needs planner.hooksSecret" in helm.communicate(timeout=patience())[1]
    assert helm.returncode != 0


def test_an_agent_gets_its_tokens_the_root_helper_none_and_both_folders_of_their_node(
    whole: list[Resource],
) -> None:
    spec = named(whole, "DaemonSet")["gpuwright-agent-a100"]["spec"]["template"]["spec"]
    by_name = {one["name"]: one for one in [*spec["initContainers"], *spec["containers"]]}
    projected = {one["name"]: one["projected"]["sources"][0] for one in spec["volumes"] if "projected" in one}
    assert projected["joining"]["serviceAccountToken"]["audience"] == "gpuwright"
    assert "audience" not in projected["kubernetes"]["serviceAccountToken"]
    holders = {
        name: {mount["name"] for mount in one["volumeMounts"]} & projected.keys() for name, one in by_name.items()
    }
    assert holders == {"folders": set(), "helper": set(), "join": {"joining"}, "agent": {"joining", "kubernetes"}}
    helper = (CHART.parent / "systemd" / "gpuwright-privileged.service").read_text()
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_CHOWN\n" in helper
    socket, state = "/run/gpuwright-privileged/socket", "/var/lib/gpuwright-privileged"
    assert by_name["helper"]["args"] == ["--user", "64820", "--socket", socket, "--state-dir", state]
    mounts = [(mount["name"], mount["mountPath"]) for one in by_name.values() for mount in one["volumeMounts"]]
    for volume in spec["volumes"]:  # a copy has the same folders at the same paths
        if "hostPath" in volume:
            assert {path for name, path in mounts if name == volume["name"]} == {volume["hostPath"]["path"]}
    daemons = named(whole, "DaemonSet")["gpuwright-mps-a100"]["spec"]
    assert daemons["updateStrategy"] == {"type": "OnDelete"}, "copies would end with it"
    assert [one for one in daemons["template"]["spec"]["volumes"] if one not in spec["volumes"]] == []
    server = next(one for one in containers(whole) if one["name"] == "api")
    assert {"name": "GPUWRIGHT_KUBERNETES_AGENTS", "value": "gpuwright-nodes/gpuwright-runner"} in server["env"]


def test_agents_need_a_namespace_of_their_own_and_a_pool(tmp_path: Path) -> None:
    pools = [{"name": "t4", "gpuType": "t4", "gpus": 1, "nodeSelector": {"pool": "t4"}}]
    for agents, wanted in (
        ({"pools": pools, "namespace": "gpuwright"}, "agent.namespace is that of the servers"),
        ({}, "agent.pools is empty"),
    ):
        helm = run_helm(
            tmp_path, "template", "gpuwright", str(CHART), "--namespace", "gpuwright",
            values={"agent": {"enabled": True, **agents}},
        )  # fmt: skip
        assert wanted in helm.communicate(timeout=patience())[1]
    old = ("template", "gpuwright", str(CHART), "--kube-version", "1.29.4")
    helm = run_helm(tmp_path, *old, values={"agent": {"enabled": True, "pools": pools}})
    assert "agent.enabled needs Kubernetes 1.30 or newer" in helm.communicate(timeout=patience())[1]


def test_prometheus_finds_agents_in_their_namespace(whole: list[Resource], tmp_path: Path) -> None:
    monitor = named(whole, "ServiceMonitor")["gpuwright-agent"]["spec"]
    service = named(whole, "Service")["gpuwright-agent"]
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]] == ["gpuwright-nodes"]
    assert "--metrics=0.0.0.0:9400" in next(one for one in containers(whole) if one["name"] == "agent")["args"]
    allowed = named(whole, "NetworkPolicy")["gpuwright-agent-metrics"]["spec"]["ingress"]
    assert [rule["ports"] for rule in allowed] == [[{"port": 9400, "protocol": "TCP"}]]
    quiet = render(tmp_path, {"agent": EVERYTHING["agent"]})
    assert "gpuwright-agent" not in named(quiet, "Service")
    agent = next(one for one in containers(quiet) if one["name"] == "agent")
    assert not any(word.startswith("--metrics") for word in agent["args"]), "it needs no token"
