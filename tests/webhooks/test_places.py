"""Nothing is sent to a place that no operator has listed, nor to this machine's own services or a cloud's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.http.posting import NotDelivered, find_address, is_post_address, post
from app.settings import SettingsError
from app.webhooks.bodies import describe_event, make_request
from app.webhooks.hooks import Webhook, read_hooks
from tests.webhooks.receiver import running_receiver

EVENT = describe_event(
    7,
    {
        "at": "2026-11-30T08:00:00Z", "reason": "plan_proposed", "severity": "info", "kind": "Plan", "tenant": "",
        "name": "p9", "message": "<b> & *bold*", "generation": 9,
    },
)  # fmt: skip


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.8.9.1", "localhost", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.169.254",
        "::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1", "224.0.0.1", "2130706433", "0x7f.1",
        "100.100.100.200", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1",
    ],
)  # fmt: skip
def test_no_post_goes_to_this_machine_or_to_metadata(host: str) -> None:
    with pytest.raises(NotDelivered, match=r"where nothing is sent|no address"):
        find_address(host, 443, is_local=False)


@pytest.mark.parametrize("host", ["10.0.0.1", "192.0.2.7", "2001:db8::1"])
def test_other_addresses_may_receive_and_a_relay_is_on_this_machine_alone(host: str) -> None:
    assert find_address(host, 443, is_local=False) == host
    with pytest.raises(NotDelivered):
        find_address(host, 443, is_local=True)
    assert find_address("127.0.0.1", 80, is_local=True) == "127.0.0.1"


@pytest.mark.parametrize("url", ["https://me:pw@h/", "https://me@h/", "https://:pw@h/", "https://@h/"])
def test_no_address_has_a_name_or_a_password(url: str) -> None:
    assert not is_post_address(url, is_local=False)


def test_a_host_is_looked_at_when_it_is_sent_to_and_not_when_it_is_listed() -> None:
    with running_receiver() as receiver:
        hook = Webhook("x", f"https://localhost:{receiver.address.rpartition(':')[2]}/", b"s" * 16)
        with pytest.raises(NotDelivered, match="where nothing is sent"):
            post(hook, b"{}", {})
        assert receiver.posts.empty()


def test_without_tls_where_tls_is_due_nothing_is_sent() -> None:
    with running_receiver() as receiver:
        hook = Webhook("x", receiver.address.replace("http:", "https:"), b"s" * 16, on_this_machine=True)
        with pytest.raises(NotDelivered):
            post(hook, b"{}", {})
        assert receiver.posts.empty()


def test_a_line_for_slack_names_the_plan_and_nothing_in_it_is_markup() -> None:
    body, headers = make_request(Webhook("x", "https://h", form="slack"), EVENT, "https://gpus.example.com", 0)
    assert json.loads(body)["text"] == (
        "Plan/p9: &lt;b&gt; &amp; *bold* (plan_proposed) <https://gpus.example.com/plans/9|plan 9>"
    )
    assert "webhook-signature" not in headers


GOOD: dict[str, Any] = {"name": "a", "url": "https://hooks.example.com/x"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "A b"}, "name"),
        ({"url": "http://hooks.example.com/x"}, "https"),
        ({"url": "http://127.0.0.1/x"}, "https"),
        ({"url": "https://me:secret-of-mine@hooks.example.com"}, "https"),
        ({"url": "https://hooks.example.com/\nx"}, "https"),
        ({"url": "https://hooks.example.com:99999/"}, "https"),
        ({"url": "file:///etc/passwd"}, "https"),
        ({"url": "udp://127.0.0.1:514"}, "https"),
        ({"url": None}, "url"),
        ({"urlFile": "/none"}, "urlFile"),
        ({"secretFile": "/none"}, "secretFile"),
        ({"caFile": "/none"}, "caFile"),
        ({"format": "xml"}, "format"),
        ({"format": "syslog"}, "tcp://HOST:PORT"),
        ({"format": "syslog", "url": "tcp://logs.example.com"}, "tcp://HOST:PORT"),
        ({"format": "syslog", "url": "tcp://logs.example.com:514/x"}, "tcp://HOST:PORT"),
        ({"format": "syslog", "url": "unix://dev/log"}, "unix:///PATH"),
        ({"format": "syslog", "url": "file:///var/log/x"}, "unix:///PATH"),
        ({"format": "jsonl", "url": "tcp://logs.example.com:514"}, "file:///PATH"),
        ({"format": "jsonl", "url": "file://var/log/x"}, "file:///PATH"),
        ({"stream": "logs"}, "stream must be one of"),
        ({"stream": "audit", "format": "slack"}, "slack is for events"),
        ({"stream": "audit", "tenants": ["shop"]}, "tenants is for events"),
        ({"severities": ["bad"]}, "severities"),
        ({"severities": "alarm"}, "severities"),
        ({"reasons": ["Plan Proposed"]}, "reasons"),
        ({"tenants": [7]}, "tenants"),
        ({"onThisMachine": "yes"}, "onThisMachine"),
        ({"headers": {}}, "'headers' is unknown"),
    ],
)
def test_a_wrong_file_is_refused_by_what_is_wrong_in_it(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef")
    path = tmp_path / "webhooks.yaml"
    path.write_text(json.dumps({"webhooks": [{**GOOD, "secretFile": str(tmp_path / "secret"), **changed}]}))
    with pytest.raises(SettingsError, match=said) as refused:
        read_hooks(path)
    assert "secret-of-mine" not in str(refused.value)


def test_other_forms_of_the_file_and_short_secrets_are_refused(tmp_path: Path) -> None:
    path, secret = tmp_path / "webhooks.yaml", tmp_path / "secret"
    secret.write_text("short")
    whole = {**GOOD, "secretFile": str(secret)}
    for wrong in ([whole], {"webhooks": [whole], "more": 1}, {"webhooks": whole}, {"webhooks": [whole]}, "text"):
        path.write_text(json.dumps(wrong))
        with pytest.raises(SettingsError):
            read_hooks(path)
    secret.write_text("long enough to sign with")
    path.write_text(json.dumps({"webhooks": [whole, whole]}))
    with pytest.raises(SettingsError, match="two webhooks named a"):
        read_hooks(path)
    path.write_text(json.dumps({"webhooks": [whole]}))
    (hook,) = read_hooks(path)
    assert (hook.host, hook.secret) == ("hooks.example.com", b"long enough to sign with")
    assert "long enough" not in repr(hook) and "hooks.example.com/x" not in repr(hook)
    assert read_hooks(None) == ()
