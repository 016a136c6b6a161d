"""Keeps the scale of models in a file, so that a physics is the same after a restart, whatever profiles say by then."""

from __future__ import annotations

import json
from pathlib import Path

from simulation.truth.fitting import KnownFigures
from simulation.truth.physics import Physics


def remember(physics: Physics, path: Path) -> None:
    """Writes what the physics knows."""
    rows = [
        {"key": list(key), "busyW": known.busy_w, "points": {str(b): list(curve) for b, curve in known.points.items()}}
        for key, known in physics.known.items()
    ]
    path.write_text(json.dumps(rows))


def recall(physics: Physics, path: Path) -> None:
    """Tells the physics what an earlier one knew; nothing where there was none."""
    for row in json.loads(path.read_text()) if path.exists() else []:
        points = {int(batch): [(sm, ms) for sm, ms in curve] for batch, curve in row["points"].items()}
        physics.add_model(tuple(row["key"]), KnownFigures(points, row["busyW"]))
