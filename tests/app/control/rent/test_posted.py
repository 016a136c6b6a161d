"""Hooks that are servers: what is posted, and that whatever is no plain answer counts as none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.control.rent.calls import HookOrder
from app.control.rent.hooks import FileHooks, load_hooks
from app.control.rent.states import HookAnswer, HookVerb
from app.control.rent.trusted import HooksRefused
from tests.webhooks.receiver import Receiver, running_receiver

SECRET = "0123456789abcdef-of-hooks"
SPEC = {"gpuType": "l4-24gb", "gpus": 2, "region": "eu-1", "purchase": "spot", "pool": "burst", "cpuCores": 8}
ACCEPTED = b'{"state": "accepted", "message": "i-7"}\n'


def load(folder: Path, url: str, **changed: Any) -> FileHooks:
    secret = folder / "secret"
    secret.write_text(f"{SECRET}\n")
    entry = {"kind": "webhook", "url": url, "secretFile": str(secret), "onThisMachine": True, **changed}
    path = folder / "hooks.yaml"
    path.write_text(json.dumps({"cloud": {name: value for name, value in entry.items() if value is not None}}))
    for file in (secret, path):
        file.chmod(0o640)
    return load_hooks(path, owner=os.getuid())


def call(folder: Path, receiver: Receiver, verb: HookVerb = "rent", **changed: Any) -> HookAnswer:
    hooks = load(folder, f"{receiver.address}/nodes?team=a", **changed)
    return hooks.call(HookOrder(verb, "cloud", "burst-1-k", "burst", "burst-1", SPEC))


def test_an_order_is_one_signed_post_under_its_key(tmp_path: Path) -> None:
    with running_receiver(answer=ACCEPTED) as receiver:
        assert call(tmp_path, receiver) == ("accepted", "i-7")
        post = receiver.next_post()
        assert receiver.posts.empty()
    assert post.path == "/nodes?team=a"
    assert post.json == {
        "verb": "rent", "key": "burst-1-k", "pool": "burst", "node": "burst-1", "gpuType": "l4-24gb", "gpus": 2,
        "region": "eu-1", "purchase": "spot",
    }  # fmt: skip
    assert post.headers["idempotency-key"] == post.headers["webhook-id"] == "burst-1-k"
    assert post.is_signed_with(SECRET) and not post.is_signed_with("another")


def test_a_return_is_asked_anew_so_that_no_remembered_answer_of_the_rent_or_an_earlier_one_comes_back(
    tmp_path: Path,
) -> None:
    with running_receiver(answer=b'{"state": "returned"}') as receiver:
        assert call(tmp_path, receiver, "return") == ("returned", "")
        post = receiver.next_post()
    moment = post.headers["webhook-timestamp"]
    assert post.headers["idempotency-key"] == post.headers["webhook-id"] == f"burst-1-k-return-{moment}"
    assert post.json["key"] == "burst-1-k"
    assert post.is_signed_with(SECRET)


@pytest.mark.parametrize(
    ("says", "answer", "message"),
    [
        ("200", b"", "did not answer with JSON such as"),
        ("200", b"<html>", "did not answer with JSON such as"),
        ("200", b"[]", "did not answer with JSON such as"),
        ("200", ACCEPTED + ACCEPTED, "did not answer with JSON such as"),
        ("200", b'{"state": "accepted", "message": "zur\xfcck"}', "did not answer with JSON such as"),
        ("200", b'{"state": "accepted", "more": ' + b"[" * 30_000, "did not answer with JSON such as"),
        ("200", b'{"state": "perhaps"}', "did not answer with JSON such as"),
        ("200", b'{"state": "accepted", "message": 7}', "did not answer with JSON such as"),
        ("200", b'{"state": "returned"}', "answered returned when asked to rent; allowed: accepted, refused, pending"),
        ("200", b" " * 70_000 + ACCEPTED, "answered with more than 64 KiB"),
        ("500", ACCEPTED, "gave no answer: it answered 500"),
        ("409", ACCEPTED, "gave no answer: it answered 409"),
        ("close", b"", "gave no answer"),
    ],
)
def test_whatever_is_no_plain_answer_is_none(tmp_path: Path, says: str, answer: bytes, message: str) -> None:
    with running_receiver(says, answer) as receiver:
        found = call(tmp_path, receiver)
        assert found.state == "failed"
        assert message in found.message
        assert receiver.address.rpartition(":")[2] not in found.message, "viewers read it"


def test_a_refusal_says_why_in_one_plain_line(tmp_path: Path) -> None:
    written = rb'{"state": "refused", "message": "no\u0000 quota\n\u001b[2J", "more": 1}'
    with running_receiver(answer=written) as receiver:
        assert call(tmp_path, receiver) == ("refused", "no quota [2J")


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with running_receiver("redirect", ACCEPTED) as receiver:
        assert "it answered 307" in call(tmp_path, receiver).message
        receiver.next_post()
        assert receiver.posts.empty()


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_server_that_does_not_come_to_an_end_is_left(tmp_path: Path, how: str) -> None:
    with running_receiver(how) as receiver:
        answer = call(tmp_path, receiver, timeoutSeconds=0.3)
    assert (answer.state, "did not answer within 0.3 s" in answer.message) == ("failed", True)


def test_a_body_without_end_is_read_no_further_than_an_answer_may_be_long(tmp_path: Path) -> None:
    with running_receiver("flood") as receiver:
        assert "more than 64 KiB" in call(tmp_path, receiver).message
    assert receiver.flooded_bytes < 100_000_000, "the rest was cut off"


def test_a_server_that_is_away_gives_no_answer(tmp_path: Path) -> None:
    with running_receiver() as receiver:
        pass
    assert "gave no answer: Connection refused" in call(tmp_path, receiver).message


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"url": "http://rent.example.com/"}, "url must be https://HOST"),
        ({"url": "http://127.0.0.1/", "onThisMachine": False}, "url must be https://HOST"),
        ({"url": "https://me:secret-of-mine@rent.example.com/"}, "url must be https://HOST"),
        ({"url": "https://rent.example.com:99999/"}, "url must be https://HOST"),
        ({"url": "https://rent.example.com/a b"}, "url must be https://HOST"),
        ({"url": None}, "missing required field `url`.*webhook .url, secretFile."),
        ({"secretFile": None}, "missing required field `secretFile`"),
        ({"secretFile": "/none"}, "secretFile /none cannot be opened"),
        ({"caFile": "/none"}, "caFile /none cannot be opened"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 601}, "timeoutSeconds"),
        ({"timeoutSeconds": float("nan")}, "timeoutSeconds"),
        ({"timeoutSeconds": float("inf")}, "timeoutSeconds"),
        ({"headers": {}}, "unknown field `headers`"),
    ],
)
def test_a_wrong_entry_is_refused_by_what_is_wrong_in_it(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    with pytest.raises(HooksRefused, match=why) as refused:
        load(tmp_path, **{"url": "https://rent.example.com/", "onThisMachine": False, **changed})
    assert "secret-of-mine" not in str(refused.value)


def test_the_secret_is_roots_and_long_and_shown_nowhere(tmp_path: Path) -> None:
    hooks = load(tmp_path, "https://rent.example.com/in", onThisMachine=False)
    assert SECRET not in repr(hooks) and "/in" not in repr(hooks)
    short, loose = tmp_path / "short", tmp_path / "loose"
    short.write_text("short")
    with pytest.raises(HooksRefused, match="secretFile must hold at least 16 characters"):
        load(tmp_path, "https://rent.example.com/", onThisMachine=False, secretFile=str(short))
    loose.write_text(SECRET)
    loose.chmod(0o666)
    with pytest.raises(HooksRefused, match=r"secretFile .*loose may be written by others \(mode 666\)"):
        load(tmp_path, "https://rent.example.com/", onThisMachine=False, secretFile=str(loose))
