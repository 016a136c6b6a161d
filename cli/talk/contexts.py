"""The server and token of a command: from flags, then the environment, then the config file."""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.exits import Failed

DEFAULT_SERVER = "http://127.0.0.1:8080"
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
KNOWN = {"server", "token", "tokenFile", "caFile", "tenant"}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The server of a command and its token; `origin` names the token's source, never the token."""

    server: str
    token: str = ""
    tenant: str = ""  # the tenant names without one are looked up in; empty: all
    ca_file: str = ""
    context: str = ""
    origin: str = "no token is configured"
    request_seconds: float = 60.0
    verbose: bool = False

    def __repr__(self) -> str:
        return f"Connection(server={self.server!r}, context={self.context!r}, origin={self.origin!r})"


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Returns the config file: GPUWRIGHT_CONFIG, or gpuwright/config.json under the user's config folder."""
    env = os.environ if environment is None else environment
    if env.get("GPUWRIGHT_CONFIG"):
        return Path(env["GPUWRIGHT_CONFIG"]).expanduser()
    home = env.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "gpuwright" / "config.json"


def load(path: Path) -> dict[str, Any]:
    """Returns the config as written; an absent file is an empty config."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"current": "", "contexts": {}}
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"cannot read the config file {path}: {reason(error)}") from None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise Failed(f"the config file {path} is not JSON: {error}; repair or remove it") from None
    contexts = config.get("contexts", {}) if isinstance(config, dict) else None
    if not isinstance(contexts, dict) or not all(isinstance(entry, dict) for entry in contexts.values()):
        raise Failed(f'the config file {path} must hold {{"current": NAME, "contexts": {{NAME: {{...}}}}}}')
    for name, entry in contexts.items():
        for field, value in entry.items():
            if field in KNOWN and not isinstance(value, str):
                raise Failed(f"the config file {path}: contexts.{name}.{field} must be a string")
    return {"current": str(config.get("current") or ""), "contexts": contexts}


def save(path: Path, config: Mapping[str, Any]) -> None:
    """Replace the config file at once, readable by its owner only: a reader sees the old or the new one."""
    target = path.resolve()  # a symlinked config stays a symlink
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(prefix=".config-", dir=target.parent)  # 0600 from the start
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(config, file, indent=2, sort_keys=True)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Failed(f"cannot write the config file {path}: {reason(error)}") from None


def remember(name: str, entry: Mapping[str, str], *, select: bool, path: Path | None = None) -> None:
    """Set the context `name` (fields of `entry`: server, tokenFile or token, caFile, tenant)."""
    check_name(name)
    where = path or config_path()
    config = load(where)
    config["contexts"][name] = {field: value for field, value in entry.items() if value}
    if select or not config["current"]:
        config["current"] = name
    save(where, config)


def check_name(name: str) -> None:
    """Refuses what cannot be the name of a context."""
    if not NAME.fullmatch(name):
        raise Failed(f"context name {name!r} is not allowed: 1..63 letters, digits, '.', '_' and '-'")


def resolve(args: argparse.Namespace, environment: Mapping[str, str] | None = None) -> ServerContext:
    """Returns the connection that the flags in `args`, the environment and the config file give together."""
    env = os.environ if environment is None else environment
    path = config_path(env)
    config = load(path)
    chosen = getattr(args, "context", None) or env.get("GPUWRIGHT_CONTEXT", "")
    name = chosen or config["current"]
    entry = config["contexts"].get(name, {})
    if chosen and not entry:
        known = ", ".join(sorted(config["contexts"])) or "none"
        raise Failed(f"context {chosen!r} does not exist in {path}; known contexts: {known}")
    wanted = getattr(args, "server", None) or env.get("GPUWRIGHT_SERVER") or read_server(entry)
    server = wanted.rstrip("/")
    token, origin = _find_token(args, env, entry, name, path, server)
    if not is_same_server(read_server(entry), server):
        entry = {}  # another server has other tenants, and another authority
    return ServerContext(
        server=server,
        token=token,
        tenant=getattr(args, "tenant", None) or entry.get("tenant", ""),
        ca_file=entry.get("caFile", ""),
        context=name,
        origin=origin,
        request_seconds=getattr(args, "request_timeout", 60.0),
        verbose=getattr(args, "verbose", False),
    )


def read_server(entry: Mapping[str, str]) -> str:
    """Returns the server of a context."""
    return entry.get("server") or DEFAULT_SERVER


def is_same_server(left: str, right: str) -> bool:
    return left.rstrip("/") == right.rstrip("/")


def _find_token(
    args: argparse.Namespace,
    env: Mapping[str, str],
    entry: Mapping[str, str],
    name: str,
    path: Path,
    server: str,
) -> tuple[str, str]:
    """Returns the first token that is for this server, and where it is from; without one, why there is none."""
    if getattr(args, "token_file", None):
        return read_token(args.token_file), f"the token of {args.token_file}"
    why_not = f"context {name} has no token" if name else f"no token is configured in {path}"
    if entry.get("token") or entry.get("tokenFile"):
        why_not = f"the token of context {name} is for {read_server(entry)}, so it was not sent to another server"
    if env.get("GPUWRIGHT_TOKEN"):
        env_server = env.get("GPUWRIGHT_SERVER") or server
        if is_same_server(env_server, server):
            return check_token(env["GPUWRIGHT_TOKEN"], "GPUWRIGHT_TOKEN"), "the token of GPUWRIGHT_TOKEN"
        why_not = f"GPUWRIGHT_TOKEN is for {env_server} of GPUWRIGHT_SERVER, so it was not sent to another server"
    if is_same_server(read_server(entry), server):
        if entry.get("tokenFile"):
            return read_token(entry["tokenFile"]), f"the token of context {name} ({entry['tokenFile']})"
        if entry.get("token"):
            return check_token(entry["token"], f"context {name}"), f"the token of context {name} ({path})"
    return "", why_not


def read_token(file: str) -> str:
    """Reads the token from a file that contains nothing else."""
    try:
        return check_token(Path(file).expanduser().read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        lost = file.endswith("admin.token")
        step = "; `gpuwright up` on that folder makes a new one" if lost else ""
        raise Failed(f"cannot read the token file {file}: {reason(error)}{step}") from None


def check_token(text: str, where: str) -> str:
    """`text` without surrounding white space, refused (not shown) when it cannot be a token."""
    token = text.strip()
    if not token or len(token) > 512 or not all("!" <= char <= "~" for char in token):
        raise Failed(f"{where} holds no token: a token is a word of visible ASCII, like gw_<id>_<secret>")
    return token


def reason(error: Exception) -> str:
    """Returns the system's reason for a failed file or socket operation, in lower case."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
