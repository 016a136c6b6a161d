"""A real API server of Kubernetes over a real etcd, on loopback, with RBAC and an audit log."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.audit import Audit
from tests.kubernetes.certificates import make_certificate
from tests.kubernetes.kubeconfig import write_kubeconfig
from tests.support.needs import need_kubernetes
from tests.support.patience import patience, until
from tests.support.ports import free_port

ADMIN = "admin"
# Every request when it comes, and how it ended; of writes of replicas what was asked and answered, too. What the server
# asks of itself is left out.
AUDITED = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {
            "level": "RequestResponse",
            "verbs": ["update", "patch"],
            "resources": [{"group": "apps", "resources": ["deployments/scale"]}],
        },
        {"level": "Metadata"},
    ],
}
# Of the controllers of Kubernetes, those whose work needs no cloud and no heartbeats of nodes.
CONTROLLERS = (
    "deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller",
    "disruption-controller", "taint-eviction-controller",
    "garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
    "horizontal-pod-autoscaler-controller", "resourcequota-controller", "job-controller", "resourceclaim-controller",
)  # fmt: skip


class ApiServer:
    """Its processes, files and administrator."""

    def __init__(self, folder: Path) -> None:
        for name in ("etcd", "kube-apiserver"):
            need_kubernetes(name)
        self.folder = folder
        self.log = folder / "server.log"
        self.url = f"https://127.0.0.1:{free_port()}"
        self.audit = Audit(folder / "audit.log")
        self.admin = folder / "admin.kubeconfig"
        self.files = make_certificate(folder)
        self._token = secrets.token_urlsafe()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started: set[str] = set()

    def start(self) -> None:
        self._start_etcd()
        self._start_server()
        write_kubeconfig(self.admin, self.url, self.files.certificate.read_text(), self._token)
        until(self._is_ready, lambda: f"the API server is not ready: {self.log.read_text()[-3000:]}")

    def start_controllers(self) -> None:
        """Starts what makes the pods of deployments and counts those of budgets."""
        self._start_once(
            "kube-controller-manager", f"--service-account-private-key-file={self.files.key}",
            f"--controllers={','.join(CONTROLLERS)}", "--horizontal-pod-autoscaler-sync-period=1s",
        )  # fmt: skip

    def start_scheduler(self) -> None:
        """Starts what gives pods their nodes."""
        self._start_once("kube-scheduler")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Has an API server that takes connections and answers nothing, until it goes on."""
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Has no API server, killed at once, until one starts on the same data."""
        self._server.kill()
        self._server.wait()
        self._processes.remove(self._server)
        try:
            yield
        finally:
            self._start_server()
            until(self._is_ready, lambda: f"the API server is not ready: {self.log.read_text()[-3000:]}")

    def forget_history(self) -> None:
        """Forgets all versions but the last, as a cluster does every five minutes: who asks for an old one gets 410."""
        found = self._ask_etcd("kv/range", {"key": base64.b64encode(b"/").decode(), "limit": 1})
        self._ask_etcd("kv/compaction", {"revision": found["header"]["revision"], "physical": True})

    def close(self) -> None:
        """Ends all of it at once: nothing is worth keeping."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _start_etcd(self) -> None:
        self._etcd = f"http://127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        self._launch(
            need_kubernetes("etcd"), f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=error",
            f"--listen-client-urls={self._etcd}", f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )  # fmt: skip

    def _start_server(self) -> None:
        tokens, policy = self.folder / "tokens.csv", self.folder / "audit.json"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self._token},{ADMIN},{ADMIN},"system:masters"\n')
        policy.write_text(json.dumps(AUDITED))
        port = self.url.rsplit(":", 1)[1]
        self._server = self._launch(
            need_kubernetes("kube-apiserver"), f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged",
            f"--tls-cert-file={self.files.certificate}", f"--tls-private-key-file={self.files.key}",
            f"--cert-dir={self.folder / 'certificates'}", f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
            # No kubelet renews what this would mount into pods, and without controllers there is no account to mount.
            "--disable-admission-plugins=ServiceAccount",
            # So servers that it aggregates know who asks them through it.
            f"--proxy-client-cert-file={self.files.certificate}", f"--proxy-client-key-file={self.files.key}",
            f"--requestheader-client-ca-file={self.files.certificate}",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.files.key}", f"--service-account-signing-key-file={self.files.key}",
            # So it may ask kubelets for logs.
            f"--kubelet-client-certificate={self.files.certificate}", f"--kubelet-client-key={self.files.key}",
            f"--kubelet-certificate-authority={self.files.certificate}",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit.path}", "--audit-log-mode=blocking",
            # These come from etcd itself, so that what it forgets is gone.
            "--watch-cache-sizes=pods#0,configmaps#0", "--profiling=false",
        )  # fmt: skip

    def _start_once(self, name: str, *words: str) -> None:
        """Starts a program that acts as the administrator, unless it was started before."""
        if name not in self._started:
            self._started.add(name)
            program = need_kubernetes(name)
            self._launch(program, f"--kubeconfig={self.admin}", "--leader-elect=false", "--secure-port=0", *words)

    def _ask_etcd(self, path: str, asked: dict[str, object]) -> Any:
        address = f"{self._etcd}/v3/{path}"
        with urllib.request.urlopen(address, json.dumps(asked).encode(), timeout=patience()) as answer:
            return json.load(answer)

    def _launch(self, program: Path, *words: str) -> subprocess.Popen[bytes]:
        self._processes.append(launch(self.log, program, *words))
        return self._processes[-1]

    def _is_ready(self) -> bool:
        ended = [process.args for process in self._processes if process.poll() is not None]
        assert not ended, f"{ended} ended: {self.log.read_text()[-3000:]}"
        asked = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._token}"})
        trusted = ssl.create_default_context(cafile=str(self.files.certificate))
        with suppress(OSError), urllib.request.urlopen(asked, timeout=patience(), context=trusted) as answer:
            return bool(answer.read() == b"ok")
        return False


def launch(log: Path, program: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Starts a program; the kernel ends it with the process that runs the tests, however that ends."""
    command = ["setpriv", "--pdeathsig", "KILL", str(program), *words]
    with log.open("ab") as said:
        given = {**os.environ, **environment}
        return subprocess.Popen(command, env=given, stdin=subprocess.DEVNULL, stdout=said, stderr=said)


@contextmanager
def running_api_server(folder: Path) -> Iterator[ApiServer]:
    server = ApiServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
