"""The guide of the testbed: an admin's token, the example applied, tokens for gateway and nodes, then where to look.

Usage: python -m simulation.testbed.tour WORLD.yaml

A second run makes only what is missing, and keeps what was edited since.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from agents.talk.link import Link, LinkError
from simulation.testbed.keys import write_file

SERVER = os.environ.get("GPUWRIGHT_SERVER", "http://api:8080")
GATEWAY = os.environ.get("TESTBED_GATEWAY", "haproxy:8000")
ADMIN = Path("/keys/admin")
GATEWAY_TOKEN = Path("/keys/gateway/gateway.token")
NODE_TOKENS = Path("/keys/nodes")  # a volume for each node
REAL_NODE = "gpu-1"  # of the profile `gpu`
DAY_SECONDS = 86_400
PATIENCE_SECONDS = 300.0
AGAIN_SECONDS = 0.5

LOOK = """\
every service answers after {seconds:.0f} s. Look around:
  http://127.0.0.1:8080/            the console; its token: docker compose exec api-1 cat /keys/admin/admin.token
  http://127.0.0.1:8000/serving/resnet50/v1/models/resnet50:infer     a service; POST {{}}
  http://127.0.0.1:9090/            Prometheus
  http://127.0.0.1:3000/            Grafana, with: docker compose --profile grafana up -d
  docker compose run --rm cli top                               what runs, what it costs, what was decided
  docker compose run --rm cli explain service serving/resnet50  why there, why so many
  docker compose run --rm cli what-if --rate serving/resnet50=x2
  docker compose logs -f load                                   requests a second; a spike of four times is on its way
  docker compose --profile chaos up -d chaos                    kills a part every few seconds
"""


def read_admin_token() -> str:
    """Returns the admin's token, which `gpuwright up` creates and stores if none works."""
    path = ADMIN / "admin.token"
    words = ["gpuwright", "up", "--empty", "--data-dir", str(ADMIN), "--port", "0", "--host", "127.0.0.1"]
    environment = os.environ | {"GPUWRIGHT_CONFIG": "/tmp/config.json"}  # noqa: S108
    server = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    assert server.stdout
    for line in server.stdout:
        if "Ctrl-C stops it" in line:
            break
    server.terminate()
    server.communicate()
    return path.read_text().strip()


def ask(link: Link, method: str, path: str, body: object = None) -> Any:
    return json.loads(link.request(method, path, json.dumps(body).encode() if body is not None else None).body)


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Waits; RuntimeError when the time is up."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}, for {PATIENCE_SECONDS:g} s")
        time.sleep(AGAIN_SECONDS)


def is_ready(link: Link) -> bool:
    try:
        link.request("GET", "/readyz")
    except LinkError:
        return False
    return True


def is_answered(service: Mapping[str, Any]) -> bool:
    """Returns True if the gateway gets an answer from a copy."""
    name, tenant = service["metadata"]["name"], service["metadata"]["tenant"]
    host, _, port = GATEWAY.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request("POST", f"/{tenant}/{name}/v1/models/{service['spec']['model']}:infer", b"{}")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def declare_example(link: Link, world: list[dict[str, Any]]) -> None:
    """Applies the example, and creates a token for everyone who has none."""
    known = ask(link, "GET", "/api/v1/services")["items"]
    if known:
        say(f"{len(known)} services are declared already and stay unchanged")
    else:
        ask(link, "POST", "/api/v1/apply", world)
        say(f"applied {len(world)} manifests")
    if not GATEWAY_TOKEN.exists():
        wanted = {"scope": "gateway", "gateway": "testbed", "label": "testbed"}
        write_file(GATEWAY_TOKEN, ask(link, "POST", "/api/v1/tokens", wanted)["token"], 0o444)
    for node in (*(manifest["metadata"]["name"] for manifest in world if manifest["kind"] == "Node"), REAL_NODE):
        made = ask(link, "POST", "/api/v1/jointokens", {"node": node, "expiresInSeconds": DAY_SECONDS})
        write_file(NODE_TOKENS / node / "join.token", made["token"], 0o444)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    try:
        return guide(list(yaml.safe_load_all(Path(sys.argv[1]).read_text())))
    except (LinkError, RuntimeError, OSError) as error:
        say(str(error))
        return 1


def guide(world: list[dict[str, Any]]) -> int:
    began = time.monotonic()
    link = Link(SERVER, read_admin_token())
    wait_until(lambda: is_ready(link), f"{SERVER} is not ready")
    declare_example(link, world)
    for service in (manifest for manifest in world if manifest["kind"] == "Service"):
        wait_until(lambda service=service: is_answered(service), f"{service['metadata']['name']} does not answer")  # type: ignore[misc]
    say(LOOK.format(seconds=time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
