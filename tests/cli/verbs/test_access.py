"""token, whoami, config, version and validate."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import WORLD, Run, service
from tests.support.server import RunningServer


def test_a_new_token_is_alone_on_stdout_and_works(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run("token", "create", "--scope", "viewer", "--tenant", "shop", "--label", "for a test", "--expires", "1h")
    assert made.code == 0 and len(made.lines) == 1 and made.lines[0].startswith("gw_")
    listed = run("token", "list").out
    assert "for a test" in listed and made.lines[0] not in listed
    monkeypatch.setenv("GPUWRIGHT_TOKEN", made.lines[0])
    assert "tenant:     shop" in run("whoami").lines
    assert run("apply", "-f", "-", stdin=service("x", "shop")).code == 3


def test_a_token_in_a_file_is_the_users_alone_and_never_replaces_another(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shop.token"
    assert run("token", "create", "--scope", "viewer", "--out", str(file)).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text().startswith("gw_")
    again = run("token", "create", "--scope", "viewer", "--out", str(file))
    assert again.code == 2 and "no token was created" in again.err


def test_a_revoked_token_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(run("token", "create", "--scope", "viewer", "-o", "json").out)
    assert run("token", "revoke", made["id"]).lines == [f"token/{made['id']} revoked"]
    assert any(made["id"] in line and "revoked" in line for line in run("token", "list").lines)
    monkeypatch.setenv("GPUWRIGHT_TOKEN", made["token"])
    assert run("whoami").code == 3


def test_a_join_token_is_made_for_one_node(run: Run) -> None:
    made = json.loads(run("token", "join", "--node", "node-7", "--expires", "10m", "-o", "json").out)
    assert made["token"].startswith("gwj_") and made["node"] == "node-7"


def test_a_join_token_is_listed_and_can_be_revoked(run: Run) -> None:
    made = json.loads(run("token", "join", "-o", "json").out)
    assert any(made["id"] in line and "join" in line and "valid" in line for line in run("token", "list").lines)
    assert run("token", "revoke", made["id"]).lines == [f"jointoken/{made['id']} revoked"]
    assert any(made["id"] in line and "expired" in line for line in run("token", "list").lines)
    unknown = run("token", "revoke", "nosuchtoken0")
    assert unknown.code != 0 and "there is no token nosuchtoken0" in unknown.err


def test_contexts_are_set_used_listed_and_deleted_without_showing_tokens(
    run: Run, cli_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GPUWRIGHT_SERVER", "GPUWRIGHT_TOKEN"):
        monkeypatch.delenv(name)
    assert run("config", "set", "a", "--server", "http://127.0.0.1:1", "--token-stdin", stdin="gw_canary\n").code == 0
    assert run("config", "set", "b", "--server", "http://127.0.0.1:2", "--tenant", "shop").code == 0
    assert run("config", "current").lines == ["a"]
    assert run("config", "use", "b").code == 0
    listed = run("config", "contexts")
    assert [line.split()[:2] for line in listed.lines[1:]] == [["a", "http://127.0.0.1:1"], ["*", "b"]]
    assert "canary" not in listed.out and "canary" in cli_config.read_text()
    assert run("config", "set", "a", "--server", "http://127.0.0.1:3").code == 0
    assert "canary" not in cli_config.read_text()  # a token is for one server
    assert run("config", "delete", "b").code == 0
    assert run("config", "use", "b").code == 1


def test_a_context_needs_an_address(run: Run) -> None:
    assert run("config", "set", "new", "--tenant", "shop").code == 2
    assert run("config", "set", "new", "--server", "nowhere").code == 2
    far = run("config", "set", "new", "--server", "http://gpus.example.com")
    assert far.code == 0 and "not encrypted" in far.err


@pytest.mark.slow
def test_versions_of_both_sides_are_shown(run: Run) -> None:
    assert {line.split(":")[0] for line in run("version").lines} == {"client", "server"}
    assert len(run("--version").lines) == 1


def test_validate_names_every_fault_without_a_server(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(WORLD)
    assert run("validate", "-f", str(file)).lines == [f"3 manifests in {file}: no fault"]
    file.write_text(WORLD.replace("gpus: 4", "gpus: -4").replace("smCount", "smCuont"))
    wrong = run("validate", "-f", str(file))
    assert wrong.code == 2 and "spec.gpus" in wrong.err and "did you mean `smCount`?" in wrong.err


def test_validate_partial_allows_references_to_elsewhere(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(service("x"))
    assert run("validate", "-f", str(file)).code == 2
    assert run("validate", "-f", str(file), "--partial").code == 0


@pytest.mark.slow
def test_a_tenants_token_lists_what_it_may_see_and_leaves_out_the_rest(
    world: Run, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world("apply", "-f", "-", stdin=service("mine", "shop") + service("theirs", "lab"))
    monkeypatch.setenv("GPUWRIGHT_TOKEN", server.token("operator", tenant="shop"))
    seen = world("get", "all", "-o", "name")
    assert seen.code == 0
    assert {"service/shop/mine", "model/resnet50", "gputype/v100-16gb"} <= set(seen.lines)
    assert "theirs" not in seen.out and "node/" not in seen.out
    assert world("get", "nodes").code == 3
    assert world("get", "service", "lab/theirs").code == 1
    assert world("get", "service", "mine").code == 0
    written = service("new").replace(", tenant: shop", "")  # the token's tenant is the default
    assert world("apply", "-f", "-", stdin=written).lines == ["service/shop/new created"]
