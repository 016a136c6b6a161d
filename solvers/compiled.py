"""The one door to the compiler: loops compiled with a signature, when their module is first imported, kept on disk.

The compiler's own cache asks only whether the loop's file changed, and would go on with what another file inlined into
it. Here each file's loops are kept under a digest of that file and of all compiled files it imports.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar


@contextmanager
def _left_out(*names: str) -> Iterator[None]:
    """These modules cannot be imported meanwhile, unless they are there already."""
    left = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(left))  # type: ignore[arg-type]
    yield
    for name in left:
        del sys.modules[name]


# A third of the compiler's start is for products of matrices and calls of C, which no loop here has.
with _left_out("cffi", "scipy.linalg.cython_blas"):
    import numba
    import numba.np.arraymath

P = ParamSpec("P")
R = TypeVar("R")

HERE = Path(__file__).parent
IMPORTS = re.compile(r"^from (solvers[.\w]*) import", re.MULTILINE)


def njit(signature: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile for this signature alone; nothing is compiled later, inside a decision."""

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        vars(numba.config)["CACHE_DIR"] = str(_folder() / digest(Path(function.__code__.co_filename)))
        result: Callable[P, R] = numba.njit(signature, cache=True)(function)
        return result

    return compiled


def is_cold() -> bool:
    """Whether the planner's loops are still to be compiled, which takes a minute or two."""
    return not (_folder() / digest(HERE / "planning" / "improve.py")).exists()


@cache
def digest(file: Path) -> str:
    """Of a file, and of every compiled file that it imports."""
    texts: dict[Path, bytes] = {}
    _gather(file, texts)
    whole = hashlib.sha256(numba.__version__.encode())
    for path in sorted(texts):
        whole.update(texts[path])
    return whole.hexdigest()[:16]


def _gather(file: Path, into: dict[Path, bytes]) -> None:
    text = file.read_bytes()
    if file in into or (b"numba" not in text and b"njit" not in text):
        return
    into[file] = text
    for module in IMPORTS.findall(text.decode()):
        parts = module.split(".")[1:]
        path = HERE.joinpath(*parts).with_suffix(".py") if parts else HERE / "__init__.py"
        if path.is_file() and path.resolve() != Path(__file__).resolve():
            _gather(path, into)


@cache
def _folder() -> Path:
    """Beside the code where that can be written, else the user's cache."""
    beside = HERE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        if os.access(beside, os.W_OK):
            return beside / "compiled"
    except OSError:
        pass
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gpuwright" / "compiled"
