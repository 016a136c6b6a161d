"""Reads a YAML file that decides what this node executes: strictly, and only if no other user could have written it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agents.host.trusted_path import PathMissing, PathRefused, find_real

MOST_BYTES = 64 * 1024


class FileRefused(Exception):
    """A file that cannot be used; each fault names file, field and what is allowed."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


def read_text(path: Path, is_shipped: bool = False) -> str:
    """Returns the file's text. It must lie in its folder, and nobody but root and this user may be able to replace it.

    What is shipped belongs to the user who installed the code, and is trusted like the code.
    """
    real = path.resolve(strict=True) if is_shipped else Path(_find_real(path))
    if real.parent != path.parent.resolve():
        raise FileRefused([f"{path}: a link to {real}, which is outside the folder; copy it here"])
    # Nobody else can replace what this path names. Its kind is asked of what is opened: a pipe must not be waited for.
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise FileRefused([f"{path}: not a regular file"])
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise FileRefused([f"{path}: more than {MOST_BYTES} bytes"])
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FileRefused([f"{path}: not UTF-8 at byte {error.start}"]) from error


def _find_real(path: Path) -> str:
    try:
        return find_real(str(path.absolute()))
    except PathMissing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except PathRefused as error:
        raise FileRefused([str(error)]) from error


def load_yaml(text: str, where: str) -> Any:
    """Loads YAML without aliases and without duplicate keys."""
    import yaml  # loaded only when such a file is read

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Strict(base):  # type: ignore[misc]
        """Refuses duplicate keys, of which plain YAML silently takes the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = {key for key in keys if isinstance(key, str) and keys.count(key) > 1}
            if twice:
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"duplicate keys below line {line}: {', '.join(sorted(twice))}")
            return super().construct_mapping(node, deep)

    try:
        if any(isinstance(token, yaml.AliasEvent) for token in yaml.parse(text, Loader=base)):
            raise yaml.YAMLError("aliases are not allowed")
        return yaml.load(text, Loader=Strict)  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FileRefused([f"{where}: {' '.join(str(error).split())}"]) from error
