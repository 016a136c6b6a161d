"""A server, or whoever poses as one, cannot steer the terminal of the one who asks it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cli.main import main
from tests.cli.scripted import answer, scripted

EVIL = "a\x1b]0;owned\x07\x1b[2J\r\n\u202eb\x9b31m\u200b"
ITEM = {
    "apiVersion": "gpuwright/v1",
    "kind": "Service",
    "metadata": {
        "name": EVIL,
        "tenant": EVIL,
        "labels": {EVIL: EVIL},
        "uid": EVIL,
        "createdAt": EVIL,
        "resourceVersion": 1,
        "generation": 1,
    },
    "spec": {"model": EVIL, "slo": {"latencyMs": EVIL}, "gpuTypes": [EVIL]},
    "status": {"conditions": [{"type": "SloAttainable", "status": EVIL, "reason": EVIL, "message": EVIL}]},
}
LIST = json.dumps({"metadata": {"next": None, "resourceVersion": 1}, "items": [ITEM]})
CHANGE = {"kind": EVIL, "tenant": EVIL, "name": EVIL, "action": EVIL}
DIFF = [{"path": EVIL, "before": EVIL, "after": EVIL}]
APPLIED = json.dumps({"changes": [CHANGE | {"diff": DIFF}], "warnings": [EVIL]})
FAULT = {"document": EVIL, "field": EVIL, "message": EVIL, "allowed": EVIL, "suggestion": EVIL}
REFERRER = {"kind": EVIL, "tenant": EVIL, "name": EVIL}
PROBLEM = json.dumps({"detail": EVIL, "faults": [FAULT], "referrers": [REFERRER]})


@pytest.mark.parametrize(
    ("words", "body", "status"),
    [
        *[(["get", "services", "-o", form], LIST, 200) for form in ("table", "wide", "name", "json", "yaml")],
        (["describe", "service", "shop/x"], json.dumps(ITEM), 200),
        (["wait", "service", "shop/x", "--for", "create"], LIST, 200),
        (["apply", "-f", "-"], APPLIED, 200),
        (["diff", "-f", "-"], APPLIED, 200),
        (["whoami"], json.dumps({"id": EVIL, "scope": EVIL}), 200),
        (["token", "list"], json.dumps({"metadata": {}, "items": [{"id": EVIL, "label": EVIL}]}), 200),
        (["token", "create", "--scope", "viewer"], json.dumps({"id": EVIL, "token": EVIL, "expiresAt": EVIL}), 200),
        (["version"], json.dumps({"info": {"version": EVIL}}), 200),
        (["__complete", "--", "get", "svc", ""], LIST, 200),
        *[(["get", "services", "-v"], PROBLEM, status) for status in (400, 401, 403, 404, 409, 422, 500)],
    ],
)
def test_no_control_character_of_an_answer_is_printed(
    words: list[str],
    body: str,
    status: int,
    cli_config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    with scripted(answer(status, body, ["X-Request-Id: \x1b[2J"])) as server:
        monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
        main(words)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "internal error" not in text
    assert shown.out or shown.err or words[0] == "__complete"


@pytest.mark.parametrize("second", [answer(200, LIST), answer(200, "<html>", media="text/html"), answer(403, PROBLEM)])
def test_what_is_asked_besides_for_a_name_like_the_one_that_is_absent_hides_nothing(
    second: bytes, cli_config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted(answer(404, PROBLEM), second) as server:
        monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
        assert main(["describe", "service", "shop/x"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpuwright: there is no Service shop/x; ") and line.isprintable()
