"""Plans are found in a process of their own, with a deadline: its death is an outcome, never the planner's."""

from app.control.solve.inline import Inline
from app.control.solve.orders import followed, solved
from app.control.solve.solver import Solver
from app.control.solve.versions import versions

__all__ = ["Inline", "Solver", "followed", "solved", "versions"]
