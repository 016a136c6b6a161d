"""A server or a provider that lies gets no code, no token and no config of the person who signs in."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli import exits
from cli.exits import Failed
from cli.main import main
from cli.talk.contexts import load
from cli.talk.provider import (
    ProviderEndpoints,
    SignInClient,
    bound,
    check_address,
    find_endpoints,
    select_tokens,
    sign_in,
)
from cli.verbs.login import find_context, keep, name_server, read_given
from tests.cli.scripted import Scripted, answer, scripted

GIVEN = {"token": "gw_abc_secret", "name": "anna", "scope": "viewer", "tenant": None, "expiresAt": None}
BEGUN = {"device_code": "d-1", "user_code": "AB-CD", "interval": 1}


def make_id_token(**claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


@dataclass
class Parties:
    """The server and the provider that a person signs in to, and their config file."""

    server: Scripted
    provider: Scripted
    config: Path

    def describe(self, **changed: object) -> bytes:
        url = self.provider.url
        device, token = f"{url}/device?realm=a", f"{url}/token?realm=b"
        parts = {"issuer": url, "device_authorization_endpoint": device, "token_endpoint": token, **changed}
        return answer(200, json.dumps(parts))

    def name(self, **changed: object) -> bytes:
        client = {"issuer": self.provider.url, "clientId": "cli", "scopes": "openid groups", "groupsClaim": "groups"}
        return answer(200, json.dumps({**client, **changed}))

    def begin(self, **changed: object) -> bytes:
        return answer(200, json.dumps({**BEGUN, "verification_uri": f"{self.provider.url}/go", **changed}))

    def log_in(self) -> int:
        return main(["login", "--server", self.server.url])

    @property
    def asked(self) -> list[str]:
        return [request.split(b" HTTP/")[0].decode() for request in self.provider.requests]


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parties]:
    config = tmp_path / "config.json"
    monkeypatch.setenv("GPUWRIGHT_CONFIG", str(config))
    for name in ("CONTEXT", "SERVER", "TOKEN", "ALLOW_PLAINTEXT"):
        monkeypatch.delenv(f"GPUWRIGHT_{name}", raising=False)
    with scripted() as server, scripted() as provider:
        yield Parties(server, provider, config)


def test_the_provider_alone_says_where_it_is_asked(parties: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    lies = {"deviceEndpoint": f"{parties.server.url}/steal", "tokenEndpoint": f"{parties.server.url}/steal"}
    parties.server.answers += [parties.name(**lies), answer(201, json.dumps(GIVEN))]
    text = make_id_token(groups=["a"])
    done = answer(200, json.dumps({"id_token": text, "access_token": "may-do-more"}))
    parties.provider.answers += [parties.describe(), parties.begin(), done]
    assert parties.log_in() == exits.OK
    assert parties.asked == ["GET /.well-known/openid-configuration", "POST /device?realm=a", "POST /token?realm=b"]
    assert len(parties.server.requests) == 2
    assert text.encode() in parties.server.requests[1]
    assert b"may-do-more" not in parties.server.requests[1], "the ID token tells the groups"
    lines = capsys.readouterr().err.splitlines()
    provider, server = parties.provider.url, parties.server.url
    assert lines[0] == f"sign in at {provider} as client cli for {server} (scopes openid groups)"
    assert lines[1] == f"open {provider}/go and type in the code AB-CD"


def test_a_token_of_a_wrong_form_is_not_kept(parties: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    parties.config.write_text('{"current": "", "contexts": {}}')
    parties.server.answers += [parties.name(), answer(201, json.dumps({**GIVEN, "token": "two words"}))]
    done = answer(200, json.dumps({"id_token": make_id_token(groups=[])}))
    parties.provider.answers += [parties.describe(), parties.begin(), done]
    assert parties.log_in() == exits.UNREACHABLE
    assert "holds no token" in capsys.readouterr().err
    assert load(parties.config)["contexts"] == {}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"scopes": "openid offline_access"}, exits.REFUSED),
        ({"scopes": ["openid"]}, exits.UNREACHABLE),
        ({"scopes": "openid\x1b[2J"}, exits.UNREACHABLE),
        ({"issuer": None}, exits.UNREACHABLE),
        ({"issuer": "http://10.0.0.1"}, exits.UNREACHABLE),
        ({"issuer": "https://id.example.com@evil.example"}, exits.UNREACHABLE),
        ({"issuer": "https://[::1"}, exits.UNREACHABLE),
        ({"issuer": "https://id.example.com:99999"}, exits.UNREACHABLE),
        ({"issuer": "https://id.example.com/?x="}, exits.UNREACHABLE),
        ({"issuer": "https://a..example/"}, exits.UNREACHABLE),
        ({"issuer": "file:///etc/passwd"}, exits.UNREACHABLE),
        ({"clientId": 7}, exits.UNREACHABLE),
        ({"clientId": "cli for https://good.example"}, exits.UNREACHABLE),
        ({"clientId": "x" * 300}, exits.UNREACHABLE),
        ({"groupsClaim": {}}, exits.UNREACHABLE),
    ],
)
def test_a_server_that_asks_for_too_much_or_says_nonsense_is_refused(
    parties: Parties, capsys: pytest.CaptureFixture[str], changed: dict[str, object], code: int
) -> None:
    parties.server.answers.append(parties.name(**changed))
    assert parties.log_in() == code
    assert "error in gpuwright" not in capsys.readouterr().err
    assert not parties.provider.requests
    assert not parties.config.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://elsewhere.example"},
        {"issuer": None},
        {"token_endpoint": None},
        {"token_endpoint": 7},
        {"device_authorization_endpoint": "http://10.0.0.1/device"},
        {"device_authorization_endpoint": "http://[fe80::1%x]/device"},
        {"token_endpoint": "http://\x00/"},
    ],
)
def test_a_description_of_somebody_else_or_without_what_is_needed_is_not_used(
    parties: Parties, changed: dict[str, object]
) -> None:
    parties.server.answers.append(parties.name())
    parties.provider.answers.append(parties.describe(**changed))
    assert parties.log_in() == exits.UNREACHABLE
    assert parties.asked == ["GET /.well-known/openid-configuration"]


def test_no_redirect_is_followed(parties: Parties) -> None:
    client = SignInClient(parties.provider.url, "cli", "openid", "groups")
    parties.provider.answers += [answer(302, headers=[f"Location: {parties.server.url}/"])] * 2
    with pytest.raises(Failed, match="leads elsewhere"):
        find_endpoints(client)
    with pytest.raises(Failed, match="leads elsewhere"):
        sign_in(client, ProviderEndpoints(f"{client.issuer}/device", f"{client.issuer}/token"))
    assert not parties.server.requests


def test_this_machine_is_named_only_by_this_machine() -> None:
    for address in ("https://127.0.0.1/token", "http://localhost:9/token", "https://[::1]/token"):
        check_address(address, "it", may_be_local=True)
        with pytest.raises(Failed, match="on this machine"):
            check_address(address, "it", may_be_local=False)
    check_address("https://id.example.com/token?a=b", "it", may_be_local=False)
    with pytest.raises(Failed, match="not https"):
        check_address("http://id.example.com/token", "it", may_be_local=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"user_code": 7},
        {"user_code": "\x1b[2J"},
        {"device_code": "\ud800"},
        {"device_code": {"a": 1}},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": None},
        {"verification_uri_complete": ["https://id.example.com"]},
    ],
)
def test_a_code_that_is_malformed_is_not_shown(
    parties: Parties, capsys: pytest.CaptureFixture[str], changed: dict[str, object]
) -> None:
    parties.server.answers.append(parties.name())
    parties.provider.answers += [parties.describe(), parties.begin(**changed)]
    assert parties.log_in() == exits.UNREACHABLE
    assert "type in the code" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("interval", "lasts", "pauses"),
    [
        ("60", "1e400", [60.0] * 30),
        (str(10**400), str(10**400), [60.0] * 30),
        ("1e400", "-5", [60.0]),
        ("NaN", '"soon"', [5.0] * 60),
        ("0", "60", [1.0] * 60),
    ],
)
def test_a_provider_is_asked_at_a_sensible_pace_and_for_a_sensible_time(
    parties: Parties, interval: str, lasts: str, pauses: list[float]
) -> None:
    client = SignInClient(parties.provider.url, "cli", "openid", "groups")
    endpoints = ProviderEndpoints(f"{client.issuer}/device", f"{client.issuer}/token")
    begun = json.dumps({**BEGUN, "verification_uri": f"{client.issuer}/go"})[:-1]
    begun = begun.replace('"interval": 1', f'"interval": {interval}') + f', "expires_in": {lasts}}}'
    waiting = answer(400, '{"error": "authorization_pending"}')
    parties.provider.answers += [answer(200, begun), *[waiting] * 60]
    slept: list[float] = []
    with pytest.raises(Failed, match="in time"):
        sign_in(client, endpoints, slept.append)
    assert slept == pauses


def test_slow_down_slows_down_within_bounds(parties: Parties) -> None:
    client = SignInClient(parties.provider.url, "cli", "openid", "groups")
    endpoints = ProviderEndpoints(f"{client.issuer}/device", f"{client.issuer}/token")
    slower, ended = (answer(400, json.dumps({"error": error})) for error in ("slow_down", "expired_token"))
    parties.provider.answers += [parties.begin(interval=52, expires_in=900), slower, slower, slower, ended]
    slept: list[float] = []
    with pytest.raises(Failed, match="expired_token"):
        sign_in(client, endpoints, slept.append)
    assert slept == [52.0, 57.0, 60.0, 60.0]
    assert bound(True, 5.0, 1.0, 60.0) == 5.0


def test_the_access_token_is_sent_only_for_groups_that_the_id_token_leaves_out() -> None:
    client = SignInClient("https://id.example.com", "cli", "openid", "roles")
    told, silent = make_id_token(roles=[]), make_id_token(groups=[])
    assert select_tokens({"id_token": told, "access_token": "x"}, client) == {"idToken": told}
    assert select_tokens({"id_token": silent, "access_token": "x"}, client) == {"idToken": silent, "accessToken": "x"}
    assert select_tokens({"id_token": silent}, client) == {"idToken": silent}
    for wrong in ("no-token", "a.!.c", "a.W10.c", 7, None, "x" * 70_000):
        with pytest.raises(Failed) as failed:
            select_tokens({"id_token": wrong}, client)
        assert failed.value.code == exits.UNREACHABLE
    with pytest.raises(Failed):
        select_tokens({"id_token": silent, "access_token": 7}, client)


@pytest.mark.parametrize(
    "changed",
    [
        {"token": 7},
        {"token": ""},
        {"token": "gw_a\nb"},
        {"token": "x" * 600},
        {"name": None},
        {"scope": []},
        {"tenant": 7},
        {"expiresAt": {}},
    ],
)
def test_what_the_server_gives_has_its_form_checked(changed: dict[str, Any]) -> None:
    assert read_given(GIVEN, "https://a")[0] == GIVEN["token"]
    with pytest.raises(Failed) as failed:
        read_given({**GIVEN, **changed}, "https://a")
    assert failed.value.code == exits.UNREACHABLE


def test_a_refusal_with_nonsense_in_it_is_a_refusal(parties: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    nonsense = {"detail": ["no"], "faults": 5, "referrers": {"a": 1}, "occupants": "x"}
    parties.server.answers.append(answer(403, json.dumps(nonsense)))
    assert parties.log_in() == exits.REFUSED
    assert "error in gpuwright" not in capsys.readouterr().err


def keep_for(server: str, context: str | None = None) -> str:
    words = {"server": server, "context": context, "tenant": None, "token_file": None}
    return keep(find_context(argparse.Namespace(**words)), "gw_new_secret")


def test_a_sign_in_changes_no_other_servers_context(parties: Parties) -> None:
    first = {"server": "https://gpus.example.com", "token": "gw_a_b", "caFile": "/ca.pem", "tenant": "shop"}
    other = {"server": "https://x.example", "token": "gw_c_d", "caFile": "/x.pem", "tenant": "bank"}
    contexts = {"gpus.example.com": first, "gpus.example.com-8443": other}
    parties.config.write_text(json.dumps({"current": "gpus.example.com", "contexts": contexts}))
    assert keep_for("https://gpus.example.com:8443") == "gpus.example.com-8443-2"
    assert keep_for("http://gpus.example.com") == "gpus.example.com-2", "plain http is another server"
    assert keep_for("https://new.example", "gpus.example.com") == "new.example", "the name asked for is taken"
    assert keep_for("https://new.example", "mine") == "mine"
    kept = load(parties.config)["contexts"]
    assert {name: kept[name] for name in contexts} == contexts
    assert kept["gpus.example.com-8443-2"] == {"server": "https://gpus.example.com:8443", "token": "gw_new_secret"}
    assert keep_for("https://gpus.example.com/") == "gpus.example.com"
    assert load(parties.config)["contexts"]["gpus.example.com"] == {**first, "token": "gw_new_secret"}


def test_another_servers_ca_is_not_used(parties: Parties) -> None:
    entry = {"server": "https://a.example", "caFile": "/ca.pem"}
    parties.config.write_text(json.dumps({"current": "a", "contexts": {"a": entry}}))
    words = {"context": None, "tenant": None, "token_file": None}
    assert find_context(argparse.Namespace(server=None, **words)).ca_file == "/ca.pem"
    assert find_context(argparse.Namespace(server="https://b.example", **words)).ca_file == ""


def test_a_servers_host_and_port_make_a_name_that_a_context_may_have() -> None:
    assert name_server("https://gpus.example.com:443") == "gpus.example.com"
    assert name_server("http://[::1]:8080") == "1-8080"
    assert name_server("https://" + "a" * 60 + ".example") == "a" * 50
