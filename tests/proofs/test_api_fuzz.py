"""The whole API against its own document, and against nonsense with tokens of every kind.

No answer is a 5xx, each is what the document says, and none names what belongs to another tenant.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proofs.foreign import declare_canary
from tests.proofs.fuzz import ENDED, UNLIMITED, fuzz, tokens_of
from tests.support.figures import own_rss_mb
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.soak import SOAK, scaled
from tests.support.world import WORLD, declare_world

pytestmark = pytest.mark.slow

SEED = 1
REQUESTS = scaled(100_000, 4_000)
WARM_UP = scaled(3_000, 300)
GROWTH_MB = 60
# Phases and examples of each operation. The boundary values are seven thousand, and always the same.
PHASES = {"examples,fuzzing": scaled(100, 2), "stateful": scaled(1000, 150)} | ({"coverage": 1} if SOAK else {})
STATEFUL_SECONDS = scaled(600, 8)  # sequences are drawn until then
CALM = ["--no-shrink", "--continue-on-failure", "--warnings", "off"]
CHECKS = [
    "not_a_server_error",
    "content_type_conformance",
    "status_code_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "allow_header_conformance",
]
# A stream that never ends, a long poll, and what would end the token that all of it runs with.
LEFT_OUT = ["/api/v1/watch", "/api/v1/nodes/{name}/assignment", "/api/v1/tokens/{token_id}"]
VERBS = ("get", "patch", "put", "delete")


@pytest.fixture
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **UNLIMITED) as running:
        declare_world(running)
        declare_canary(running)
        yield running
    postgres.drop(url)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("phases", PHASES)
def test_the_api_does_what_its_document_says_and_never_fails(
    server: RunningServer, tmp_path: Path, phases: str
) -> None:
    """schemathesis: examples, boundary values, random ones, and sequences of requests that follow each other."""
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(linked(server.request("GET", "/openapi.json").json, phases == "stateful")))
    arguments = ["--url", server.url, "-H", f"Authorization: Bearer {server.admin_token}", "--checks", ",".join(CHECKS)]
    for path in LEFT_OUT:
        arguments += ["--exclude-path", path]
    arguments += ["--phases", phases, "-n", str(PHASES[phases]), "--seed", str(SEED)]
    if phases == "stateful":
        arguments += ["--max-time", str(STATEFUL_SECONDS)]
    (tmp_path / "schemathesis.toml").write_text("[phases.stateful]\nmax-steps = 20\n")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "schemathesis"), "run", str(document), *arguments, *CALM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2900,
    )
    print("\n", "; ".join(re.findall(r"API Links:.*|.*generated.*|Seed:.*", done.stdout)))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.timeout(1800)
def test_nonsense_of_every_kind_is_answered_and_leaves_no_memory_behind(server: RunningServer) -> None:
    """Our own fuzzer; `python -m tests.proofs.fuzz --requests 100000` is its long form."""
    tokens = tokens_of(server)
    assert server.request("POST", "/api/v1/whatif?work=1").status == 200  # the first question loads the solvers
    found = fuzz(server, tokens, WARM_UP, SEED)
    before = own_rss_mb(server.process.pid)
    found.add(fuzz(server, tokens, REQUESTS, SEED + 1))
    grown = own_rss_mb(server.process.pid) - before
    print(f"\n{found.requests} requests, seed {SEED}: {dict(sorted(found.statuses.items()))}; memory {grown:+.0f} MB")
    print(f"by token {dict(found.by_kind)}; accepted {dict(found.accepted)}")
    assert found.faults == []
    assert all(found.by_kind[token.kind] > REQUESTS / 200 for token in tokens)
    assert all(found.accepted[token.kind] for token in tokens if token.kind not in ENDED)
    assert found.unanswered == 0
    assert grown < GROWTH_MB
    assert {200, 201, 204, 401, 403, 404, 405, 412, 413, 415, 422} <= found.statuses.keys()  # it gets everywhere


def linked(document: dict[str, Any], only_right: bool) -> dict[str, Any]:
    """The document with a right example of each body, and links from each PUT to all that can follow it."""
    for path, operations in document["paths"].items():
        put = operations.get("put")
        if put is None:
            continue
        plural = path.split("/")[3]
        example = next((known for known in WORLD if put["operationId"] == f"put{known['kind']}"), None)
        if example is None:  # what a gateway counts is no object
            continue
        names = re.findall(r"\{(\w+)\}", path)
        body = put["requestBody"]["content"]["application/json"]
        body["examples"] = {"right": {"value": example}}
        if only_right:  # the path names it; then what follows a PUT finds something
            put["requestBody"]["content"] = {"application/json": {"schema": {"enum": [{"spec": example["spec"]}]}}}
        for parameter in put["parameters"]:
            if parameter["in"] == "path":
                parameter["examples"] = {"right": {"value": example["metadata"][parameter["name"]]}}
        links = {
            verb: {
                "operationId": operations[verb]["operationId"],
                "parameters": {name: f"$request.path.{name}" for name in names},
            }
            for verb in VERBS
            if verb in operations
        }
        links["list"] = {"operationId": document["paths"][f"/api/v1/{plural}"]["get"]["operationId"]}
        for status in ("200", "201"):
            put["responses"][status]["links"] = links
    return document
