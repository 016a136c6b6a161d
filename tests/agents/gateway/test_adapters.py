"""LoRA adapters behind a real HAProxy: callers choose one while others are loaded and unloaded, and load none."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from agents.contract.assignments import AssignedAdapter, AssignedInstance
from agents.keeper.adapters import AdapterLoader
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.filler import Filler
from agents.seams.routes import Route
from agents.talk.copy_client import TcpCopyClient
from agents.templates.reading import read
from tests.agents.programs.serve.running import serving
from tests.support.haproxy import Gateway, insist
from tests.support.patience import patience

PLACES, ROUNDS, CALLERS = 40, 20, 4
SERVER = ("--cost", "baseMs=1,tokenMs=0.01", "--name", "base", "--adapter-places", str(PLACES))


def ask(port: int, path: str, body: object) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience())
    try:
        connection.request("POST", f"/shop/chat{path}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.mark.slow
def test_hot_loads_under_traffic_lose_no_request_and_callers_cannot_load(gateway: Gateway, tmp_path: Path) -> None:
    names = [f"a{at}" for at in range(PLACES + ROUNDS)]
    for name in names:
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
    loader = AdapterLoader(Filler(read(models=tmp_path), "127.0.0.1"), TcpCopyClient(), lambda: 0.0)
    with serving(*SERVER, program="llm") as first, serving(*SERVER, program="llm") as second:

        def assign(held: list[str]) -> None:
            adapters = tuple(AssignedAdapter(name, f"adapters/{name}") for name in held)
            wanted = AssignedInstance("chat-1", 0, "shop", "chat", template="gpuwright-llm", adapters=adapters)
            for at, server in enumerate((first, second)):
                copy = NodeCopy(f"chat-{at}.1.1", wanted, "GPU-1", Stage.READY, port=server.port)
                loader.load(copy)
                assert loader.list_failing([copy]) == ()

        assign(names[:PLACES])
        rules = read(models=tmp_path)["gpuwright-llm"].form.paths
        routes = [
            Route(f"chat-{at}.1.1", "shop/chat", f"127.0.0.1:{server.port}", 1.0, paths=rules)
            for at, server in enumerate((first, second))
        ]
        insist(gateway.routes(), routes)
        ended, kept = Event(), ["base", *names[ROUNDS:PLACES]]  # those that stay all of the time

        def call(caller: int) -> list[int]:
            statuses = list[int]()
            while not ended.is_set():
                model = kept[(caller * 7 + len(statuses)) % len(kept)]
                statuses.append(ask(gateway.port, "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 4}))
            return statuses

        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [pool.submit(call, caller) for caller in range(CALLERS)]
            for at in range(1, ROUNDS + 1):
                assign(names[at : PLACES + at])  # one leaves, another comes
            ended.set()
            statuses = [status for each in calls for status in each.result()]
        assert len(statuses) >= ROUNDS
        assert set(statuses) == {200}
        newest, gone = names[-1], names[0]
        assert ask(gateway.port, "/v1/completions", {"model": newest, "prompt": "a", "max_tokens": 2}) == 200
        assert ask(gateway.port, "/v1/completions", {"model": gone, "prompt": "a", "max_tokens": 2}) == 404
        for path in (
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
            "/V1/unload_lora_adapter/",
            "/load_lora_adapter",
        ):
            assert ask(gateway.port, path, {"lora_name": newest, "lora_path": "/etc"}) == 404
        assert ask(gateway.port, "/v1/completions", {"model": newest, "prompt": "a", "max_tokens": 2}) == 200
