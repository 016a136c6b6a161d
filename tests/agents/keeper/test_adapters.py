"""LoRA adapters of a running copy follow its assignment, on a real server, and what fails disturbs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedAdapter, AssignedInstance
from agents.keeper.adapters import CHECK_SECONDS, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, AdapterLoader
from agents.keeper.copies import NodeCopy, Stage, same_process_serves
from agents.keeper.filler import Filler
from agents.talk.copy_client import TcpCopyClient
from agents.templates.reading import read
from tests.agents.programs.serve.running import Copy, serving

LLM = "gpuwright-llm"
FAST = ("--cost", "baseMs=1,tokenMs=0.01", "--name", "base", "--adapter-places", "2")


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def server() -> Iterator[Copy]:
    with serving(*FAST, program="llm") as running:
        yield running


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("law", "tax", "tort", "new-law"):
        make_adapter(tmp_path, name)
    return tmp_path


def make_adapter(models: Path, name: str) -> None:
    folder = models / "adapters" / name
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text('{"r": 8}')


def copy_of(server: Copy, *names: str, paths: dict[str, str] | None = None, template: str = LLM) -> NodeCopy:
    adapters = tuple(AssignedAdapter(name, (paths or {}).get(name, f"adapters/{name}")) for name in names)
    wanted = AssignedInstance("chat-1", 0, "shop", "chat", template=template, adapters=adapters)
    return NodeCopy("chat-1.1.1", wanted, "GPU-1", Stage.READY, port=server.port)


def loader_of(models: Path) -> tuple[AdapterLoader, Clock]:
    clock = Clock()
    return AdapterLoader(Filler(read(models=models), "127.0.0.1"), TcpCopyClient(), clock), clock


def held(server: Copy) -> dict[str, str]:
    found = server.ask("GET", "/v1/models").json["data"]
    return {model["id"]: Path(model["root"]).name for model in found if model.get("parent")}


def test_a_changed_list_is_loaded_and_unloaded_by_the_same_process(server: Copy, models: Path) -> None:
    loader, clock = loader_of(models)
    first, second = copy_of(server, "law", "tax"), copy_of(server, "tax", "tort")
    assert loader.is_due(first, clock.now)
    loader.load(first)
    assert held(server) == {"law": "law", "tax": "tax"}
    assert not loader.is_due(first, clock.now)
    assert loader.is_due(first, clock.now + CHECK_SECONDS), "a copy may have lost one"
    assert same_process_serves(first, second.wanted)
    assert loader.is_due(second, clock.now)
    loader.load(second)
    assert held(server) == {"tax": "tax", "tort": "tort"}
    answer = server.ask("POST", "/v1/completions", json.dumps({"model": "tort", "prompt": "a", "max_tokens": 2}))
    assert (answer.status, answer.json["model"]) == (200, "tort")
    assert server.ask("POST", "/v1/completions", '{"model": "law", "prompt": "a"}').status == 404
    moved = copy_of(server, "tax", paths={"tax": "adapters/new-law"})
    loader.load(moved)
    assert held(server) == {"tax": "new-law"}
    none = copy_of(server)
    assert loader.is_due(none, clock.now)
    loader.load(none)
    assert held(server) == {}
    assert not loader.is_due(none, clock.now + 10 * CHECK_SECONDS)
    assert loader.list_failing([none]) == ()


def test_what_fails_is_named_in_the_servers_words_retried_ever_later_and_keeps_the_others(
    server: Copy, models: Path
) -> None:
    loader, clock = loader_of(models)
    (models / "adapters" / "tort" / "adapter_config.json").unlink()
    copy = copy_of(server, "law", "tort", "gone", paths={"gone": "adapters/gone"})
    delays = []
    for _ in range(12):
        loader.load(copy)
        delays.append(next(s for s in range(1, 1000) if loader.is_due(copy, clock.now + s)))
    assert held(server) == {"law": "law"}
    assert delays[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert delays[-1] == LONGEST_DELAY_SECONDS
    (failing,) = loader.list_failing([copy])
    assert (failing.instance, failing.missing.reason) == ("chat-1", "adapter_not_loaded")
    assert "adapter tort: 404: no adapter found for 'tort'" in failing.missing.message
    assert failing.missing.message.endswith("; 1 more fail")
    make_adapter(models, "gone")
    (models / "adapters" / "tort" / "adapter_config.json").write_text("{}")
    loader.load(copy)
    (failing,) = loader.list_failing([copy])
    assert "adapter gone: 400: all 2 places for adapters are taken" in failing.missing.message
    loader.load(copy_of(server))


def test_a_server_that_is_gone_and_a_folder_outside_of_the_models_are_told(server: Copy, models: Path) -> None:
    loader, _ = loader_of(models)
    (models / "adapters" / "out").symlink_to("/etc")
    copy = copy_of(server, "out", paths={"out": "adapters/out"})
    loader.load(copy)
    (failing,) = loader.list_failing([copy])
    assert "is a link that leaves the root" in failing.missing.message
    nobody = NodeCopy("chat-1.1.2", copy.wanted, "GPU-1", Stage.READY, port=1)
    loader.load(nobody)
    (failing,) = loader.list_failing([nobody])
    assert failing.missing.message.startswith("adapter its list of models: ConnectionRefusedError")
    loader.forget(nobody.id)
    assert loader.list_failing([nobody]) == ()
    assert held(server) == {}


def test_a_template_that_holds_no_adapters_refuses_an_instance_with_some(server: Copy, models: Path) -> None:
    filler = Filler(read(models=models), "127.0.0.1")
    plain, able = (copy_of(server, "law", template=name).wanted for name in ("gpuwright-serve", LLM))
    (reason, message) = filler.refused([plain])["chat-1"]
    assert (reason, "holds no LoRA adapters" in message) == ("refused_arguments", True)
    assert filler.refused([able]) == {}
