"""Keeps the scale of models in a file, so that a physics is the same after a restart, whatever profiles say by then."""

from __future__ import annotations

import json
import os
from pathlib import Path

from simulation.truth.fitting import KnownFigures
from simulation.truth.physics import Physics


def remember(physics: Physics, path: Path) -> None:
    """Writes what the physics knows. Who reads meanwhile, or after a kill, finds the whole file, old or new."""
    rows = [
        {"key": list(key), "busyW": known.busy_w, "points": {str(b): list(curve) for b, curve in known.points.items()}}
        for key, known in physics.known.items()
    ]
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(json.dumps(rows))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def recall(physics: Physics, path: Path) -> None:
    """Tells the physics what an earlier one knew; nothing where there was none."""
    for row in json.loads(path.read_text()) if path.exists() else []:
        points = {int(batch): [(sm, ms) for sm, ms in curve] for batch, curve in row["points"].items()}
        physics.add_model(tuple(row["key"]), KnownFigures(points, row["busyW"]))
