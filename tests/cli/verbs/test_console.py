"""`gpuwright console`: a new link each time, which signs a browser in once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.cli.conftest import Run
from tests.support.patience import patience
from tests.support.server import RunningServer


def test_each_link_signs_a_browser_in_once(run: Run) -> None:
    first, second = run("console"), run("console")
    assert first.code == second.code == 0
    assert first.out != second.out
    assert "once, within 60 s" in first.err
    page, _, link = first.out.strip().partition("?link=")
    with urllib.request.urlopen(first.out.strip(), timeout=patience()) as shown:
        assert "Sign in</button>" in shown.read().decode(), "a page of another site can open a link, and not press it"
    pressed = urllib.request.Request(page, f"link={link}".encode(), {"Origin": page.removesuffix("/sign-in")})
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(pressed, timeout=patience()) as opened:
        assert opened.url != page, "the button leads to the console"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(pressed, timeout=patience())
    assert json.loads(run("console", "-o", "json").out)["seconds"] == 60


def test_a_node_token_gets_no_link(run: Run, server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWRIGHT_TOKEN", server.token("node", node="node-1"))
    assert run("console").code == 3
