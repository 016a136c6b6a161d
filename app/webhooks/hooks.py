"""The file of webhooks: what goes where and how. Only who may write the server's files decides where anything goes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import yaml

from app.http.posting import LEAST_SECRET, POST_ADDRESS, is_one_word, is_post_address
from app.settings import SettingsError
from app.wire import SEVERITIES

ADDRESSES = {
    "cloudevents": POST_ADDRESS,
    "slack": POST_ADDRESS,
    "syslog": "tcp://HOST:PORT, udp://HOST:PORT or unix:///PATH",
    "jsonl": "file:///PATH",
}
STREAMS = ("events", "audit")
EVENT_FILTERS = ("severities", "reasons", "tenants")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
WORD = re.compile(r"[a-z0-9_]{1,60}")
MOST_HOOKS = 20
KNOWN = {
    "name",
    "url",
    "urlFile",
    "secretFile",
    "caFile",
    "format",
    "stream",
    "onThisMachine",
    *EVENT_FILTERS,
}


@dataclass(frozen=True, slots=True)
class Webhook:
    """A place that wants events, or the audit. Its address may hold a secret, as Slack's do, and is shown nowhere."""

    name: str
    url: str = field(repr=False)
    secret: bytes = field(default=b"", repr=False)
    ca_file: str = ""
    form: str = "cloudevents"
    stream: str = "events"
    severities: Sequence[str] = ()  # empty: all
    reasons: Sequence[str] = ()
    tenants: Sequence[str] = ()
    on_this_machine: bool = False  # a relay that listens on loopback

    @property
    def host(self) -> str:
        """Returns where it is, as admins may know it: a host, or a path of the server's machine."""
        parts = urlsplit(self.url)
        return parts.hostname or parts.path


def read_hooks(path: Path | None) -> tuple[Webhook, ...]:
    """Returns the webhooks of the file; SettingsError says what in it is wrong, without its secrets."""
    if path is None:
        return ()
    listed = _read(path)
    if not isinstance(listed, list) or len(listed) > MOST_HOOKS:
        raise SettingsError(f"{path} must be {{webhooks: [...]}} with at most {MOST_HOOKS} of them")
    hooks = tuple(_read_hook(entry, f"{path}: webhooks[{number}]") for number, entry in enumerate(listed))
    names = [hook.name for hook in hooks]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise SettingsError(f"{path}: there are two webhooks named {twice}")
    return hooks


def _read(path: Path) -> object:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"webhooks_file: cannot read {path}: {error}") from None
    except yaml.YAMLError:
        raise SettingsError(f"webhooks_file: {path} is not YAML") from None
    return document.get("webhooks") if isinstance(document, dict) and set(document) == {"webhooks"} else None


def _read_hook(entry: object, where: str) -> Webhook:
    if not isinstance(entry, dict):
        raise SettingsError(f"{where} is not a mapping")
    if unknown := sorted(str(key) for key in set(entry) - KNOWN):
        raise SettingsError(f"{where}: {unknown[0]!r} is unknown; allowed: {', '.join(sorted(KNOWN))}")
    name, form, is_local = entry.get("name"), entry.get("format", "cloudevents"), entry.get("onThisMachine", False)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SettingsError(f"{where}: name must be a label, such as on-call")
    if form not in ADDRESSES:
        raise SettingsError(f"{where}: format must be one of {', '.join(ADDRESSES)}")
    if not isinstance(is_local, bool):
        raise SettingsError(f"{where}: onThisMachine must be true or false")
    url = _read_secret(entry, "urlFile", where) if "urlFile" in entry else entry.get("url")
    if ("url" in entry) == ("urlFile" in entry) or not isinstance(url, str):
        raise SettingsError(f"{where}: give either url or urlFile, a file that holds it")
    secret = _read_secret(entry, "secretFile", where).encode() if "secretFile" in entry else b""
    if form == "cloudevents" and len(secret) < LEAST_SECRET:
        raise SettingsError(f"{where}: secretFile must name a file with at least {LEAST_SECRET} characters")
    return Webhook(
        name=name,
        url=_check_url(url, form, is_local, where),
        secret=secret,
        ca_file=_read_ca_file(entry, where),
        form=form,
        stream=_read_stream(entry, form, where),
        severities=_read_words(entry, "severities", where, SEVERITIES),
        reasons=_read_words(entry, "reasons", where),
        tenants=_read_words(entry, "tenants", where),
        on_this_machine=is_local,
    )


def _read_stream(entry: Mapping[str, object], form: str, where: str) -> str:
    stream = entry.get("stream", "events")
    if stream not in STREAMS:
        raise SettingsError(f"{where}: stream must be one of {', '.join(STREAMS)}")
    if stream == "audit" and form == "slack":
        raise SettingsError(f"{where}: format slack is for events")
    if stream == "audit" and (narrowing := next((key for key in EVENT_FILTERS if key in entry), "")):
        raise SettingsError(f"{where}: {narrowing} is for events; the audit is sent whole")
    return str(stream)


def _check_url(url: str, form: str, is_local: bool, where: str) -> str:
    try:
        is_right = is_post_address(url, is_local) if ADDRESSES[form] == POST_ADDRESS else _fits(urlsplit(url), form)
    except ValueError:
        is_right = False
    if not is_right or not is_one_word(url):
        raise SettingsError(f"{where}: the address must be {ADDRESSES[form]}")
    return url


def _fits(parts: SplitResult, form: str) -> bool:
    if parts.username or parts.fragment:
        return False
    is_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    is_path = not parts.netloc and len(parts.path) > 1 and not parts.query
    match form, parts.scheme:
        case ("jsonl", "file") | ("syslog", "unix"):
            return is_path
        case "syslog", "tcp" | "udp":
            return is_host and parts.port is not None and not parts.path and not parts.query
    return False


def _read_secret(entry: Mapping[str, object], key: str, where: str) -> str:
    try:
        return Path(str(entry[key])).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where}: {key}: cannot read {entry[key]}: {type(error).__name__}") from None


def _read_ca_file(entry: Mapping[str, object], where: str) -> str:
    path = entry.get("caFile", "")
    if path and not (isinstance(path, str) and Path(path).is_file()):
        raise SettingsError(f"{where}: caFile: there is no file {path}")
    return str(path)


def _read_words(entry: Mapping[str, object], key: str, where: str, allowed: Sequence[str] = ()) -> tuple[str, ...]:
    words = entry.get(key, [])
    form = WORD if key != "tenants" else NAME
    if not isinstance(words, list) or not all(isinstance(word, str) and form.fullmatch(word) for word in words):
        raise SettingsError(f"{where}: {key} must be a list of words")
    if allowed and (wrong := next((word for word in words if word not in allowed), "")):
        raise SettingsError(f"{where}: {key}: {wrong!r} is none of {', '.join(allowed)}")
    return tuple(words)
