"""helm, and what it makes of our chart."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import need_kubernetes
from tests.support.patience import patience

CHART = Path(__file__).parents[2] / "deploy" / "chart"
RELEASE, NAMESPACE = "gpuwright", "gpuwright"
Resource = dict[str, Any]
Values = Mapping[str, Any]
# All that may be switched on.
EVERYTHING: Values = {
    "api": {
        "settings": {"GPUWRIGHT_OIDC_ISSUER": "https://id.example.org"},
        "oidcSecret": "oidc",
        "webhooksSecret": "webhooks",
    },
    "agent": {
        "enabled": True,
        "pools": [{"name": "a100", "gpuType": "a100-sxm4-80gb", "gpus": 8, "nodeSelector": {"pool": "a100"}}],
    },
    "gateway": {"enabled": True},
    "planner": {"hooksSecret": "hooks", "hooksFiles": ["rent-node"], "karpenter": True},
    "routes": {"enabled": True, "parent": "infra/public/https", "hostnames": ["models.example.org"]},
    "scaler": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090", "tokenSecret": "prometheus-token"},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
    "roles": {"reader": {"enabled": True}, "scaler": {"enabled": True}},
}


def run_helm(folder: Path, *words: str, values: Values | None = None, **environment: str) -> subprocess.Popen[str]:
    """Starts it; what it keeps is in the folder."""
    given = folder / "values.json"
    given.write_text(json.dumps(values or {}))
    places = {f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.Popen(
        [need_kubernetes("helm"), *words, *(() if values is None else ("--values", given))],
        env={**os.environ, **places, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(helm: subprocess.Popen[str]) -> str:
    """Returns what it printed."""
    printed, complained = helm.communicate(timeout=patience())
    assert helm.returncode == 0, complained
    return printed


def render(folder: Path, values: Values) -> list[Resource]:
    """Returns what an installation with these values would make, hooks included."""
    printed = finish(run_helm(folder, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, values=values))
    return [one for one in yaml.safe_load_all(printed) if one]
