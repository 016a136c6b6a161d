"""The one door to the compiler: loops compiled with a signature, when their module is first imported, kept on disk.

The compiler's own cache asks only whether the loop's file changed, and would go on with what another file inlined into
it. Here each file's loops are kept under a digest of that file and of all compiled files it imports. A loop that is
kept is read when it is first called: most are called by other loops alone, which hold all they need.
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
from threading import RLock
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

LOCK = RLock()  # compiling one loop reads others
WAITING: list[tuple[Any, Any]] = []  # loops that are not yet read, and their signatures
HERE = Path(__file__).parent
IMPORTS = re.compile(r"^from (solvers[.\w]*) import", re.MULTILINE)


def njit(signature: Any, makes_arrays: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile for this signature alone; nothing is compiled later, inside a decision.

    A loop that makes no arrays may say so: then nobody counts who holds those that it was given. Each of the dozens in
    a named tuple is counted up and down at every call, which takes ten times as long as most small loops.
    """

    def compiled(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        folder = _folder() / digest(Path(code.co_filename))
        vars(numba.config)["CACHE_DIR"] = str(folder)
        options: dict[str, Any] = {"cache": True, "_nrt": makes_arrays}
        loop = numba.njit(**options)(function)
        name = f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}."
        if any(kept.startswith(name) for kept in _kept(folder)):
            _read_when_called(loop, signature)
        else:
            _get(loop, signature)
        result: Callable[P, R] = loop
        return result

    return compiled


def read_all() -> None:
    """Read what has been imported and not called, so that no decision in this process waits for it."""
    with LOCK:
        for loop, signature in WAITING:
            _get(loop, signature)
        WAITING.clear()


def _read_when_called(loop: Any, signature: Any) -> None:
    """Until it is called, or another loop that calls it is compiled, a kept loop costs nothing."""

    def called(*_: Any, **__: Any) -> Any:
        _get(loop, signature)
        return loop  # it will be called again, with what it was called with

    def compiled_in(args: Any, named: Any) -> Any:
        _get(loop, signature)
        return loop.get_call_template(args, named)

    vars(loop).update(_compile_for_args=called, get_call_template=compiled_in)
    WAITING.append((loop, signature))


def _get(loop: Any, signature: Any) -> None:
    """Read the loop or compile it: with this signature, and no other from then on."""
    with LOCK:
        if not loop.signatures:
            loop.compile(signature)
            loop.disable_compile()
            for late in ("_compile_for_args", "get_call_template"):
                vars(loop).pop(late, None)


@cache
def _kept(folder: Path) -> list[str]:
    return [file.name for file in (folder.rglob("*.nbi") if folder.is_dir() else ())]


def is_cold() -> bool:
    """Whether the planner's loops are still to be compiled, which takes a minute or two."""
    return not (_folder() / digest(HERE / "planning" / "improve.py")).exists()


@cache
def digest(file: Path) -> str:
    """Of a file, and of every compiled file that it imports."""
    texts: dict[Path, bytes] = {}
    _gather(file, texts)
    # A file that was touched is compiled again by the compiler's own rule: not later, in the midst of a decision.
    whole = hashlib.sha256(f"{numba.__version__} {file.stat().st_mtime_ns}".encode())
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
