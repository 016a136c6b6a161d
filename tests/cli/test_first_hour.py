"""What a newcomer types wrongly is answered with what was meant."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exits import Failed
from cli.talk.client import ApiClient
from cli.talk.contexts import ServerContext
from cli.verbs.wait import CONDITIONS
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
WRITTEN = re.compile(r'(?:Statement|ObjectCondition|NodeStatement)\(\s*"([A-Z]\w+)"')


@pytest.fixture
def plain_server() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_https_to_a_server_that_speaks_http_is_answered_with_the_right_address(plain_server: int) -> None:
    with (
        ApiClient(ServerContext(f"https://127.0.0.1:{plain_server}")) as client,
        pytest.raises(Failed, match=f"speaks http and not https; use http://127.0.0.1:{plain_server}$"),
    ):
        client.get("/api/v1/services")


@pytest.mark.parametrize(
    ("word", "said"),
    [("rollback", "gpuwright plan rollback")],
)
def test_a_verb_of_another_command_line_is_answered_with_what_does_it_here(run: Run, word: str, said: str) -> None:
    done = run(word, "deployment/x")
    assert done.code == 2
    assert f"unknown verb '{word}'" in done.err and said in done.err


def test_a_condition_that_no_object_of_the_kind_has_is_refused_at_once(world: Run) -> None:
    done = world("wait", "node", "node-1", "--for", "condition=Bogus", "--timeout", "600s")
    assert done.code == 2
    assert "Node has no condition 'Bogus'; it has Reporting, GpusHealthy" in done.err
    assert "objects of this kind have none" in world("wait", "model", "resnet50", "--for", "condition=Planned").err


def test_every_condition_that_is_written_can_be_waited_for() -> None:
    written = {
        name for path in (ROOT / "app").rglob("*.py") for name in WRITTEN.findall(path.read_text())
    }  # fmt: skip
    assert {"Planned", "SloAttained", "Degraded"} <= written
    assert written <= {name for names in CONDITIONS.values() for name in names}


def test_a_node_that_is_not_there_is_answered_as_every_other_refusal(run: Run) -> None:
    done = run("delete", "node", "nosuch", "--yes")
    assert done.code == 1
    assert done.err == "gpuwright: there is no Node nosuch\n"


def test_validate_says_what_only_a_server_knows(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(
        "{apiVersion: gpuwright/v1, kind: Node, metadata: {name: n}, "
        "spec: {gpuType: l4-24gb, gpus: 4, cpuCores: 8, memoryGib: 64}}"
    )
    done = run("validate", "-f", str(file))
    assert done.code == 2
    assert "objects that only a server has are not checked here: --partial leaves references out" in done.err
    assert run("validate", "-f", str(file), "--partial").code == 0


def test_a_manifest_is_what_was_declared_and_nothing_that_the_server_adds(world: Run) -> None:
    text = world("get", "node", "node-1", "-o", "yaml", "--manifest").out
    assert "uid" not in text and "status" not in text and "resourceVersion" not in text
    assert "unchanged" in world("apply", "-f", "-", stdin=text).out
    assert world("get", "nodes", "-o", "name", "--manifest").code == 2
