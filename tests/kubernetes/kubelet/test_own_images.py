"""Users' own images as pods: what the node's allow-list admits, with secrets that the agent does not see."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from agents.admission.reading import parse
from agents.contract.runtimes import OwnProbe, OwnProbes, OwnRuntime
from agents.keeper.copies import Stage
from agents.runtime import proc
from agents.talk.copy_client import TcpCopyClient
from agents.templates import Probe
from tests.kubernetes.kubelet.pod_node import budgeted_namespace, pod_node
from tests.kubernetes.nodes import RunningCluster
from tests.support.nodes import assigned, copy_of, ready, served
from tests.support.patience import until

pytestmark = pytest.mark.slow

IMAGE = f"registry.example.com/shop/search@sha256:{'0a' * 32}"
PORT = 21_099  # where the image listens, whatever port the copy is given
PROGRAM = (
    sys.executable, "-I", "-m", "agents.programs.serve.main", "--host={host}", "--port={port}", "--name=own",
    "--device=simulated", "--latency=1:10=2,100=1",
)  # fmt: skip
RUNTIME = OwnRuntime(
    image=IMAGE,
    args=PROGRAM,
    secrets={"HUB_TOKEN": "hub"},
    volumes=("models",),
    port=PORT,
    probes=OwnProbes(OwnProbe("/healthz")),
    warmup=OwnProbe("/v1/warmup", "POST", seconds=30),
)
LIST = """
admit:
  search:
    image: IMAGE
    args: ARGS
    secrets: {HUB_TOKEN: hub}
    volumes: [models]
volumes:
  models: {folder: MODELS, at: /tmp/own-models}
secrets: {hub: hub-access/token}
user: agent
"""


def test_an_own_image_serves_at_its_own_port_with_its_secret_and_its_volume(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir(mode=0o755)
    (models / "weights").write_text("7")
    words = msgspec.json.encode(list(PROGRAM)).decode()
    text = LIST.replace("IMAGE", IMAGE).replace("ARGS", words).replace("MODELS", str(models))
    admitted = parse(text, "allow-list.yaml")
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "own", tmp_path, images=(IMAGE,)) as made,
        made.running_agent(allow_list=admitted) as node,
    ):
        pod_cluster.kubectl("-n", namespace, "create", "secret", "generic", "hub-access", "--from-literal=token=s3cret")
        instance = msgspec.structs.replace(served("search-1"), template="", args=None, runtime=RUNTIME)
        node.offer(assigned(1, instance))
        until(
            lambda: ready(node, "search-1"),
            lambda: [(copy.stage, copy.reason, copy.message) for copy in node.keeper.copies()] + [node.keeper.held],
        )
        copy = copy_of(node, "search-1")
        assert copy.running is not None
        assert copy.stage is Stage.READY
        assert (copy.listens_at.port, copy.listens_at.host.startswith("127.")) == (PORT, True)
        assert TcpCopyClient().ask(copy.listens_at, Probe("GET", "/healthz")).ok
        environment = proc.read_environment(copy.running.pid)
        assert environment["HUB_TOKEN"] == "s3cret"
        assert "s3cret" not in pod_cluster.kubectl("-n", namespace, "get", "replicasets,pods", "-o", "json")
        inside = Path(f"/proc/{copy.running.pid}/root")
        assert (inside / "tmp" / "own-models" / "weights").read_text() == "7"


def test_a_secret_that_is_a_file_is_refused_for_a_pod(pod_cluster: RunningCluster, tmp_path: Path) -> None:
    words = msgspec.json.encode(list(PROGRAM)).decode()
    text = LIST.replace("IMAGE", IMAGE).replace("ARGS", words).replace("MODELS", "/srv/models")
    admitted = parse(text.replace("hub-access/token", "/etc/hub-token"), "allow-list.yaml")
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "refusing", tmp_path, images=(IMAGE,)) as made,
        made.running_agent(allow_list=admitted) as node,
    ):
        runtime = msgspec.structs.replace(RUNTIME, volumes=())
        node.offer(assigned(1, msgspec.structs.replace(served("search-1"), template="", args=None, runtime=runtime)))
        until(lambda: node.keeper.held, "it is held back")
        (held,) = node.keeper.held
        assert (held.missing.reason, "a Secret of its namespace" in held.missing.message) == ("not_admitted", True)
