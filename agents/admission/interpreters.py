"""The words of a command line that decide what runs: programs that start others, interpreters and what they run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# They run whatever their arguments say, so no pattern of arguments would limit them.
SHELLS = frozenset(
    {
        "accelerate", "apptainer", "ash", "at", "awk", "bash", "batch", "bentoml", "busybox", "bwrap", "cargo",
        "celery", "chroot", "chrt", "cmake", "conda", "containerd", "crun", "csh", "ctr", "dash", "dask",
        "dbus-run-session", "deepspeed", "doas", "docker", "ed", "emacs", "env", "ex", "expect", "fakeroot",
        "fastapi", "find", "firejail", "fish", "flask", "flock", "gawk", "gdb", "gosu", "horovodrun", "ionice",
        "jupyter", "ksh", "kubectl", "ltrace", "make", "mawk", "mlflow", "mpiexec", "mpirun", "nawk", "nerdctl",
        "nice", "ninja", "nohup", "npm", "npx", "nsenter", "numactl", "orterun", "parallel", "pdm", "perf", "pipx",
        "pnpm", "podman", "poetry", "prlimit", "proot", "prterun", "ray", "rsync", "runc", "runuser", "screen",
        "script", "sed", "setarch", "setpriv", "setsid", "sh", "singularity", "socat", "sqlite3", "srun", "ssh",
        "start-stop-daemon", "stdbuf", "strace", "streamlit", "su", "sudo", "systemd-run", "tar", "taskset", "tcsh",
        "time", "timeout", "tini", "tmux", "unshare", "uv", "uvx", "valgrind", "vi", "vim", "watch", "xargs", "yarn",
        "zsh",
    }
)  # fmt: skip
_LOADER = re.compile(r"ld(64)?(-.*)?\.so.*")  # the dynamic loader, which starts the program that it is given
_SUFFIX = r"[0-9.]*[dtmu]*(-(dbg|debug|nogil|mri|cgi|[0-9.]+|[a-z0-9_]+-linux-gnu))?"
# They run the first of their arguments, so it must be fixed.
_INTERPRETERS = re.compile(
    r"\{python\}|(python|pypy|ipython|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|java|R|Rscript|julia|tclsh|wish|guile"
    rf"|racket|octave|erl|escript|elixir|scala|groovy|kotlin|ts-node|tsx){_SUFFIX}"
)
# They do, too, and so do these modules of Python.
_SCRIPT_LAUNCHERS = frozenset(
    {
        "accelerate.commands.launch", "bdb", "cProfile", "coverage", "debugpy", "deepspeed.launcher.launch",
        "deepspeed.launcher.runner", "horovod.runner.launch", "kernprof", "line_profiler", "memray", "pdb", "profile",
        "ray.scripts.scripts", "runpy", "scalene", "torch.distributed.launch", "torch.distributed.run", "torchrun",
        "trace", "viztracer",
    }
)  # fmt: skip
# Their options may also stand behind what they run.
_APP_LAUNCHERS = frozenset({"daphne", "granian", "gunicorn", "gunicorn.app.wsgiapp", "hypercorn", "uvicorn"})
_LAUNCHERS = _SCRIPT_LAUNCHERS | _APP_LAUNCHERS
_LAUNCHING_PROGRAMS = _APP_LAUNCHERS | {"torchrun"}
_OPTIONS_EVERYWHERE = _APP_LAUNCHERS | {"R", "erl"}
# Options of these whose value is a place to write to, which is not searched for code.
_WRITTEN = frozenset({"--access-logfile", "--bind", "--error-logfile", "--pid", "--uds", "--worker-tmp-dir", "-b"})
# An option whose next argument is code: that argument must be fixed.
_CODE = re.compile(r"-[a-zA-Z]*[cem]|--(command|eval|exec|module|print)")
# The word after one of these is no value of an option. Of any option that is not here, it may be one.
_ALONE = re.compile(
    r"[^-].*|.*=.*|--|-m|--module|-jar|-X[a-z]+[0-9]+[kmgKMG]?|-XX:.*|-server|-ea|--standalone|--enable-source-maps"
    r"|--allow-(all|env|ffi|import|net|read|run|sys|write)"
)
_PYTHON = re.compile(r"\{python\}|python.*")
_PYTHON_OPTION = re.compile(r"(?s)-[a-zA-Z?]*?([WXcm])(.*)|--check-hash-based-pycs")  # those that have a value
_COMMANDS = frozenset({"run", "serve", "test", "exec", "x", "CMD", "BATCH"})  # before what they run: deno run, R CMD
_MODULE = ("-m", "--module")
_PATH = re.compile("(-[^/]*|@)?/")
_HOLE = re.compile(r"\{(word|path|text|integer|choice)[:}]")
_FREE_HOLE = re.compile(r"\{(word|path|text)\}")


def find_program_faults(at: str, argv: tuple[str, ...], is_unsafe: bool) -> Iterator[str]:
    """Returns why the words of an entry, with their holes, would let a manifest choose what runs."""
    program, name = argv[0], Path(argv[0]).name
    if program != "{python}" and (not program.startswith("/") or "{" in program):
        yield f"{at}.argv[0]: the program must be fixed: {{python}}, or an absolute path"
        return
    if name in SHELLS or _LOADER.fullmatch(name):
        yield f"{at}.argv[0]: {program} runs whatever its arguments say; admit the program that it would start"
    if not _is_interpreter(program):
        yield from _free_faults(at, argv, 0, is_unsafe)
        return
    for index, word in enumerate(argv[1:], start=1):
        if _CODE.fullmatch(argv[index - 1]) and _HOLE.search(word):
            yield f"{at}.argv[{index}]: {argv[index - 1]} takes code, so the word after it must be fixed"
    places = find_scripts(argv)
    certain = places[-1] if places else 0
    options = range(1, (certain or len(argv)) + argv[certain].startswith("-"))  # -cCODE is what runs, and an option
    for index in options:
        if _FREE_HOLE.search(argv[index]):
            yield f"{at}.argv[{index}]: an option before what {program} runs can hold code, so it must be fixed"
    if not certain or _FREE_HOLE.search(argv[certain]) or all(_HOLE.search(argv[place]) for place in places):
        yield (
            f"{at}.argv: {program} runs the first of its arguments, so a script or -m MODULE must be fixed; write -- "
            "before it, or --option=value, if it follows an option"
        )
    elif _names_module(argv, certain):
        yield from _free_faults(at, argv, certain, is_unsafe)


def _free_faults(at: str, argv: tuple[str, ...], program: int, is_unsafe: bool) -> Iterator[str]:
    """Finds a free hole where a program or module would have what it runs, if it is an interpreter unknown as such."""
    fixed = next((index for index in range(program + 1, len(argv)) if not _HOLE.search(argv[index])), len(argv))
    for index in range(program + 1, fixed):
        if _FREE_HOLE.search(argv[index]) and not is_unsafe:
            yield (
                f"{at}.argv[{index}]: {argv[index]} comes before the first fixed word after {argv[program]}, where an "
                "interpreter has what it runs; write `unsafe: true` beside argv if no argument can name what runs"
            )


def _is_interpreter(program: str) -> bool:
    name = Path(program).name
    return program == sys.executable or name in _LAUNCHING_PROGRAMS or _INTERPRETERS.fullmatch(name) is not None


def find_scripts(argv: Sequence[str]) -> list[int]:
    """Returns the places of the words that may be what an interpreter runs; none of them for any other program.

    It is the last of them at the latest: a word before that may be the value of an option, or what runs. Of a module
    that runs a script in its turn, it is that script.
    """
    if not _is_interpreter(argv[0]):
        return []
    if argv[0] != sys.executable and not _PYTHON.fullmatch(Path(argv[0]).name):
        return _list_possible(argv, 1)
    place = _find_of_python(argv)
    if place and _module_at(argv, place) in _LAUNCHERS:
        return _list_possible(argv, place + 1)
    return [place] if place else []


def _list_possible(argv: Sequence[str], start: int) -> list[int]:
    places: list[int] = []
    for place in range(start, len(argv)):
        if argv[place].startswith("-") or argv[place] in _COMMANDS:
            continue
        places.append(place)
        if place == start or _ALONE.fullmatch(argv[place - 1]):
            break
    return places


def _find_of_python(argv: Sequence[str]) -> int:
    """Returns where Python's script, module or code is; its options are few and known. 0 if nowhere."""
    words = iter(range(1, len(argv)))
    for place in words:
        if not argv[place].startswith("-"):
            return place
        option = _PYTHON_OPTION.fullmatch(argv[place])
        if option and option[1] in ("c", "m"):
            return place if option[2] else next(words, 0)
        if option and not option[2]:
            next(words, 0)
    return 0


