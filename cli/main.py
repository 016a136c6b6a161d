"""The console script: finds the verb, loads its module and nothing else, and turns failures into one line."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from cli import exits
from cli.exits import Failed

OF_THE_LAB = ""  # in place of a module: the lab brings it


class CommandVerb(NamedTuple):
    """A verb of the command line; `extra` is what must be installed for it in addition to the bare client."""

    name: str
    module: str
    group: str
    help: str
    extra: str = ""


VERBS = (
    CommandVerb(
        "up", "cli.verbs.up", "Start", "run a whole control plane here, with a simulated fleet to plan", "server"
    ),
    CommandVerb("serve", "cli.verbs.serve", "Start", "run the server on the database of DATABASE_URL", "server"),
    CommandVerb("planner", "cli.verbs.planner", "Start", "plan the fleet of the database of DATABASE_URL", "solvers"),
    CommandVerb("scaler", "cli.verbs.scaler", "Start", "scale workloads in a Kubernetes cluster", "server,kubernetes"),
    CommandVerb("agent", "cli.verbs.agent", "Start", "run or join the agent of a GPU node", "agent"),
    CommandVerb("gateway", "cli.verbs.gateway", "Start", "run the sidecar of an HAProxy", "agent"),
    CommandVerb("db", "cli.verbs.db", "Start", "migrate, check, back up and restore the database", "server"),
    CommandVerb("apply", "cli.verbs.apply", "Declare", "apply files to the server, all or nothing"),
    CommandVerb("diff", "cli.verbs.diff", "Declare", "show what apply would change"),
    CommandVerb("edit", "cli.verbs.edit", "Declare", "change one object in your editor"),
    CommandVerb("delete", "cli.verbs.delete", "Declare", "delete objects by name or file"),
    CommandVerb("validate", "cli.verbs.validate", "Declare", "check files without a server", "server"),
    CommandVerb("catalogue", "cli.verbs.catalogue", "Declare", "data sheets of GPU types, ready to apply"),
    CommandVerb(
        "solve", "cli.verbs.solve", "Plan", "decide what runs where, from files alone, with a proof", "solvers"
    ),
    CommandVerb(
        "latency", "cli.verbs.latency", "Plan", "the largest rate that keeps an SLO, for one instance", "solvers"
    ),
    CommandVerb(
        "verify", "cli.verbs.verify", "Plan", "check any plan against the files that declare its problem", "solvers"
    ),
    CommandVerb(
        "replay", "cli.verbs.replay", "Plan", "repeat a recorded decision offline and compare the result", "planner"
    ),
    CommandVerb(
        "simulate", "cli.verbs.simulate", "Plan", "run files as a fleet in virtual time: cost, SLOs, changes", "planner"
    ),
    CommandVerb("size", "cli.verbs.size", "Plan", "what to rent for a load, confirmed by simulation", "planner"),
    CommandVerb("evaluate", OF_THE_LAB, "Plan", "a paper's experiments: its planner, its baselines, ours", "planner"),
    CommandVerb(
        "profile",
        "cli.verbs.profile",
        "Plan",
        "measure a model on a GPU or at a URL, and write its Profile",
        "solvers",
    ),
    CommandVerb("plan", "cli.verbs.plan", "Plan", "decisions: history, diff, show; approve, reject, pause, roll back"),
    CommandVerb(
        "scale", "cli.verbs.scale", "Plan", "replicas of workloads in Kubernetes: show, approve, reject, pause"
    ),
    CommandVerb("what-if", "cli.verbs.whatif", "Plan", "what a change would cost and move, without making it"),
    CommandVerb(
        "assess", "cli.verbs.assess", "Look", "what a Kubernetes cluster's GPUs cost, by reading alone", "kubernetes"
    ),
    CommandVerb("explain", "cli.verbs.explain", "Look", "why a service, job, node, tenant or plan is as it is"),
    CommandVerb("events", "cli.verbs.events", "Look", "list events, newest last"),
    CommandVerb("logs", "cli.verbs.logs", "Look", "what a service or a job prints"),
    CommandVerb("audit", "cli.verbs.audit", "Look", "who changed what; for admins"),
    CommandVerb("top", "cli.verbs.top", "Look", "services, GPUs, cost and decisions, live"),
    CommandVerb("report", "cli.verbs.report", "Look", "usage, costs, savings and attained SLOs"),
    CommandVerb("get", "cli.verbs.get", "Look", "list objects, or show one"),
    CommandVerb("describe", "cli.verbs.describe", "Look", "show one object with its conditions, for reading"),
    CommandVerb("watch", "cli.verbs.watch", "Look", "follow changes as they happen"),
    CommandVerb("wait", "cli.verbs.wait", "Look", "wait until a condition holds"),
    CommandVerb("cordon", "cli.verbs.cordon", "Operate", "place nothing new on nodes or GPUs; list what is cordoned"),
    CommandVerb("uncordon", "cli.verbs.uncordon", "Operate", "let plans use nodes or GPUs again"),
    CommandVerb("drain", "cli.verbs.drain", "Operate", "move everything off nodes or GPUs"),
    CommandVerb("reclaim", "cli.verbs.reclaim", "Operate", "give notice that the cloud takes nodes back"),
    CommandVerb("token", "cli.verbs.token", "Access", "create, list and revoke tokens; tokens for nodes to join"),
    CommandVerb("whoami", "cli.verbs.whoami", "Access", "show which token is used and what it may do"),
    CommandVerb("console", "cli.verbs.console", "Access", "a new link that signs a browser in to the console"),
    CommandVerb("config", "cli.verbs.config", "Access", "contexts: servers and tokens by name"),
    CommandVerb("bench", "cli.verbs.bench", "More", "measure this installation", "server"),
    CommandVerb("completion", "cli.verbs.completion", "More", "completion for bash, zsh or fish"),
    CommandVerb("version", "cli.verbs.version", "More", "versions of client and server"),
)
HIDDEN = (CommandVerb("__complete", "cli.verbs.complete", "", "offers of shell completion"),)
BY_NAME = {verb.name: verb for verb in VERBS + HIDDEN}
USED_ELSEWHERE = {  # verbs of other command lines, with what does it here
    "rollback": "use: gpuwright plan rollback",
    "rollout": "use: gpuwright plan history, plan pause, plan resume, plan rollback",
    "create": "use: gpuwright apply -f FILE",
    "status": "use: gpuwright top, gpuwright get services",
}
OURS = {"app", "agents", "benchmarks", "cli", "clusters", "lab", "migrations", "simulation", "solvers"}
# flags that may come before the verb, and whether a value follows
LEADING = {
    "--context": True,
    "--server": True,
    "--token-file": True,
    "--tenant": True,
    "--request-timeout": True,
    "-v": False,
    "--verbose": False,
}
EXAMPLES = """\
Examples:
  gpuwright up                                   start a control plane on this machine
  gpuwright apply -f examples/quickstart.yaml    declare GPUs, models and services
  gpuwright get services                         see them
  gpuwright diff -f fleet/                       what would change (exit 1 if anything)
  gpuwright wait service shop/search --for condition=SloAttainable

