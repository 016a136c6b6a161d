"""The real operator and metrics adapter of KEDA, as processes beside an API server of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.kubernetes.programs import DEFINITIONS
from tests.kubernetes.certificates import make_certificate
from tests.kubernetes.metrics_adapter import registered_adapter
from tests.kubernetes.recorded import define_kind
from tests.kubernetes.scaled import ScalingServer
from tests.kubernetes.server import launch
from tests.support.patience import until
from tests.support.ports import free_port

HOME = "keda"


@contextmanager
def running_keda(server: ScalingServer, operator: Path, folder: Path) -> Iterator[Path]:
    """Runs both, without webhooks, and yields what they log. They come with KEDA's own definitions of its objects."""
    adapter = operator.with_name("keda-adapter")
    _define(server, operator.parent / DEFINITIONS)
    folder.mkdir()
    certificate = make_certificate(folder)
    shutil.copy(certificate.certificate, folder / "tls.crt")
    shutil.copy(certificate.certificate, folder / "ca.crt")
    shutil.copy(certificate.key, folder / "tls.key")
    admin, log = str(server.server.admin), folder / "keda.log"
    environment = {"KUBECONFIG": admin, "WATCH_NAMESPACE": ""}
    environment |= dict.fromkeys(("POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"), HOME)
    grpc, secure = f"127.0.0.1:{free_port()}", free_port()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(
            launch(
                log, operator, f"--cert-dir={folder}", f"--metrics-service-bind-address={grpc}",
                "--metrics-bind-address=0", "--health-probe-bind-address=0", "--zap-encoder=console", **environment,
            )
        )  # fmt: skip
        processes.append(
            launch(
                log, adapter, f"--secure-port={secure}", "--bind-address=127.0.0.1",
                f"--metrics-service-address={grpc}",
                f"--client-ca-file={folder / 'ca.crt'}", f"--tls-cert-file={folder / 'tls.crt'}",
                f"--tls-private-key-file={folder / 'tls.key'}", f"--cert-dir={folder}", "--port=0",
                f"--authentication-kubeconfig={admin}", f"--authorization-kubeconfig={admin}",
                f"--lister-kubeconfig={admin}", **environment,
            )
        )  # fmt: skip

        def is_ready() -> bool:
            assert all(process.poll() is None for process in processes), f"KEDA ended: {log.read_text()[-3000:]}"
            return "Starting workers" in log.read_text()

        until(is_ready, lambda: f"KEDA: {log.read_text()[-3000:]}")
        with registered_adapter(server.cluster, secure):
            yield log
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _define(server: ScalingServer, definitions: Path) -> None:
    """Defines KEDA's kinds in place of ours, but for ScaledJobs, whose file KEDA patches when it is installed."""
    kubectl = server.cluster.kubectl
    kubectl("create", "namespace", HOME)
    for path in sorted(definitions.iterdir()):
        if path.name == "keda.sh_scaledjobs.yaml":
            kubectl("create", "-f", "-", given=define_kind("keda.sh", "v1alpha1", "ScaledJob", "scaledjobs"))
        else:
            kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
