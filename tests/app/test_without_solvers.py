"""The extra [server] brings no library of the solvers, and the server is complete without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "numba", "scipy", "ortools", "highspy", "cvxpy", "pulp", "sklearn"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.mark.slow
def test_the_server_is_read_in_without_the_libraries_of_the_solvers() -> None:
    program = BLOCKED + "import app.main, cli.verbs.serve; print('read')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "read\n", done.stderr
