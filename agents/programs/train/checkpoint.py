"""A job's progress on disk: written atomically, read back exactly."""

from __future__ import annotations

import json
from pathlib import Path

from agents.host import durable


class Damaged(Exception):
    """An existing checkpoint cannot be read. Starting at 0 would lose its steps, so a person must decide."""


def load(path: Path) -> int:
    """Returns the steps done so far; 0 when there is no checkpoint."""
    try:
        document = json.loads(path.read_bytes())
        steps = document["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps is {steps!r}")
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"cannot read checkpoint {path}: {error}") from error
    return steps


def save(path: Path, steps: int) -> None:
    """Replaces the checkpoint; a kill at any moment leaves the old one or the new one."""
    durable.write(path, json.dumps({"steps": steps}).encode())
