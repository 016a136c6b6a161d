"""An allow-list as an operator writes it, and what it admits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agents.admission.reading import AllowList, read_allow_list
from agents.contract.assignments import AssignedInstance
from agents.contract.runtimes import OwnRuntime
from agents.keeper.filler import Filler

DIGEST = "sha256:" + "ab" * 32
IMAGE = f"registry.example.com/shop/search@{DIGEST}"

COMMAND: Mapping[str, Any] = {
    "command": ["{python}", "-m", "http.server"],
    "args": ["--bind", "{host}", "{port}", "--workers=2"],
    "env": {"LOG_LEVEL": "info"},
    "secrets": {"API_KEY": "shop-key"},
    "volumes": ["models"],
}
CONTAINER: Mapping[str, Any] = {"image": IMAGE, "args": ["--model", "small/v1"], "port": 8000, "volumes": ["models"]}


def write_list(folder: Path, more: str = "", user: str = "user: agent") -> Path:
    """Writes an allow-list with one command, one image, one volume and one secret."""
    (folder / "models").mkdir(exist_ok=True)
    secret = folder / "shop-key"
    secret.touch(mode=0o600)
    secret.write_text("swordfish\n")
    path = folder / "allow-list.yaml"
    path.write_text(
        f"""\
{user}
admit:
  files:
    argv: ["{{python}}", -m, http.server, --bind, "{{host}}", "{{port}}", "--workers={{integer:1..4}}"]
    environment: {{LOG_LEVEL: "{{choice:info|debug}}", TITLE: "{{text}}"}}
    secrets: {{API_KEY: shop-key}}
    volumes: [models]
  search:
    image: {IMAGE}
    args: [--model, "{{path}}"]
    volumes: [models]
volumes:
  models: {{folder: {folder / "models"}}}
secrets:
  shop-key: {secret}
{more}"""
    )
    return path


def assigned(runtime: Mapping[str, Any], **fields: Any) -> AssignedInstance:
    """Returns an instance as a control plane of any honesty assigns it: what the wire carries, and no more."""
    line = {"id": "x-1", "gpu": 0, "tenant": "shop", "service": "search", "runtime": runtime, **fields}
    return msgspec.json.decode(msgspec.json.encode(line), type=AssignedInstance)


def refusal(found: AllowList, runtime: Mapping[str, Any], kind: str = "process", **fields: Any) -> tuple[str, str]:
    """Returns the node's reason and message; empty where it would start the runtime."""
    filler = Filler({}, "127.0.0.1", b"key", found, kind)
    return filler.refused([assigned(runtime, **fields)]).get("x-1", ("", ""))


def own(runtime: Mapping[str, Any]) -> OwnRuntime:
    return msgspec.convert(runtime, OwnRuntime)


def read_list(folder: Path) -> AllowList:
    return read_allow_list(write_list(folder))
