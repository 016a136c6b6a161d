"""Where the programs of a Kubernetes control plane for tests are: in a cache folder that all checkouts share.

`go.mod` beside this file names their versions. `python -m scripts.kubernetes` builds them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

MODULE = Path(__file__).with_name("go.mod")
# The package of each program, by its name.
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v4/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
ASSETS = "KUBEBUILDER_ASSETS"  # the variable of envtest, for those who have such programs


def read_version() -> str:
    """Returns the release of Kubernetes that `go.mod` names, such as v1.37.2."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)$", MODULE.read_text(), re.MULTILINE)
    assert found, f"{MODULE} names no release of Kubernetes"
    return found[1]


def find_cache() -> Path:
    """Returns the folder of what this `go.mod` builds, whether it is there or not."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    content = hashlib.sha256(MODULE.read_bytes()).hexdigest()[:12]
    return caches / "gpuwright-kubernetes" / f"{read_version()}-{content}"


def find_program(name: str) -> Path | None:
    """Returns the program of that name; one in the folder that KUBEBUILDER_ASSETS names comes first."""
    folders = [Path(os.environ[ASSETS])] if os.environ.get(ASSETS) else []
    found = shutil.which(name, path=os.pathsep.join(map(str, (*folders, find_cache()))))
    return Path(found) if found else None
