"""The table of verbs, from which each verb's module is loaded and gets its parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

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
    CommandVerb(
        "schema",
        "cli.verbs.schema",
        "Declare",
        "the JSON Schema of manifests, by which an editor completes and marks them",
        "server",
    ),
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
    CommandVerb("login", "cli.verbs.login", "Access", "sign in as a person, where the server knows a provider"),
    CommandVerb("webhook", "cli.verbs.webhook", "Access", "list webhooks, try one, send or discard its dead letters"),
    CommandVerb("whoami", "cli.verbs.whoami", "Access", "show which token is used and what it may do"),
    CommandVerb("console", "cli.verbs.console", "Access", "a new link that signs a browser in to the console"),
    CommandVerb("config", "cli.verbs.config", "Access", "contexts: servers and tokens by name"),
    CommandVerb("bench", "cli.verbs.bench", "More", "measure this installation", "server"),
    CommandVerb("completion", "cli.verbs.completion", "More", "completion for bash, zsh or fish"),
    CommandVerb("version", "cli.verbs.version", "More", "versions of client and server"),
)
HIDDEN = (CommandVerb("__complete", "cli.verbs.complete", "", "offers of shell completion"),)
BY_NAME = {verb.name: verb for verb in VERBS + HIDDEN}
OURS = {"app", "agents", "benchmarks", "cli", "clusters", "lab", "migrations", "simulation", "solvers"}


def load(verb: CommandVerb) -> ModuleType:
    """Returns the module of a verb; Failed names what to install when something it needs is missing."""
    from importlib import import_module

    from cli.additions import IS_OF_THE_LAB, additions

    try:
        module = additions("verbs").get(verb.name) if verb.module == OF_THE_LAB else import_module(verb.module)
    except ModuleNotFoundError as error:
        raise missing(verb, error) from error
    if module is None:
        raise Failed(f"gpuwright {verb.name} {IS_OF_THE_LAB}")
    return module


def missing(verb: CommandVerb, error: ModuleNotFoundError) -> Exception:
    """Returns what to raise: what to install, or the error itself where a module of ours is missing."""
    if (error.name or "").split(".")[0] in OURS:
        return error  # a fault of ours, not of the installation
    from agents.contract.installs import say_install

    extra = verb.extra or "server"
    return Failed(
        f"gpuwright {verb.name} needs the {extra} extra: {say_install(extra)} "
        f"(the module {error.name} is not installed)"
    )


FILE_ENDINGS = (".yaml", ".yml", ".json")
NO_FILE = "-f"


LISTS = ("list", "ls", "history", "contexts", "show")  # each of them is what some verb calls a list


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
        self._words: list[str] = []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches

        from cli.options_elsewhere import explain_words

        known = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), known, n=1) or [name for name in LISTS if name in known and value in LISTS]
        meant = f"; did you mean {near[0]}?" if near else ""
        option = action if action.option_strings else None
        meant = meant or ("" if option else explain_words(self.prog, [str(value)]))
        raise argparse.ArgumentError(option, f"{value!r} is not known; allowed: {', '.join(known)}{meant}")

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", "missing:")
        message = message.replace(": ignored explicit argument", " takes no value, and was given")
        file = next((word for word in self._words if word.endswith(FILE_ENDINGS)), "")
        if file and f"{NO_FILE}/--file" in message:
            message += f"; did you mean {NO_FILE} {file}?"
        raise Failed(f"{message}{' See' if message.endswith('?') else '; see'}: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuses what it does not know at once, where the options are known that may have been meant."""
        self._words = [str(word) for word in args or ()]
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            from cli.options_elsewhere import explain_option, explain_words

            known = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
            meant = explain_option(extra, known) or explain_words(self.prog, extra)
            self.error(f"not understood: {' '.join(extra)}{meant}")
        return found, extra


def parser_of(verb: CommandVerb, module: ModuleType) -> argparse.ArgumentParser:
    """Returns the parser of one verb."""
    description = f"{verb.help[0].upper()}{verb.help[1:]}."
    parser = Parser(prog=f"gpuwright {verb.name}", description=description)
    module.add_arguments(parser)
    with suppress(argparse.ArgumentError):  # a verb that asks a server has it already
        parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)
    return parser


def place_options(parser: argparse.ArgumentParser, options: Sequence[str], words: Sequence[str]) -> list[str]:
    """Returns the words with these options after the verb's action, if it has actions: only those take options."""
    at = 0
    while actions := next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None):
        if at == len(words) or words[at] not in actions.choices:
            return [*words] if actions.required else [*options, *words]  # an action is wrong or missing
        parser, at = actions.choices[words[at]], at + 1
    return [*words[:at], *options, *words[at:]]
