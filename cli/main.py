"""The console script: finds the verb, loads its module and nothing else, and turns failures into one line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from cli import exits
from cli.exits import Failed
from cli.verb_table import BY_NAME, VERBS, load, missing, parser_of, place_options

USED_ELSEWHERE = {  # verbs of other command lines, with what does it here
    "rollback": "use: gpuwright plan rollback",
    "rollout": "use: gpuwright plan history, plan pause, plan resume, plan rollback",
    "create": "use: gpuwright apply -f FILE",
    "status": "use: gpuwright top, gpuwright get services",
    "patch": "use: gpuwright edit KIND NAME, gpuwright apply -f FILE",
    "exec": "a copy's output and place: gpuwright logs service NAME, gpuwright describe service NAME",
    "use-context": "use: gpuwright config use NAME",
}
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
            sys.stdout.write("\n".join(f"{code:>4}  {meaning}" for code, meaning in exits.MEANINGS) + "\n")
            return exits.OK
        words = [*words[1:], "--help"]
    verb = BY_NAME.get(words[0])
    if verb is None:
        raise Failed(_unknown(words[0]))
    module = load(verb)
    parser = parser_of(verb, module)
    try:
        args = parser.parse_args(place_options(parser, leading, words[1:]))
    except SystemExit as exit_:  # the help was printed
        return exit_.code if isinstance(exit_.code, int) else exits.BAD_INPUT
    try:
        return int(module.run(args))
    except ModuleNotFoundError as error:
        raise missing(verb, error) from error


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits the words into connection flags before the verb, and the rest."""
    at = 0
    while at < len(words) and words[at].split("=")[0] in LEADING:
        at += 2 if LEADING[words[at].split("=")[0]] and "=" not in words[at] else 1
    return words[:at], words[at:]


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


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    if word in USED_ELSEWHERE:
        return f"unknown verb {word!r}; {USED_ELSEWHERE[word]}"
    near = get_close_matches(word, [verb.name for verb in VERBS], n=1)
    return f"unknown verb {word!r}; " + (f"did you mean {near[0]}?" if near else "see: gpuwright --help")


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
