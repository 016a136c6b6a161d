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
# They do, too, and most of their options have a value that is the next argument: programs, and modules of Python.
_LAUNCHERS = frozenset({"torchrun", "uvicorn", "gunicorn", "hypercorn", "daphne", "granian"})
_LAUNCHING = _LAUNCHERS | {
    "accelerate.commands.launch", "bdb", "cProfile", "coverage", "debugpy", "deepspeed.launcher.launch",
    "deepspeed.launcher.runner", "gunicorn.app.wsgiapp", "horovod.runner.launch", "kernprof", "line_profiler", "memray",
    "pdb", "profile", "ray.scripts.scripts", "runpy", "scalene", "torch.distributed.launch", "torch.distributed.run",
    "trace", "viztracer",
}  # fmt: skip
# An option whose next argument is code: that argument must be fixed.
_CODE = re.compile(r"-[a-zA-Z]*[cem]|--(command|eval|exec|module|print)")
# Options whose value is the next argument, so that this is not yet what an interpreter runs: of Python, and of any
# other one. To take an option for one of these that is none makes one more word be checked.
_VALUED_BY_PYTHON = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_VALUED = _VALUED_BY_PYTHON | {
    "-C", "-I", "-J", "-L", "-classpath", "-cp", "-l", "-p", "-pa", "-pz", "-r", "-z", "--add-modules", "--class-path",
    "--cwd", "--env-file", "--experimental-loader", "--import", "--include", "--load", "--loader", "--module-path",
    "--path", "--project", "--require", "--sysimage", "--upgrade-module-path",
}  # fmt: skip
_PYTHON = re.compile(r"\{python\}|(python|pypy|ipython).*")
_RUN = "run"  # begins what some of them run: deno run, python -m coverage run
# Options of launchers whose value, behind what they run too, is where code is.
_SEARCHED = frozenset({"--app-dir", "--chdir", "--config", "--pythonpath", "-c"})
_MODULE = ("-m", "--module")
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
    script = script_at(argv)
    for index, word in enumerate(argv[1 : script or None], start=1):
        if _FREE_HOLE.search(word):
            yield f"{at}.argv[{index}]: an option before what {program} runs can hold code, so it must be fixed"
    if not script or _HOLE.search(argv[script]):
        yield f"{at}.argv: {program} runs the first of its arguments, so a script or -m MODULE must be fixed"
    elif argv[script - 1] in _MODULE:
        yield from _free_faults(at, argv, script, is_unsafe)


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
    return program == sys.executable or name in _LAUNCHERS or _INTERPRETERS.fullmatch(name) is not None


def script_at(argv: Sequence[str]) -> int:
    """Returns where an interpreter's command line has what it runs; 0 if nowhere, or if it is no interpreter's.

    Of a module that runs a script in its turn, this is the script.
    """
    if not _is_interpreter(argv[0]):
        return 0
    name = Path(argv[0]).name
    places = [at for at in range(1, len(argv)) if not argv[at].startswith("-") and argv[at] != _RUN]
    if name in _LAUNCHERS:
        return next((at for at in places if _ends_options(argv[at - 1])), 0)
    valued = _VALUED_BY_PYTHON if argv[0] == sys.executable or _PYTHON.fullmatch(name) else _VALUED
    script = next((at for at in places if argv[at - 1] not in valued), 0)
    if script and argv[script - 1] in _MODULE and argv[script] in _LAUNCHING:
        return next((at for at in places if at > script and _ends_options(argv[at - 1])), 0)
    return script


def list_searched(argv: Sequence[str]) -> list[str]:
    """Returns the words of a command that name where its interpreter finds code: what it runs, and all before that."""
    script = script_at(argv)
    searched = [*argv[1 : script + 1]]
    if script and _is_launcher(argv):
        behind = range(script + 1, len(argv))
        searched += [argv[at] for at in behind if argv[at - 1] in _SEARCHED or argv[at].partition("=")[0] in _SEARCHED]
    return searched


def _is_launcher(argv: Sequence[str]) -> bool:
    return Path(argv[0]).name in _LAUNCHERS or any(word in _LAUNCHING for word in argv[1:])


def _ends_options(word: str) -> bool:
    """Returns whether the word after this one cannot be its value, or is what a launcher runs."""
    return not word.startswith("-") or "=" in word or word in _MODULE
