"""Says how an extra is added to this very install: from the file, the folder or the index that it came from."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit


def say_install(extras: str) -> str:
    """Returns the command."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow, hence here

    try:
        found = distribution("gpuwright")
        return spell_install(extras, found.version, found.read_text("direct_url.json"))
    except PackageNotFoundError:  # it runs from a checkout as it is
        return f"pip install '.[{extras}]' in a checkout of gpuwright"


def spell_install(extras: str, version: str, direct_url: str | None) -> str:
    """Returns the command, by what the installer noted of where it found the package (PEP 610)."""
    origin = json.loads(direct_url) if direct_url else {}
    parts = urlsplit(origin.get("url", ""))
    if parts.scheme != "file":
        return f"pip install {shlex.quote(f'gpuwright[{extras}]=={version}')}"
    path = Path(unquote(parts.path))
    if path.exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{path}[{extras}]')}"
    kind = "the file of its release" if path.suffix in (".whl", ".gz") else "a checkout of gpuwright"
    return f"pip install {shlex.quote(f'./{path.name}[{extras}]')} beside {kind}"
