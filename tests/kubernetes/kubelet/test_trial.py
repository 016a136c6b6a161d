"""The doctor tries a pod as copies are: what it finds, and that nothing of it stays."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agents.kubernetes.api import Account, KubernetesApi
from agents.node.state_folder import Credential, StateFolder
from agents.run.doctor import trial
from agents.run.doctor.findings import Level
from agents.run.opening import AgentOptions, write_pod_settings
from agents.runtime.pods import PodRuntime
from tests.agents.runtime.conformance import SLEEPER, launched
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import Place, RunningCluster
from tests.support.nvml_stub import NvmlState, environment, needs_gcc
from tests.support.patience import until

pytestmark = [pytest.mark.slow, needs_gcc]
CLASS = "shows-gpus"


@pytest.fixture(scope="module", autouse=True)
def runtime_class(pod_cluster: RunningCluster) -> None:
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": CLASS}, "handler": CLASS}
    pod_cluster.kubectl("create", "-f", "-", given=kind)


@pytest.fixture
def options(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentOptions:
    open_api(place.cluster, place.namespace, tmp_path / "account")
    host, port = place.cluster.server.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    StateFolder(tmp_path / "state").keep_credential(Credential("https://plane:8080", "tried", "token", ""))
    account = tmp_path / "account"
    return AgentOptions(tmp_path / "state", runtime="pods", image=IMAGE, runtime_class=CLASS, account=account)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[NvmlState]:
    yield NvmlState(tmp_path / "nvml")


def tried(options: AgentOptions, gpu: str) -> dict[str, tuple[Level, str]]:
    return {found.check: (found.level, found.found) for found in trial.try_copy(options, gpu)}


def seeing(state: NvmlState) -> Mapping[str, Mapping[str, str]]:
    return {CLASS: environment(state)}


def test_a_pod_that_sees_its_gpu_alone_is_as_copies_are(place: Place, options: AgentOptions, state: NvmlState) -> None:
    gpu = state.add(0)
    with place.cluster.running_node("tried", runtime_classes=seeing(state)):
        found = tried(options, gpu)
        assert {level for level, _ in found.values()} == {Level.OK}, found
        assert found["copy gpu"][1] == f"a copy with {gpu} sees it alone"
        assert set(found) == {"copy trial", "copy gpu", "copy gate", "copy end"}
        until(lambda: not place.read("pods")["items"], "nothing of it stays")


def test_what_a_doctor_left_is_ended_by_the_next_and_two_do_not_disturb_each_other(
    place: Place, options: AgentOptions
) -> None:
    api = KubernetesApi(Account(options.account))
    with place.cluster.running_node("tried"):
        killed = PodRuntime(api, write_pod_settings(options, "tried", part="trial"))
        with closing(killed):
            until(lambda: killed.start(launched("doctor-1", SLEEPER, image=IMAGE)), "a pod is left")
        other = trial.try_copy(options, "")
        assert next(other).level is Level.OK
        assert "another doctor" in tried(options, "")["copy trial"][1]
        assert {found.level for found in other} == {Level.OK}
        until(lambda: not place.read("pods")["items"], "nothing of it stays")


def test_before_it_joins_no_copy_is_tried(options: AgentOptions, tmp_path: Path) -> None:
    assert "has not joined" in tried(replace(options, folder=tmp_path / "other"), "")["copy trial"][1]


def test_what_a_pod_sees_besides_its_gpu_or_in_its_place_is_named(
    place: Place, options: AgentOptions, state: NvmlState
) -> None:
    with place.cluster.running_node("tried", runtime_classes=seeing(state)):
        assert "sees no GPU" in tried(options, "GPU-1")["copy gpu"][1]
        gpu = state.add(0)
        state.add(1)
        assert "sees others, too" in tried(options, gpu)["copy gpu"][1]
        assert tried(options, "")["copy gpu"][0] is Level.OK


def test_a_pod_that_does_not_start_is_explained_and_taken_away(
    place: Place, options: AgentOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "START_SECONDS", 5.0)
    with place.cluster.running_node("tried"):
        monkeypatch.setattr(trial, "PROGRAM", (sys.executable, "-c", "raise SystemExit('no such library')"))
        (level, why) = tried(options, "")["copy trial"]
        assert level is Level.FAIL
        assert "no such library" in why
        options = AgentOptions(options.folder, runtime="pods", image="registry.example/none:1", account=options.account)
        assert "ErrImagePull" in tried(options, "")["copy trial"][1]
        until(lambda: not place.read("pods")["items"], "nothing of it stays")
