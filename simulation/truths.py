"""Which truth a simulated fleet follows: the planner's own figures, or a physics that only measuring can find out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.limits import ProfilesName, TruthName

if TYPE_CHECKING:
    from app.manifests.offline import DeclaredFiles
    from simulation.truth.physics import Physics


@dataclass(frozen=True, slots=True)
class TruthOrder:
    """The truth of a fleet, and where the planner's profiles come from."""

    name: TruthName = "planner"
    seed: int = 0
    data: Path | None = None  # of measured tables
    profiles: ProfilesName = "declared"

    @property
    def words(self) -> tuple[str, ...]:
        """The order as words of a command line."""
        data = ("--data", str(self.data)) if self.data else ()
        return ("--truth", self.name, "--truth-seed", str(self.seed), *data)

    def physics(self) -> Physics | None:
        """Returns a new physics; None where profiles are the truth."""
        if self.name == "planner":
            return None
        from simulation.truth.physics import Physics

        if self.name == "made":
            return Physics(self.seed)
        from simulation.truth.measured import MeasuredShapes

        assert self.data is not None
        shapes = MeasuredShapes.read(self.data, self.seed)
        return Physics(self.seed, shapes.reshape, shapes.power_exponent)

    def make_believed(self, world: DeclaredFiles, physics: Physics | None) -> DeclaredFiles:
        """Returns the world as its planner believes it to be."""
        if physics is None or self.profiles == "declared":
            return world
        from simulation.profiling import COMPLETE, SIXTEEN, profile_world

        return profile_world(world, physics, SIXTEEN if self.profiles == "measured" else COMPLETE)


PLANNER = TruthOrder()
