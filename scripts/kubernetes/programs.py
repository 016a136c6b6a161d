"""Where programs of a Kubernetes control plane, KEDA and Envoy Gateway are for tests: in a cache all checkouts share.

Each stands in a `go.mod` of its own, which names their versions. `python -m scripts.kubernetes` builds them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ASSETS = "KUBEBUILDER_ASSETS"  # the variable of envtest, for those who have such programs
DEFINITIONS = "definitions"  # the folder beside programs of the custom resources that their module defines


@dataclass(frozen=True, slots=True)
class Programs:
    """What Go builds from one `go.mod`."""

    module: Path  # the go.mod
    required: str  # the module whose release is that of the programs
    packages: Mapping[str, str]  # the package of each program, by its name
    stamps: tuple[str, ...]  # variables of packages that say the release, with {version} and {minor}
    definitions: str = ""  # the folder of its custom resources' definitions in the required module

    def read_version(self) -> str:
        """Returns the release that `go.mod` names, such as v1.37.2."""
        found = re.search(rf"^(?:\t|require ){re.escape(self.required)} (v\S+)$", self.module.read_text(), re.MULTILINE)
        assert found, f"{self.module} names no release of {self.required}"
        return found[1]

    def find_cache(self) -> Path:
        """Returns the folder of what this `go.mod` builds, whether it is there or not."""
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        content = hashlib.sha256(self.module.read_bytes()).hexdigest()[:12]
        return caches / "gpuwright-kubernetes" / f"{self.read_version()}-{content}"

    def find_missing(self) -> list[str]:
        return [name for name in self.packages if not find_program(name)]


KUBERNETES = Programs(
    Path(__file__).with_name("go.mod"),
    "k8s.io/kubernetes",
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "helm": "helm.sh/helm/v4/cmd/helm",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    (
        "k8s.io/component-base/version.gitVersion={version}",
        "k8s.io/component-base/version.gitMajor=1",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
)
KEDA = Programs(
    Path(__file__).with_name("keda") / "go.mod",
    "github.com/kedacore/keda/v2",
    {
        "keda-operator": "github.com/kedacore/keda/v2/cmd/operator",
        "keda-adapter": "github.com/kedacore/keda/v2/cmd/adapter",
    },
    ("github.com/kedacore/keda/v2/version.Version={version}",),
    "config/crd/bases",
)
GATEWAY = Programs(
    Path(__file__).with_name("gateway") / "go.mod",
    "github.com/envoyproxy/gateway",
    {"envoy-gateway": "github.com/envoyproxy/gateway/cmd/envoy-gateway"},
    (),
    "charts/gateway-helm/charts/crds/crds",  # with those of the Gateway API
)
ALL = {"kubernetes": KUBERNETES, "keda": KEDA, "gateway": GATEWAY}


def find_program(name: str) -> Path | None:
    """Returns the program of that name; one in the folder that KUBEBUILDER_ASSETS names comes first."""
    folders = [Path(os.environ[ASSETS])] if os.environ.get(ASSETS) else []
    folders += [programs.find_cache() for programs in ALL.values()]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    return Path(found) if found else None