def _module_at(argv: Sequence[str], place: int) -> str:
    """Returns the module that Python runs: the word itself, or with its option (-mNAME)."""
    option = _PYTHON_OPTION.fullmatch(argv[place])
    return str(option[2]) if option else argv[place] if _names_module(argv, place) else ""


def _names_module(argv: Sequence[str], place: int) -> bool:
    option = _PYTHON_OPTION.fullmatch(argv[place]) or _PYTHON_OPTION.fullmatch(argv[place - 1])
    return argv[place - 1] in _MODULE or (option is not None and option[1] == "m")


def list_searched(argv: Sequence[str]) -> list[str]:
    """Returns the absolute paths that may say where an interpreter finds code: in what it runs, and in all before.

    That is any word up to what certainly runs, whichever options have a value; of some programs it is any word.
    """
    if not _is_interpreter(argv[0]):
        return []
    places = find_scripts(argv)
    end = places[-1] if places and not _has_options_everywhere(argv) else len(argv) - 1
    words = [argv[place] for place in range(1, end + 1) if place in places or not _is_written(argv, place)]
    return [path for word in words for path in _list_paths(word)]


def _is_written(argv: Sequence[str], place: int) -> bool:
    return argv[place - 1] in _WRITTEN or argv[place].partition("=")[0] in _WRITTEN


def _has_options_everywhere(argv: Sequence[str]) -> bool:
    place = _find_of_python(argv)
    return Path(argv[0]).name in _OPTIONS_EVERYWHERE or (place > 0 and _module_at(argv, place) in _OPTIONS_EVERYWHERE)


def _list_paths(word: str) -> list[str]:
    """Returns the absolute paths in a word: /x, -I/x, @/x, --option=/x:/y,/z."""
    return [part[part.index("/") :].rstrip("*") for part in re.split("[=:;,]", word) if _PATH.match(part)]
