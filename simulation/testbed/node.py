"""A node of the testbed: joins with its one-time token, writes its profiles, and becomes its agent.

Usage: python -m simulation.testbed.node NAME GPU_TYPE KIND GPUS

KIND is the kind of its simulated GPUs, or `nvml` for those of this machine. Model servers here have no model: each
follows the profile of this node's GPU type, which is stored with the node's model files.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from agents.control.join import join
from agents.node.state_folder import StateFolder
from agents.talk.link import LinkError

SERVER = os.environ.get("GPUWRIGHT_SERVER", "http://api:8080")
STATE = Path("/var/lib/gpuwright-agent")
MODELS = STATE / "models"
TOKEN = Path("/keys/nodes/join.token")  # of this node alone
WORLD = Path("/etc/gpuwright/testbed.yaml")
METRICS = "0.0.0.0:9400"
MACHINE = {"cpuCores": 40, "memoryGib": 62}  # HetSev's nodes; nothing here needs that much
RETRY_SECONDS = 1.0


def stub_profiles(world: str, gpu_type: str) -> dict[str, dict[str, Any]]:
    """Returns by model what its stub follows on GPUs of this type."""
    documents = list(yaml.safe_load_all(world))
    specs = [document["spec"] for document in documents if document["kind"] == "Profile"]
    fields = ("latencyMs", "memoryGib", "startSeconds")
    return {spec["model"]: {name: spec[name] for name in fields} for spec in specs if spec["gpuType"] == gpu_type}


def await_membership(node: str, gpu_type: str, gpus: int) -> None:
    """Waits until this node has a credential; the next `tour` replaces a token that was used or has expired."""
    folder = StateFolder(STATE)
    error_text = ""
    while not folder.credential():
        try:
            token = TOKEN.read_text().strip()
            join(folder, SERVER, token, node, {"gpuType": gpu_type, "gpus": gpus, **MACHINE})
        except (OSError, LinkError, msgspec.MsgspecError) as error:
            if str(error) != error_text:
                error_text = str(error)
                print(f"not joined yet: {error_text}", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(RETRY_SECONDS)


def main() -> int:
    node, gpu_type, kind, gpus = sys.argv[1:]
    MODELS.mkdir(mode=0o700, parents=True, exist_ok=True)
    for model, profile in stub_profiles(WORLD.read_text(), gpu_type).items():
        (MODELS / f"{model}.json").write_text(json.dumps(profile))
    await_membership(node, gpu_type, int(gpus))
    words = ["gpuwright", "agent", "run", "--state-dir", str(STATE), "--models", str(MODELS), "--gateway", "followed"]
    if kind != "nvml":
        words += ["--device", "simulated", "--simulated-kind", kind, "--simulated-gpus", gpus]
    words += ["--host", socket.gethostbyname(socket.gethostname()), "--metrics", METRICS]
    os.execvp(words[0], words)  # noqa: S606


if __name__ == "__main__":
    sys.exit(main())
