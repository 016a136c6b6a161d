"""A provider that lies, leads elsewhere, hangs up or says too much is not believed, and learns no secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.people.claims import ClaimRefused
from app.people.provider import MOST_BYTES, Provider, ProviderBusy, ProviderFailed
from app.settings import Settings
from tests.support.patience import patience

Answer = Callable[[str, str], tuple[int, dict[str, str], bytes]]


@contextmanager
def provider_that_says(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """Runs an HTTP server on loopback that answers by its address and path; yields the address and what it is asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            length = int(self.headers.get("Content-Length", 0))
            asked.append(self.rfile.read(length).decode())
            status, headers, body = answer(f"http://{self.headers['Host']}", self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def describe(issuer: str, **changed: Any) -> dict[str, Any]:
    parts = (
        "authorization_endpoint",
        "token_endpoint",
        "jwks_uri",
        "userinfo_endpoint",
        "device_authorization_endpoint",
    )
    return {"issuer": issuer, **{part: f"{issuer}/{part}" for part in parts}, **changed}


def make_provider(issuer: str) -> Provider:
    return Provider(
        Settings(oidc_issuer=issuer, oidc_client_id="c", oidc_groups="g=viewer", public_url="https://gpus.example.com")
    )


def say_json(body: object, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://elsewhere.example"},
        {"issuer": None},
        {"authorization_endpoint": None},
        {"authorization_endpoint": 7},
    ],
)
def test_a_description_of_somebody_else_or_without_what_is_needed_is_refused(changed: dict[str, Any]) -> None:
    said = provider_that_says(lambda issuer, _: say_json(describe(issuer, **changed)))
    with said as (issuer, _), pytest.raises(ProviderFailed):
        make_provider(issuer).begin_address("s", "n", "v")


@pytest.mark.parametrize(
    "said",
    [
        (302, {"Location": "http://127.0.0.1:9/"}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b"{" + b" " * (MOST_BYTES + 1)),
        (200, {"Content-Length": "5000"}, b"{}"),
        (500, {}, b"{'error': 'with a stack trace and a secret'}"),
    ],
)
def test_no_description_is_taken_from_such_an_answer(said: tuple[int, dict[str, str], bytes]) -> None:
    with provider_that_says(lambda *_: said) as (issuer, asked), pytest.raises(ProviderFailed) as failed:
        make_provider(issuer).begin_address("s", "n", "v")
    assert "secret" not in str(failed.value)
    assert len(asked) == 2, "one request: no redirect is followed"


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1/token", "http://169.254.169.254/latest", "file:///etc/passwd", "x"]
)
def test_a_code_goes_to_no_address_that_keeps_no_secret(address: str) -> None:
    with provider_that_says(lambda issuer, _: say_json(describe(issuer, token_endpoint=address))) as (issuer, asked):
        with pytest.raises(ProviderFailed, match="not https"):
            make_provider(issuer).redeem("a-code", "v", "n")
        assert "a-code" not in "".join(asked)


def test_a_refused_code_is_explained_by_its_error_alone() -> None:
    def answer(issuer: str, path: str) -> tuple[int, dict[str, str], bytes]:
        refused = {"error": "invalid_client", "error_description": "<script>"}
        return say_json(refused, 400) if path == "/token_endpoint" else say_json(describe(issuer))

    with provider_that_says(answer) as (issuer, _), pytest.raises(ProviderFailed, match=r"400 invalid_client$"):
        make_provider(issuer).redeem("a-code", "v", "n")


def test_a_code_that_the_provider_does_not_know_is_the_browsers_fault() -> None:
    def answer(issuer: str, path: str) -> tuple[int, dict[str, str], bytes]:
        return say_json({"error": "invalid_grant"}, 400) if path == "/token_endpoint" else say_json(describe(issuer))

    with provider_that_says(answer) as (issuer, _), pytest.raises(ClaimRefused, match="does not know this code"):
        make_provider(issuer).redeem("a-code", "v", "n")


def test_a_provider_that_fails_is_not_asked_again_at_once() -> None:
    with provider_that_says(lambda *_: (429, {}, b"")) as (issuer, asked):
        provider = make_provider(issuer)
        for _ in range(5):
            with pytest.raises(ProviderFailed, match="429"):
                provider.begin_address("s", "n", "v")
    assert len(asked) == 2, "one request"


def test_tokens_without_signatures_of_its_keys_are_not_believed() -> None:
    def answer(issuer: str, path: str) -> tuple[int, dict[str, str], bytes]:
        match path:
            case "/token_endpoint":
                return say_json({"id_token": "a.b.c", "access_token": "x"})
            case "/jwks_uri":
                return say_json({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]})
        return say_json(describe(issuer))

    with provider_that_says(answer) as (issuer, asked):
        provider = make_provider(issuer)
        with pytest.raises(ClaimRefused):
            provider.redeem("a-code", "v", "n")
        with pytest.raises(ClaimRefused):
            provider.identify("a.b.c", "")
        assert [line for line in asked if "well-known" in line] == ["GET /.well-known/openid-configuration"], "kept"


def test_those_who_wait_for_a_silent_provider_are_few() -> None:
    leave, is_refused = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def answer(issuer: str, _: str) -> tuple[int, dict[str, str], bytes]:
        leave.wait()
        return say_json(describe(issuer))

    with provider_that_says(answer) as (issuer, _):
        provider = make_provider(issuer)

        def begin() -> None:
            try:
                outcomes.append(provider.begin_address("s", "n", "v"))
            except ProviderBusy:
                is_refused.set()

        threads = [threading.Thread(target=begin) for _ in range(5)]
        for thread in threads:
            thread.start()
        is_refused.wait(patience())
        leave.set()
        for thread in threads:
            thread.join()
        assert (is_refused.is_set(), len(outcomes)) == (True, 4)


def test_settings_that_would_send_secrets_in_the_clear_or_admit_everybody_are_refused(tmp_path: Path) -> None:
    good = {"oidc_issuer": "https://id.example.com", "oidc_client_id": "c", "oidc_groups": "a b=viewer,x=operator@shop"}
    good["public_url"] = "https://gpus.example.com"
    rights = Settings(**good).group_rights()  # type: ignore[arg-type]
    assert [(right.group, right.scope, right.tenant) for right in rights] == [
        ("a b", "viewer", ""), ("x", "operator", "shop"),
    ]  # fmt: skip
    wrong = {
        "oidc_issuer": "http://id.example.com",
        "public_url": "http://gpus.example.com",
        "oidc_client_id": "",
        "oidc_groups": "",
        "oidc_client_secret_file": tmp_path / "none",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            Settings(**{**good, name: value})  # type: ignore[arg-type]
    for groups in (
        "platform",
        "=admin",
        "a=root",
        "a=admin@shop",
        "a=node",
        "a=viewer@Shop",
        "cn=admin,ou=groups=viewer",
    ):
        with pytest.raises(ValueError, match="is not GROUP=SCOPE"):
            Settings(oidc_groups=groups)
