"""What a fuzzer says: nearly right documents, and everything that was ever seen to break a parser."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Sequence
from typing import Any

import yaml

from tests.support.world import gpu_type, job, manifest, model, node, profile, service

BIG_NUMBER = "__big_number__"  # written as 5,000 digits; json.dumps would not
SCALARS: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.1, -0.0, 1e-320, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), BIG_NUMBER, "", " ", "a", "0", "NaN", "null", "true", "1e3", "x" * 300, "x" * 70_000,
    "é", "\u0000", "\ud800", "\u202egpu", "\ufeff", "\U0001d558pu", "a\r\nSet-Cookie: b=c", "\x1b[31mred",
    "'; DROP TABLE object; --", "../../etc/passwd", "{{7*7}}", "${jndi:ldap://x}", "%s%n", "2026-13-45T99:99:99Z",
    "2026-11-20T10:30:00Z", "<script>", "-", "a-", "A", "a.b", "a/b", "a b", "search", "shop", "resnet50", [], {},
    [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, ["x"] * 200, {str(n): n for n in range(50)},
]  # fmt: skip
SEGMENTS = [
    "%00", "..", "%2e%2e", "%2F", "%0d%0aX:y", "a" * 63, "a" * 64, "a" * 3000, "%ff", "%E2%80%AE", "-a", "A", "a.b",
    "~", "'", "%27%20OR%201=1--", "*", "%25", "%", "%zz", "", ".", "null", "0", "${x}", "a;b", "a%20b",
    "%F0%9F%92%A9",
]  # fmt: skip
VALUES = [
    "", "0", "1", "-1", "2", "100", "500", "501", "1e3", "1e99", "NaN", "true", "false", "TRUE", "yes", "null",
    "9" * 30, "9" * 400, "%00", "%0a", "%ff", "a", "a=b", "a==b", "a!=b", "!a", "a,b,,", "a=b,c!=d,e,!f", "=", "!",
    ",", "a=b=c", "spec.model=resnet50", "metadata.name!=x", "spec.slo.latencyMs=80", "x" * 1500, "%E2%80%AE", "shop",
    "lab", "services", "services,jobs", "eyJhIjoxfQ==", "W10", "bnVsbA", "WyIiLCIiLDFd", "%27", "%5B%5D",
]  # fmt: skip
QUERIES = [
    "limit", "cursor", "tenant", "labelSelector", "fieldSelector", "dryRun", "prune", "set", "allowEmpty", "kinds",
    "after", "resourceVersion", "waitSeconds", "minutes", "x",
]  # fmt: skip
MEDIA = [
    "application/json", "application/yaml", "application/merge-patch+json", "application/vnd.gpuwright.files+json",
    "text/yaml", "text/plain", "application/json; charset=utf-16", "multipart/form-data; boundary=x", "", "a/b/c",
    "*/*", "application/x-www-form-urlencoded",
]  # fmt: skip
YAML_TRICKS = [
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b, *b]\n", "<<: {a: 1}\n", "!!python/object/apply:os.system [id]\n",
    "a: !!binary aGk=\n", "a: &a\n  b: *a\n", "- - - - - -\n", "{" * 500, "[" * 70, "? {a: b}\n: c\n",
    "a: |\n  x\n\ty\n", "%YAML 9.9\n---\na", "---\n...\n---\n", "a: *nowhere\n", "a: 1\na: 2\n", "'", '"\\xz"',
    "a: 0x1F\nb: 1_000\nc: 1:30\n", "\x00", "\ufeffa: 1", "- !<tag:x> y\n", "key: [unclosed", "&a &b c",
    "---\n--- \n- ---\n", "a:\n - b\n  - c\n",
]  # fmt: skip
NAMES = [f"n{number}" for number in range(12)] + ["search", "resnet50", "v100-16gb", "node-1", "shop", "default"]
PLURALS = ["gputypes", "nodes", "models", "profiles", "services", "jobs", "tenants", "policies"]


class Hostile:
    """Everything is drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def name(self) -> str:
        rng = self.rng
        if rng.random() < 0.85:
            return rng.choice(NAMES)
        return rng.choice(SEGMENTS)

    def query(self, known: Sequence[str] = ()) -> str:
        """Mostly parameters that the route knows: one that it does not know is refused before all else."""
        rng = self.rng
        if rng.random() < 0.5:
            return ""
        names = known if known and rng.random() < 0.9 else QUERIES
        parts = [f"{rng.choice(names)}={rng.choice(VALUES)}" for _ in range(rng.choice([1, 1, 1, 2, 3, 8]))]
        return "?" + "&".join(parts)

    def document(self) -> Any:
        """A manifest: right, or wrong in a few places."""
        rng = self.rng
        return self.perhaps_spoiled(
            self.right(rng.choice(PLURALS), rng.choice(["shop", "lab", "n1"]), rng.choice(NAMES))
        )

    def fitting(self, path: str) -> Any:
        """What could be put under this path, perhaps spoiled."""
        plural, *names = path.partition("?")[0].removeprefix("/api/v1/").split("/")
        if plural not in PLURALS or not names:
            return self.document()
        return self.perhaps_spoiled(self.right(plural, names[0] if len(names) > 1 else "", names[-1]))

    def right(self, plural: str, tenant: str, name: str) -> Any:
        rng = self.rng
        match plural:
            case "gputypes":
                return gpu_type(name, pricePerHour=rng.randint(1, 9))
            case "nodes":
                return node(name, gpus=rng.randint(1, 8))
            case "models":
                return model(name, **rng.choice([{}, {"tenants": ["shop"]}]))
            case "profiles":
                return profile(rng.choice(NAMES)) | {"metadata": {"name": name}}
            case "services":
                return service(name, tenant, rng.choice(NAMES), ratePerSecond=rng.randint(1, 999))
            case "jobs":
                return job(name, tenant, priority=rng.randint(1, 999))
            case "tenants":
                return manifest("Tenant", name, {"limit": {"gpus": rng.randint(1, 99)}})
        return manifest("Policy", name, {"utilization": rng.uniform(0.05, 0.95)})

    def perhaps_spoiled(self, made: Any) -> Any:
        for _ in range(self.rng.choice([0, 0, 1, 1, 2, 5])):
            made = self.spoiled(made)
        return made

    def spoiled(self, value: Any) -> Any:
        """The value with one thing in it replaced, left out, added or doubled."""
        rng = self.rng
        value = copy.deepcopy(value)
        here = value
        while isinstance(here, dict | list) and here:
            step = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
            inner = here[step]
            if isinstance(inner, dict | list) and inner and rng.random() < 0.75:
                here = inner
                continue
            match rng.randrange(4):
                case 0 if isinstance(here, dict):
                    here[rng.choice(["", "x", "name", "spec", "$ref", "__proto__", "é" * 20, "1"])] = self.scalar()
                case 1:
                    del here[step]
                case _:
                    here[step] = self.scalar()
            break
        return value

    def scalar(self) -> Any:
        return copy.deepcopy(self.rng.choice(SCALARS))

    def json(self) -> bytes:
        rng = self.rng
        match rng.randrange(12):
            case 0:
                depth = rng.choice([10, 63, 64, 65, 66, 1000, 20_000])
                return b"[" * depth + b"]" * depth
            case 1:
                depth = rng.choice([10, 64, 65, 1000, 20_000])
                return b'{"a":' * depth + b"1" + b"}" * depth
            case 2:
                return rng.randbytes(rng.choice([0, 1, 10, 1000]))
            case 3:
                return written(self.scalar())
            case 4:
                return written([self.document() for _ in range(rng.randint(0, 8))])
            case 5:
                return self.damaged(written(self.document()))
            case 6:
                return b'{"a":1,"a":2}'
            case 7:
                return json.dumps(self.document()).encode("utf-16")
            case _:
                return written(self.document())

    def yaml(self) -> bytes:
        rng = self.rng
        match rng.randrange(5):
            case 0:
                return rng.choice(YAML_TRICKS).encode("utf-8", "surrogatepass")
            case 1:
                return rng.randbytes(rng.choice([1, 50, 2000]))
            case 2:
                return self.damaged(dumped([self.document() for _ in range(3)]))
            case _:
                return dumped([self.document() for _ in range(rng.randint(1, 4))])

    def files(self) -> bytes:
        files: Any = [
            {"name": f"{number}.yaml", "text": self.yaml().decode("utf-8", "replace")}
            for number in range(self.rng.randint(0, 3))
        ]
        body: Any = {"files": files}
        return written(self.spoiled(body) if self.rng.random() < 0.3 else body)

    def damaged(self, data: bytes) -> bytes:
        """A few bytes changed, cut out or doubled."""
        rng = self.rng
        content = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            if not content:
                break
            place = rng.randrange(len(content))
            match rng.randrange(3):
                case 0:
                    content[place] = rng.randrange(256)
                case 1:
                    del content[place : place + rng.randint(1, 30)]
                case _:
                    content[place:place] = rng.choice([b'"', b"{", b"\xff", b"\n", b"\x00", b"[[[[", b"\\u", b"e99999"])
        return bytes(content)

    def text(self) -> str:
        """For a header: visible characters, now and then others."""
        rng = self.rng
        if rng.random() < 0.7:
            return "".join(rng.choices(string.ascii_letters + string.digits + "-_=", k=rng.randint(1, 30)))
        return rng.choice(
            ['"1"', '"0"', "*", '"', 'W/"1"', "1", "-1", "é", "x" * 300, '"' + "9" * 30 + '"', "\t", "a b"]
        )


def written(value: Any) -> bytes:
    return json.dumps(value).replace(f'"{BIG_NUMBER}"', "9" * 5000).encode()


def dumped(values: list[Any]) -> bytes:
    try:
        text: str = yaml.safe_dump_all(values)
        return text.encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError):
        return written(values)
