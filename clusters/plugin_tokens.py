"""Tokens from the program that a kubeconfig names, as `aws eks get-token`; what it prints is never repeated."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from pathlib import PurePath

import httpx2
from lightkube.config.models import UserExec

from clusters.objects import read_text

VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
PLUGIN_SECONDS = 60.0
ONLY_ONE = "one token: a line of ASCII without spaces"


class TokenFailed(Exception):
    """There is no token: `remedy` says what it takes."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason, self.remedy = reason, remedy


class PluginToken(httpx2.Auth):
    """Sends the token of a plugin, and asks for another once where the server does not know it any more."""

    def __init__(self, plugin: UserExec) -> None:
        self._plugin, self._token = plugin, ""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
            response = yield request
            if response.status_code != 401:
                return
        self._token = _ask(self._plugin)
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


def is_token(text: str) -> bool:
    """Returns whether a header can carry it; what cannot would be repeated by errors of the client."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _ask(plugin: UserExec) -> str:
    name = PurePath(plugin.command).name
    if plugin.apiVersion not in VERSIONS:
        raise TokenFailed(f"the plugin {name} is of {plugin.apiVersion}", f"use one of {', '.join(VERSIONS)}")
    asked = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {each.name: each.value for each in plugin.env or ()}
    try:
        done = subprocess.run(
            [plugin.command, *(plugin.args or ())],
            env={**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(asked), **variables},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PLUGIN_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TokenFailed(f"the plugin {name} ran over {PLUGIN_SECONDS:.0f} s", "see what it waits for") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its command or variables cannot be passed"
        raise TokenFailed(f"the plugin {name} cannot be run: {reason}", "install it, or name it by its path") from None
    if done.returncode:
        remedy = "run `kubectl get nodes` to see why, and sign in to the cluster again"
        raise TokenFailed(f"the plugin {name} ended with {done.returncode}", remedy)
    try:
        token = read_text(json.loads(done.stdout), "status", "token")
    except (ValueError, RecursionError):
        raise TokenFailed(f"the plugin {name} printed no JSON", "see what it prints") from None
    if not is_token(token):
        raise TokenFailed(f"the plugin {name} gave no token", "certificates of plugins are not read; let it give one")
    return token
