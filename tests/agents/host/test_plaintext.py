"""Tokens go over a network only encrypted, or where the environment allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.control.join import join
from agents.host.plaintext import VARIABLE, plaintext_refusal
from agents.node.state_folder import StateFolder
from agents.run.opening import AgentOptions, open_node
from agents.talk.link import Link

NEAR = ("http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080", "http://127.9.9.9", "https://far.example")
FAR = (
    "http://10.0.0.5:8080", "http://far.example", "http://127.0.0.1.evil.example", "http://localhost.evil.example:80",
    "HTTP://far.example", "http://127.0.0.1@far.example",
)  # fmt: skip


@pytest.mark.parametrize("server", NEAR)
def test_a_server_of_this_machine_or_with_tls_gets_the_token(server: str) -> None:
    assert plaintext_refusal(server) == ""
    Link(server, "gw_id_secret").close()


@pytest.mark.parametrize("server", FAR)
def test_no_token_goes_to_another_machine_in_the_clear(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "anyone on the network path could read the token" in plaintext_refusal(server)
    with pytest.raises(ValueError, match="is not encrypted"):
        Link(server, "gw_id_secret")
    monkeypatch.setenv(VARIABLE, "1")
    Link(server, "gw_id_secret").close()


def test_a_join_token_stays_here_as_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not encrypted"):
        join(StateFolder(tmp_path), "http://far.example", "gwj_id_secret", "node-1", {})
    assert StateFolder(tmp_path).credential() is None


def test_the_token_of_a_sidecar_stays_here_as_well(tmp_path: Path) -> None:
    options = AgentOptions(
        folder=tmp_path, device="simulated", gateway="http://10.0.0.5:9444", gateway_token_file="token"
    )
    with pytest.raises(ValueError, match="is not encrypted"):
        open_node(options)
