"""A kubeconfig: who speaks to which server."""

from __future__ import annotations

import base64
import json
from pathlib import Path


def write_kubeconfig(path: Path, url: str, authority: str, token: str, namespace: str = "default") -> None:
    """Writes one for the bearer of a token. It is JSON, which every reader of YAML takes."""
    data = base64.b64encode(authority.encode()).decode()
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": url, "certificate-authority-data": data}}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(written))


def read_connection(text: str) -> tuple[str, str]:
    """Returns the server's address and its authority from what `kubectl config view` prints as JSON."""
    [cluster] = json.loads(text)["clusters"]
    said = cluster["cluster"]
    return said["server"], base64.b64decode(said.get("certificate-authority-data", "")).decode()