More:
  gpuwright help VERB           what a verb takes
  gpuwright help exit-codes     what the exit codes mean
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    # Our matrices are small: threads that share them take many times as long, and change the last digits.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    verbose = "-v" in words or "--verbose" in words
    try:
        if sys.stdout is None:  # closed by the caller
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (open for as long as we run)
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = _run(words)
        sys.stdout.flush()
        return code
    except Failed as failure:
        _complain(failure.message, failure.particulars)
        return failure.code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return exits.BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _drop_output()
            _complain("cannot write: no space left on device", ())
            return exits.INTERNAL
        if verbose:
            raise
        _complain(f"internal error: {type(error).__name__}: {error}; run it again with -v to see where", ())
        return exits.INTERNAL


def _run(words: list[str]) -> int:
    leading, words = split(words)
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        sys.stdout.write(overview())
        return exits.OK if words else exits.BAD_INPUT
    if words[0] == "--version":
        words = ["version", "--client", *words[1:]]
    if words[0] == "help":
        if words[1] == "exit-codes":
            sys.stdout.write(exit_codes())
            return exits.OK
        words = [*words[1:], "--help"]
    verb = BY_NAME.get(words[0])
    if verb is None:
        raise Failed(_unknown(words[0]))
    module = load(verb)
    parser = parser_of(verb, module)
    try:
        args = parser.parse_args(leading + words[1:])
    except SystemExit as exit_:  # the help was printed
        return exit_.code if isinstance(exit_.code, int) else exits.BAD_INPUT
    try:
        return int(module.run(args))
    except ModuleNotFoundError as error:
        raise _missing(verb, error) from error


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits the words into connection flags before the verb, and the rest."""
    at = 0
    while at < len(words) and words[at].split("=")[0] in LEADING:
        at += 2 if LEADING[words[at].split("=")[0]] and "=" not in words[at] else 1
    return words[:at], words[at:]


def load(verb: CommandVerb) -> ModuleType:
    """Returns the module of a verb; Failed names what to install when something it needs is missing."""
    from importlib import import_module

    from cli.additions import IS_OF_THE_LAB, additions

    try:
        module = additions("verbs").get(verb.name) if verb.module == OF_THE_LAB else import_module(verb.module)
    except ModuleNotFoundError as error:
        raise _missing(verb, error) from error
    if module is None:
        raise Failed(f"gpuwright {verb.name} {IS_OF_THE_LAB}")
    return module


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats the help in the same way on every terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)


class Parser(argparse.ArgumentParser):
    """Reports wrong usage as one line with the next step; its subparsers do the same."""

    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", HelpFormatter)
        given.setdefault("allow_abbrev", False)
        super().__init__(**given)

    def error(self, message: str) -> NoReturn:
        raise Failed(f"{message}; see: {self.prog} --help")


def parser_of(verb: CommandVerb, module: ModuleType) -> argparse.ArgumentParser:
    """Returns the parser of one verb."""
    description = f"{verb.help[0].upper()}{verb.help[1:]}."
    parser = Parser(prog=f"gpuwright {verb.name}", description=description)
    module.add_arguments(parser)
    with suppress(argparse.ArgumentError):  # a verb that asks a server has it already
        parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    return parser


def overview() -> str:
    """Returns the help of the program: its verbs by topic."""
    lines = [
        "usage: gpuwright [connection flags] VERB ...",
        "",
        "Keeps every latency promise of a GPU fleet.",
    ]
    for group in dict.fromkeys(verb.group for verb in VERBS):
        lines += ["", f"{group}:"]
        lines += [f"  {verb.name:<12}{verb.help}" for verb in VERBS if verb.group == group]
    return "\n".join(lines) + "\n\n" + EXAMPLES


def exit_codes() -> str:
    """Returns the table of exit codes."""
    return "\n".join(f"{code:>4}  {meaning}" for code, meaning in exits.MEANINGS) + "\n"


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    if word in USED_ELSEWHERE:
        return f"unknown verb {word!r}; {USED_ELSEWHERE[word]}"
    near = get_close_matches(word, [verb.name for verb in VERBS], n=1)
    return f"unknown verb {word!r}; " + (f"did you mean {near[0]}?" if near else "see: gpuwright --help")


def _missing(verb: CommandVerb, error: ModuleNotFoundError) -> Exception:
    if (error.name or "").split(".")[0] in OURS:
        return error  # a fault of ours, not of the installation
    extra = verb.extra or "server"
    return Failed(
        f"gpuwright {verb.name} needs the {extra} extra: pip install 'gpuwright[{extra}]' "
        f"(the module {error.name} is not installed)"
    )


def _drop_output() -> None:
    """Replaces stdout, to which nothing more can be written: Python must not try, not even while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, particulars: Sequence[str]) -> None:
    from cli.output import colour, plain

    try:
        print(colour("gpuwright:", "red", sys.stderr), plain(message), file=sys.stderr)
        for line in particulars:
            print(" ", plain(line), file=sys.stderr)
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    sys.exit(main())
