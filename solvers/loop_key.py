"""Names a compiled loop by everything it is made of, so that a cached loop is never older than its source.

The key covers its bytecode and constants, the values of the globals it reads, the same for every loop it calls, its
signature, the compiler's version and the processor. Comments, line numbers, and the times and paths of files do not
matter: a fresh clone finds the loops that another clone has compiled.
"""

from __future__ import annotations

import hashlib
import sys
from dis import get_instructions
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba.core import config as configured
from numba.core.dispatcher import Dispatcher

FORMAT = 1  # raised when loops are compiled or written in another way
OURS = ("app", "benchmarks", "simulation", "solvers")
KEY = "gpuwright_key"  # the attribute of a loop that holds its key


def loop_key(function: Any, signature: Any, options: dict[str, Any]) -> str:
    """Returns a text that is the same in every process that would compile the same machine code."""
    parts = [_surroundings(), repr(sorted(options.items())), _function(function), _signature(signature)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def loops_called_by(loop: Any) -> list[Any]:
    """Returns the loops among the globals that this loop reads."""
    read = {step.argval for step in get_instructions(loop.py_func) if step.opname == "LOAD_GLOBAL"}
    return [value for name, value in loop.py_func.__globals__.items() if name in read and isinstance(value, Dispatcher)]


@cache
def _surroundings() -> str:
    name = vars(configured)["CPU_NAME"] or llvmlite.binding.get_host_cpu_name()
    features = vars(configured)["CPU_FEATURES"] or llvmlite.binding.get_host_cpu_features().flatten()
    versions = (FORMAT, sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, np.__version__)
    return repr((versions, llvmlite.binding.get_process_triple(), name, features))


def _function(function: FunctionType) -> str:
    cells = [_value(cell.cell_contents) for cell in function.__closure__ or ()]
    defaults = _value(function.__defaults__ or ())
    place = f"{function.__module__}.{function.__qualname__}"
    code = _code(function.__code__, function.__doc__)
    return "\n".join((place, defaults, *cells, code, *_globals(function.__code__, function.__globals__)))


def _code(code: CodeType, docstring: str | None = None) -> str:
    constants = [_constant(None if constant == docstring else constant) for constant in code.co_consts]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return repr((shape, names, code.co_code.hex(), code.co_exceptiontable.hex(), constants))


def _constant(constant: Any) -> str:
    return _code(constant) if isinstance(constant, CodeType) else f"{type(constant).__name__} {constant!r}"


def _globals(code: CodeType, known: dict[str, Any]) -> list[str]:
    inner = [
        line for constant in code.co_consts if isinstance(constant, CodeType) for line in _globals(constant, known)
    ]
    return [f"{name} = {_value(known[name])}" for name in code.co_names if name in known] + inner


def _value(value: Any) -> str:
    """Returns a description that differs whenever the compiler would treat the value differently."""
    if isinstance(value, Dispatcher):
        return f"loop {getattr(value, KEY, value.py_func.__qualname__)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        return f"{type(value).__qualname__}({', '.join(_value(each) for each in value)})"
    if isinstance(value, FunctionType):
        return _function(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', '')}"
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] in OURS:
            raise TypeError(f"a compiled loop imports names from {value.__name__}, not the module itself")
        return f"module {value.__name__}"
    if isinstance(value, BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{type(value).__name__} {value!r}"


def _signature(signature: Any) -> str:
    """Describes a signature. The compiler's own text is not enough: it drops the field names of a named tuple."""
    if isinstance(signature, tuple | list):
        return f"({', '.join(_signature(each) for each in signature)})"
    inner = (*getattr(signature, "types", ()), *getattr(signature, "args", ()))
    fields = getattr(signature, "fields", "")
    return f"{signature} {fields} {_signature(inner)}" if inner or fields else str(signature)
