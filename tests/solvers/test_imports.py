"""The solvers' libraries work in one process in any order of import."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations

import pytest

LIBRARIES = ("ortools", "highspy", "cvxpy", "pulp")
SOLVE = {
    "ortools": """
from ortools.sat.python import cp_model
m = cp_model.CpModel(); x = m.new_int_var(0, 9, 'x'); m.add(2 * x >= 5); m.minimize(x)
s = cp_model.CpSolver(); s.parameters.num_workers = 1; s.solve(m); assert s.value(x) == 3
from ortools.linear_solver import pywraplp
p = pywraplp.Solver.CreateSolver('SCIP'); y = p.IntVar(0, 9, 'y'); p.Add(2 * y >= 5); p.Minimize(y); p.Solve()
assert y.solution_value() == 3
""",
    "highspy": """
import highspy
h = highspy.Highs(); h.setOptionValue('output_flag', False)
z = h.addVariable(lb=0, ub=9); h.addConstr(2 * z >= 5); h.minimize(z); assert abs(h.val(z) - 2.5) < 1e-9
""",
    "cvxpy": """
import cvxpy
w = cvxpy.Variable(); nearest = cvxpy.Problem(cvxpy.Minimize(cvxpy.square(w - 1)), [w >= 2])
nearest.solve(solver='CLARABEL'); assert abs(w.value - 2) < 1e-3
cvxpy.Problem(cvxpy.Minimize(w), [w >= 3]).solve(solver=cvxpy.HIGHS); assert abs(w.value - 3) < 1e-6
""",
    "pulp": """
import warnings; warnings.simplefilter('ignore')
import pulp
for solver in (pulp.HiGHS(msg=False), pulp.PULP_CBC_CMD(msg=False)):
    q = pulp.LpProblem('q', pulp.LpMinimize); v = pulp.LpVariable('v', 0, 9, pulp.LpInteger)
    q += 2 * v >= 5; q += v; q.solve(solver); assert round(v.varValue) == 3
""",
}
ORDERS = list(permutations(LIBRARIES))
CHOSEN = ORDERS if os.environ.get("GPUWRIGHT_SOAK") else [ORDERS[0], ORDERS[-1]]  # each pair, both ways


@pytest.mark.slow
@pytest.mark.parametrize("order", CHOSEN, ids="-".join)
def test_solvers_share_a_process_in_any_order_of_import(order: tuple[str, ...]) -> None:
    program = "".join(SOLVE[library] for library in (*order, *order[:1]))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
