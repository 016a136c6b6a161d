"""Divides services whose instances must not fail together into parts that the planner places like services.

Every part has its own nodes, so that whatever the planner does with the parts, the services keep their rules.
"""

from solvers.planning.parts.choose import divide_as, divide_services, is_served
from solvers.planning.parts.division import Division
from solvers.planning.parts.join import join_parts

__all__ = ["Division", "divide_as", "divide_services", "is_served", "join_parts"]
