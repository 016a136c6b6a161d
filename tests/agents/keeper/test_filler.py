"""What the agent fills in for a copy beside its assignment: secrets, and the paths that callers may use."""

from __future__ import annotations

from pathlib import Path

from agents.contract.assignments import AssignedInstance
from agents.contract.paths import make_rule
from agents.keeper.copies import NodeCopy
from agents.keeper.filler import Filler
from agents.templates.reading import read
from tests.agents.admission.lists import assigned, read_list


def copy(name: str, **wanted: object) -> NodeCopy:
    return NodeCopy(name, AssignedInstance(name, 0, "shop", "search", **wanted), "GPU-1", port=9000)  # type: ignore[arg-type]


def key_of(filler: Filler, name: str) -> str:
    (word,) = (
        word
        for word in filler.fill(copy(name, template="triton", args={"model": "m"})).argv
        if word.startswith("--http-restricted-api=")
    )
    return word.rpartition("=")[2]


def test_each_copy_has_a_key_of_its_own_that_its_agent_can_tell_again_and_that_is_not_its_token(tmp_path: Path) -> None:
    filler, again, other = (Filler(read(models=tmp_path), "127.0.0.1", secret) for secret in (b"one", b"one", b"two"))
    keys = [key_of(filler, "a-1"), key_of(filler, "a-2"), key_of(other, "a-1"), filler.token("a-1")]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)
    assert key_of(again, "a-1") == keys[0]


def test_an_own_server_admits_what_it_declares_or_all_but_what_its_agent_asks(tmp_path: Path) -> None:
    filler = Filler(read(), "127.0.0.1", b"key", read_list(tmp_path))
    serve = {"command": ["{python}", "-m", "http.server"], "args": ["--bind", "{host}", "{port}", "--workers=1"]}
    asked = {"probes": {"health": {"path": "/up?deep=1"}}, "drain": {"path": "/admin//end%20it"}}
    declared = NodeCopy("a", assigned({**serve, **asked, "paths": ["GET /count"]}), "GPU-1", port=9000)
    assert filler.paths(declared) == ("GET /count",)
    silent = NodeCopy("b", assigned({**serve, **asked}), "GPU-1", port=9000)
    assert filler.paths(silent) == ("* /**", "!* /up", "!* /admin/{x}", "!* /metrics")
    unknown = copy("c", template="no-such-template")
    assert filler.paths(unknown) is None, "what a template that is gone admitted is not known"
    assert make_rule("/") == "/"
