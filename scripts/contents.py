"""Lists what an install or an image has, as CycloneDX 1.6: from the locked requirements, or from the image itself."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

LOCKED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
# Run inside of an image, which has Python and dpkg.
LOOK = """
import importlib.metadata as m, json, subprocess
print(json.dumps({
    "pypi": sorted({(d.metadata["Name"].lower().replace("_", "-"), d.version) for d in m.distributions()}),
    "deb": [line.split() for line in subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\\n"],
        capture_output=True, text=True, check=True).stdout.splitlines()],
}))
"""


class Component(NamedTuple):
    """A package, as it is known where it comes from."""

    name: str
    version: str
    purl: str


def describe_lock(lock: str, version: str, text: str, seconds: int) -> dict[str, Any]:
    """Returns the list of what an install by one file of requirements/ has."""
    packages = (Component(name, found, f"pkg:pypi/{name}@{found}") for name, found in LOCKED.findall(text))
    return _describe(f"gpuwright-{lock}", version, f"pkg:pypi/gpuwright@{version}", packages, seconds)


def describe_image(name: str, version: str, seconds: int) -> dict[str, Any]:
    """Returns the list of what an image has: Debian's packages and Python's, without our own."""
    words = ["docker", "run", "--rm", "--network=none", "--read-only", "--entrypoint=python3", f"{name}:{version}"]
    found = json.loads(subprocess.run([*words, "-c", LOOK], capture_output=True, check=True).stdout)
    packages = [Component(n, v, f"pkg:pypi/{n}@{v}") for n, v in found["pypi"] if n != "gpuwright"]
    packages += [
        Component(n, v, f"pkg:deb/debian/{quote(n, safe='')}@{quote(v, safe='')}?arch={arch}")
        for n, v, arch in found["deb"]
    ]
    return _describe(name, version, f"pkg:oci/{name}@{version}", packages, seconds)


def _describe(name: str, version: str, purl: str, packages: Iterable[Component], seconds: int) -> dict[str, Any]:
    components = sorted(set(packages), key=lambda package: package.purl)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{name}@{version}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z"),
            "component": {"type": "application", "bom-ref": name, "name": name, "version": version, "purl": purl},
        },
        "components": [
            {"type": "library", "bom-ref": one.purl, "name": one.name, "version": one.version, "purl": one.purl}
            for one in components
        ],
        "dependencies": [{"ref": name, "dependsOn": [one.purl for one in components]}],
    }
