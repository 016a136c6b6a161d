"""Which server and which token: flags over environment over config file."""

from __future__ import annotations

import argparse
import json
import stat
from pathlib import Path

import pytest

from cli.exits import Failed
from cli.talk.contexts import load, remember, resolve, save

TOKEN = "gw_a_secret"


def args(**given: str) -> argparse.Namespace:
    return argparse.Namespace(**given)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"GPUWRIGHT_CONFIG": str(tmp_path / "config" / "config.json")}


def write(env: dict[str, str], **contexts: dict[str, str]) -> None:
    save(Path(env["GPUWRIGHT_CONFIG"]), {"current": next(iter(contexts)), "contexts": contexts})


def test_without_anything_it_is_the_local_server_without_a_token(env: dict[str, str]) -> None:
    connection = resolve(args(), env)
    assert (connection.server, connection.token) == ("http://127.0.0.1:8080", "")


def test_the_current_context_gives_server_token_and_tenant(env: dict[str, str]) -> None:
    write(env, prod={"server": "https://p/", "token": TOKEN, "tenant": "shop"})
    connection = resolve(args(), env)
    assert (connection.server, connection.token, connection.tenant) == ("https://p", TOKEN, "shop")


def test_the_environment_wins_over_the_file_and_flags_over_both(env: dict[str, str], tmp_path: Path) -> None:
    write(env, a={"server": "http://a", "token": "gw_file"}, b={"server": "http://b", "token": "gw_b"})
    assert resolve(args(), env | {"GPUWRIGHT_CONTEXT": "b"}).server == "http://b"
    assert resolve(args(context="a"), env | {"GPUWRIGHT_CONTEXT": "b"}).server == "http://a"
    assert resolve(args(), env | {"GPUWRIGHT_TOKEN": "gw_env"}).token == "gw_env"
    file = tmp_path / "token"
    file.write_text("gw_flag\n")
    assert resolve(args(token_file=str(file)), env | {"GPUWRIGHT_TOKEN": "gw_env"}).token == "gw_flag"
    assert resolve(args(server="http://f"), env | {"GPUWRIGHT_SERVER": "http://e"}).server == "http://f"


def test_the_token_of_a_context_is_never_sent_to_another_server(env: dict[str, str]) -> None:
    write(env, prod={"server": "https://p", "token": TOKEN})
    connection = resolve(args(server="http://elsewhere"), env)
    assert connection.token == ""
    assert "https://p" in connection.origin and TOKEN not in connection.origin
    assert resolve(args(server="https://p/"), env).token == TOKEN


def test_the_token_beside_gpuwright_server_is_never_sent_to_another_server(env: dict[str, str]) -> None:
    given = env | {"GPUWRIGHT_SERVER": "https://e", "GPUWRIGHT_TOKEN": "gw_env"}
    assert resolve(args(server="https://e/"), given).token == resolve(args(), given).token == "gw_env"
    connection = resolve(args(server="https://f"), given)
    assert connection.token == "" and "GPUWRIGHT_TOKEN is for https://e" in connection.origin
    write(env, f={"server": "https://f", "token": "gw_f"})
    assert resolve(args(server="https://f"), given).token == "gw_f"
    assert resolve(args(server="https://f"), env | {"GPUWRIGHT_TOKEN": "gw_env"}).token == "gw_env"


def test_another_server_gets_neither_tenant_nor_authority_of_the_context(env: dict[str, str]) -> None:
    write(env, prod={"server": "https://p", "tenant": "shop", "caFile": "/p.pem"})
    own, other = resolve(args(), env), resolve(args(server="https://elsewhere"), env)
    assert (own.tenant, own.ca_file, other.tenant, other.ca_file) == ("shop", "/p.pem", "", "")


def test_an_unknown_context_is_refused_with_those_there_are(env: dict[str, str]) -> None:
    write(env, prod={"server": "https://p"})
    with pytest.raises(Failed, match=r"context 'prd' does not exist.*known contexts: prod"):
        resolve(args(context="prd"), env)


def test_a_token_that_is_none_is_refused_without_being_shown(env: dict[str, str]) -> None:
    with pytest.raises(Failed) as failed:
        resolve(args(), env | {"GPUWRIGHT_TOKEN": "two words"})
    assert "two words" not in failed.value.message


def test_the_config_is_the_users_alone_and_replaced_at_once(env: dict[str, str]) -> None:
    path = Path(env["GPUWRIGHT_CONFIG"])
    remember("local", {"server": "http://x", "tokenFile": "/t", "tenant": ""}, select=True, path=path)
    remember("other", {"server": "http://y"}, select=False, path=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config.json"]
    assert load(path) == {
        "current": "local",
        "contexts": {"local": {"server": "http://x", "tokenFile": "/t"}, "other": {"server": "http://y"}},
    }


def test_a_symlinked_config_stays_a_symlink(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    remember("a", {"server": "http://x"}, select=True, path=link)
    assert link.is_symlink() and json.loads(real.read_text())["current"] == "a"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"contexts": []}', '{"contexts": {"a": 1}}', '{"contexts": {"a": {"server": 1}}}']
)
def test_a_config_that_is_none_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(Failed, match=str(path)):
        load(path)
