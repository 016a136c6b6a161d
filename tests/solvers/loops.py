"""A module of two loops, imported repeatedly as if by new processes."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType

from solvers import compiled

LOOPS = """
from solvers.compiled import njit

FACTOR = 2


@njit("int64(int64)")
def twice(number):
    return FACTOR * number


@njit("int64(int64)")
def four_times(number):
    return twice(twice(number))
"""


def read(file: Path) -> ModuleType:
    """Imports the module and loads or compiles all its loops."""
    module = imported(file)
    compiled.read_all()
    return module


def imported(file: Path) -> ModuleType:
    """Imports the module as a new process would."""
    spec = util.spec_from_file_location("loops", file)
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    sys.modules["loops"] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    del sys.modules["loops"]
    return module


def changed(file: Path, before: str, after: str) -> ModuleType:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    return read(file)


def entry(cache: Path, name: str) -> Path:
    (path,) = cache.glob(f"loops.{name}-*")
    return path
