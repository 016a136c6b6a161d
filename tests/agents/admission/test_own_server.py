"""A user's own FastAPI server, of examples/own-server: started, warmed, replaced and drained behind a real HAProxy."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.contract.assignments import AssignedInstance
from agents.contract.runtimes import own_runtime
from agents.node.node import LocalNode
from agents.node.state_folder import StateFolder
from agents.run.opening import AgentOptions, open_node
from tests.support.forked import ROOT
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import steady_load
from tests.support.needs import need_cores
from tests.support.nodes import assigned, copy_of, ready
from tests.support.patience import patience, until
from tests.support.soak import scaled

EXAMPLE = ROOT / "examples" / "own-server"
RATE_PER_SECOND = 20
CHANGES = scaled(20, 1)


def written(folder: Path, name: str) -> str:
    """Returns a file of the example as the page has it put in place; here the command runs as the agent does."""
    text = (EXAMPLE / name).read_text().replace("FOLDER", str(EXAMPLE)).replace("user: 20001", "user: agent")
    (folder / name).write_text(text)
    return text


def declared_runtime(folder: Path) -> dict[str, Any]:
    model = next(yaml.safe_load_all(written(folder, "service.yaml")))
    found: dict[str, Any] = model["spec"]["variants"][0]["runtime"]
    return found


def instance(runtime: dict[str, Any], stop_words: str) -> AssignedInstance:
    own = own_runtime({**runtime, "env": {**runtime["env"], "STOP_WORDS": stop_words}})
    return AssignedInstance(
        "words-1", 0, "press", "words", model="words", variant="plain", runtime=own, sm_percent=40, memory_gib=0.5
    )


@contextmanager
def running_node(folder: Path, gateway: Gateway) -> Iterator[LocalNode]:
    written(folder, "allow-list.yaml")
    options = AgentOptions(
        folder / "node",
        "node-1",
        device="cores",
        cores=1,
        gateway=gateway.listen,
        allow_list=folder / "allow-list.yaml",
    )
    parts = open_node(options)
    node = LocalNode(StateFolder(options.folder), parts, 1)
    node.set_contact(True)
    node.start()
    try:
        yield node
    finally:
        node.offer(assigned(1000))
        until(lambda: not node.keeper.copies(), "everything has ended")
        node.stop()
        parts.drivers.runtime.tidy(())


def answer(gateway: Gateway, text: str) -> object:
    url = f"http://127.0.0.1:{gateway.port}/press/words/count?text={text}"
    with urllib.request.urlopen(url, timeout=patience()) as reply:
        return json.load(reply)


@pytest.mark.slow
def test_an_own_server_is_replaced_and_drained_without_losing_a_request(tmp_path: Path) -> None:
    need_cores()
    runtime = declared_runtime(tmp_path)
    with running_gateway(tmp_path / "gateway") as gateway, running_node(tmp_path, gateway) as node:
        node.offer(assigned(1, instance(runtime, "the")))
        until(lambda: ready(node, "words-1"), "the server is warm")
        assert answer(gateway, "the+quick+fox") == {"words": 2}, "it was warmed, with the variable that was admitted"
        path = "/press/words/count?text=fox&seconds=0.05"
        with steady_load(gateway.port, path, rate_per_second=RATE_PER_SECOND) as load:
            for change in range(CHANGES):
                before = copy_of(node, "words-1")
                node.offer(assigned(change + 2, instance(runtime, f"the,fox,{change}")))
                until(
                    lambda before=before: ready(node, "words-1") and copy_of(node, "words-1").id != before.id,  # type: ignore[misc]
                    "the new server took over, and the old one has ended",
                )
            outcome = load.stop()
        assert outcome.samples
        assert outcome.failed == ()
        assert answer(gateway, "the+quick+fox") == {"words": 1}

        smuggled = {**runtime, "args": [*runtime["args"], "--reload"]}
        node.offer(assigned(CHANGES + 2, instance(smuggled, "the")))
        until(lambda: bool(node.keeper.held), "the node refuses it")
        (held,) = node.keeper.held
        assert held.missing.reason == "not_admitted"
        assert "'--reload' is not admitted by word-counter" in held.missing.message
        assert [entry.name for entry in node.inventory().admitted] == ["word-counter"]
