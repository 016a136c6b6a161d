"""What a job has done, on disk: written whole or not at all, read back exactly."""

from __future__ import annotations

import json
from pathlib import Path

from agents.host import durable


class Damaged(Exception):
    """A checkpoint that is there cannot be read. To begin at 0 would throw its steps away: a person must decide."""


def load(path: Path) -> int:
    """Steps done so far; 0 when there is no checkpoint."""
    try:
        said = json.loads(path.read_bytes())
        steps = said["steps"]
        if type(steps) is not int or steps < 0:
            raise ValueError(f"steps is {steps!r}")
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"checkpoint {path} cannot be read: {error}") from error
    return steps


def save(path: Path, steps: int) -> None:
    """Killed anywhere, the old one or the new one is there."""
    durable.write(path, json.dumps({"steps": steps}).encode())
