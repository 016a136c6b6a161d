"""Plans are found in a process of their own, with a deadline: its death is an outcome, never the planner's."""

from app.control.solving.inline import Inline
from app.control.solving.orders import followed, solved
from app.control.solving.solver import Solver
from app.control.solving.versions import versions

__all__ = ["Inline", "Solver", "followed", "solved", "versions"]
