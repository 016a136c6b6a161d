"""Spells a control path in ways that a gateway and a server might read differently: always the same for a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

Twist = Callable[[Random, str], str]


def _escape(random: Random, path: str) -> str:
    """Escapes some characters, in upper or lower case, once or twice."""
    spelled = []
    for sign in path:
        if random.random() < 0.2:
            code = f"{ord(sign):02{random.choice('xX')}}"
            spelled.append(("%25" if random.random() < 0.2 else "%") + code)
        else:
            spelled.append(sign)
    return "".join(spelled)


def _insert(*texts: str) -> Twist:
    def insert(random: Random, path: str) -> str:
        at = random.randrange(1, len(path) + 1)
        return path[:at] + random.choice(texts) + path[at:]

    return insert


def _at_a_slash(*texts: str) -> Twist:
    def replace(random: Random, path: str) -> str:
        places = [at for at, sign in enumerate(path) if sign == "/"]
        if not places:
            return path
        at = random.choice(places)
        return path[:at] + random.choice(texts) + path[at + 1 :]

    return replace


def _after(*texts: str) -> Twist:
    return lambda random, path: path + random.choice(texts)


def _before(*texts: str) -> Twist:
    return lambda random, path: random.choice(texts) + path


TWISTS: tuple[Twist, ...] = (
    _escape,
    lambda random, path: "".join(sign.swapcase() if random.random() < 0.3 else sign for sign in path),
    _insert("%zz", "%", "%4", "%g1", "%u002f", "%00", "\x00", "%0a", "%0d%0a", "%09", "%20", "\t", "%7f", "%c0%af"),
    _insert("\u017f", "\u212a", "\uff0f", "\u2044", "%ef%bc%8f", "%e2%81%84", "\u0307", "%cc%87", "\xad", "%c2%ad"),
    _at_a_slash("//", "/./", "/.//", "/%2e/", "/x/../", "/x/%2e%2e/", "/x/%2E./", "/..;/", "/;/", "/;a=b/", "///"),
    _at_a_slash("\\", "%5c", "%2f", "%2F", "%252f", "/%2f", "\\/", "/\\", "%c0%af", "%e0%80%af", "%u2215"),
    _after(
        "/",
        "//",
        "/.",
        "/..",
        "/x/..",
        "/%2e",
        ";",
        ";x",
        "%3b",
        "%20",
        ".",
        "..",
        "%00",
        "?",
        "?x=/y",
        "#",
        "#/y",
        "%23",
    ),
    _after("/v1/completions", "?/v1/completions", "#/v1/completions", ";/v1/completions", "%2f..%2fv1/completions"),
    _after("/infer", "/../infer", "%2finfer", "/ready", "/v2/models/m/infer", ".json", "/**", "/*", "%2a", "/{x}"),
    _before(
        "/v1/completions/..", "/v1/models/..", "/v1/models/x/../..", "/v2/models/m/../../..", "/v1/models/%2e%2e/%2e%2e"
    ),
    _before(
        "/v1/responses/..", "/.", "/", "//", "/;", "/%2e", "/v2/models", "/v1/models", "/%2f", "\\", "/\\", "/x/..", "x"
    ),
    _before(
        "/v1/models/x?y=", "/v1/models/x#", "/v2/models/m/infer?", "/v1/models/x%3f", "/v1/models/x%23", "/v1/models/"
    ),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "post", "Post", "PROPFIND", "X", "*")
HEADERS = (
    "X-Original-URL: {path}",
    "X-Rewrite-URL: {path}",
    "X_Original_Url: {path}",
    "X-HTTP-Method-Override: POST",
    "X-Forwarded-Prefix: {path}",
    "X-Forwarded-Path: {path}",
    "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: h2c",
    "Connection: close, X-Gpuwright-Service",
    "Authorization: Bearer x",
    "Expect: 100-continue",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Host: {path}",
)
VERSIONS = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "")


def spell_path(random: Random, path: str) -> str:
    """Returns the path with up to three twists."""
    for twist in random.choices(TWISTS, k=random.choice((0, 1, 1, 1, 2, 2, 3))):
        path = twist(random, path)
    return path


def spell_requests(service: str, control: str, count: int, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Yields requests for the control path of a service: the method, the whole path, and the bytes for HTTP/1."""
    random = Random(f"{seed} {control}")
    for _ in range(count):
        inner = spell_path(random, control)
        whole = f"/{service}{inner}" if random.random() < 0.95 else spell_path(random, f"/{service}{control}")
        target = f"{random.choice(('http', 'https'))}://x{whole}" if random.random() < 0.05 else whole
        method, version = random.choice(METHODS), random.choice(VERSIONS)
        header = random.choice(HEADERS).format(path=control) if random.random() < 0.3 else "X-Plain: x"
        line = f"{method} {target} {version}".rstrip()
        yield method, whole, f"{line}\r\nHost: x\r\nConnection: close\r\n{header}\r\n\r\n".encode()
