"""Completion scripts for bash, zsh and fish, written from the argparse tree."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

from cli.exits import Failed
from cli.kinds import WORDS
from cli.main import VERBS, load, parser_of


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag or position: what may follow it. `completes` is kinds, names, files, contexts or nothing."""

    words: tuple[str, ...]  # of a flag; empty for a position
    takes_value: bool
    choices: tuple[str, ...]
    completes: str
    help: str
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A verb, or an action of one (`token create`)."""

    path: tuple[str, ...]
    help: str
    flags: list[Argument] = field(default_factory=list)
    positions: list[Argument] = field(default_factory=list)


def commands() -> Iterator[Command]:
    """Yields every verb that can be loaded here; of the others the name alone."""
    for verb in VERBS:
        try:
            parser = parser_of(verb, load(verb))
        except (Failed, ModuleNotFoundError):  # its extra is not installed
            yield Command((verb.name,), verb.help)
            continue
        yield from _walk(parser, (verb.name,), verb.help)
    topics = ("exit-codes", *(verb.name for verb in VERBS))
    yield Command(("help",), "what a verb takes", [], [Argument((), True, topics, "", "")])


def _walk(parser: argparse.ArgumentParser, path: tuple[str, ...], text: str) -> Iterator[Command]:
    command = Command(path, text)
    below: list[Command] = []
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            help_texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                below += _walk(sub, (*path, name), help_texts.get(name, ""))
            command.positions.append(Argument((), True, tuple(action.choices), "", ""))
            continue
        choices = tuple(map(str, action.choices)) if action.choices else ()
        argument = Argument(
            words=tuple(action.option_strings),
            takes_value=action.nargs != 0,
            choices=choices,
            completes=getattr(action, "completes", ""),
            help=(action.help or "").replace("%%", "%"),
            repeats=action.nargs in ("*", "+"),
        )
        (command.flags if action.option_strings else command.positions).append(argument)
    yield command
    yield from below


def script(shell: str) -> str:
    """Returns the script to source in `shell`."""
    known = list(commands())
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell](known)


def table(known: list[Command]) -> Iterator[tuple[str, str]]:
    """Key and offered words, the same for bash and zsh: `get`, `get 1`, `get --output` ..."""
    yield "verbs", " ".join(command.path[0] for command in known if len(command.path) == 1)
    for command in known:
        name = " ".join(command.path)
        yield f"{name} flags", " ".join(word for flag in command.flags for word in flag.words)
        for flag in command.flags:
            for word in flag.words:
                if flag.takes_value:
                    yield f"{name} {word}", _offer(flag)
        for at, position in enumerate(command.positions, start=1):
            yield f"{name} {at}", _offer(position)
        if command.positions and command.positions[-1].repeats:
            yield f"{name} rest", _offer(command.positions[-1])


def _offer(argument: Argument) -> str:
    if argument.completes == "kinds":
        return " ".join(sorted(WORDS))
    return f"@{argument.completes}" if argument.completes else " ".join(argument.choices) or "@nothing"


# What may come at the cursor, for bash and zsh alike: a table, and a walk over the words before the cursor.
WALK = r"""
_gpuwright_offer() {
  case "$1" in
%s
    *) offer="@nothing"; return 1 ;;
  esac
}
_gpuwright_walk() {  # CURRENT-WORD WORD-BEFORE...: sets offer, kind and carry
  local current="$1" verb="" at=0 word="" previous=""
  kind="" offer="" carry=()
  shift
  for word in "$@"; do
    if [[ -n "$previous" ]]; then
      case "$previous" in --context|--server|--token-file|--tenant) carry+=("$previous" "$word") ;; esac
      previous=""
    elif [[ "$word" == -* ]]; then
      if _gpuwright_offer "${verb:-get} $word"; then previous="$word"; fi
    elif [[ -z "$verb" ]]; then
      verb="$word"
    elif _gpuwright_offer "$verb $word flags"; then
      verb="$verb $word"; at=0
    else
      at=$((at + 1))
      if [[ $at == 1 ]]; then kind="${word%%%%/*}"; fi
    fi
  done
  if [[ -n "$previous" ]]; then
    _gpuwright_offer "${verb:-get} $previous"
  elif [[ "$current" == -* ]]; then
    _gpuwright_offer "${verb:-get} flags"
  elif [[ -z "$verb" ]]; then
    _gpuwright_offer verbs
  else
    _gpuwright_offer "$verb $((at + 1))" || _gpuwright_offer "$verb rest"
  fi
  case "$offer" in
    @contexts) offer="$(gpuwright __names contexts 2>/dev/null)" ;;
    @names) offer="$(gpuwright __names "$kind" "${carry[@]}" 2>/dev/null)" ;;
    @nothing) offer="" ;;
  esac
}
"""
BASH = r"""
_gpuwright() {
  local cur words cword offer kind
  local -a carry
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n =: words cword
  else
    words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD
  fi
  cur="${words[cword]}"
  _gpuwright_walk "$cur" "${words[@]:1:cword-1}"
  if [[ "$offer" == @files ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$offer" -- "$cur"))
  fi
}
complete -F _gpuwright gpuwright
"""
ZSH = r"""
_gpuwright() {
  local offer kind
  local -a carry
  _gpuwright_walk "${words[CURRENT]}" "${(@)words[2,CURRENT-1]}"
  if [[ "$offer" == @files ]]; then _files; else compadd -- ${=offer}; fi
}
if [[ "${funcstack[1]}" == _gpuwright ]]; then _gpuwright "$@"; else compdef _gpuwright gpuwright; fi
"""


def bash(known: list[Command]) -> str:
    """Returns the walk, and a function that bash calls."""
    head = "# bash completion of gpuwright; load it with:  source <(gpuwright completion bash)"
    return head + _walk_script(known) + BASH.lstrip("\n")


def zsh(known: list[Command]) -> str:
    """Returns the walk, and a function that zsh calls."""
    head = "#compdef gpuwright\n# zsh completion of gpuwright; load it with:  source <(gpuwright completion zsh)"
    return head + _walk_script(known) + ZSH.lstrip("\n")


def _walk_script(known: list[Command]) -> str:
    return WALK % "\n".join(f'    "{key}") offer="{offer}" ;;' for key, offer in table(known))


def fish(known: list[Command]) -> str:
    """Returns a `complete` line for each verb, flag and position."""
    lines = [
        "# fish completion of gpuwright; load it with:  gpuwright completion fish | source",
        "complete -c gpuwright -f",
        "function __gpuwright_names",
        "  set -l words (commandline -opc | string match -v -- '-*')",
        "  test (count $words) -ge 3; and gpuwright __names (string split -f1 / -- $words[3]) 2>/dev/null",
        "end",
        "function __gpuwright_at",  # verb, then how many words without a dash stand before the cursor
        "  set -l words (commandline -opc | string match -v -- '-*')",
        "  test (count $words) -eq $argv[1]; and contains -- $words[2] $argv[2..-1]",
        "end",
    ]
    for command in known:
        verb = command.path[0]
        if len(command.path) == 1:
            lines.append(f"complete -c gpuwright -n __fish_use_subcommand -a {verb} -d {_quoted(command.help)}")
        condition = f"-n '__fish_seen_subcommand_from {command.path[-1]}'"
        lines += [f"complete -c gpuwright {condition} {_fish_flag(flag)}" for flag in command.flags]
        for at, position in enumerate(command.positions, start=len(command.path) + 1):
            where = f"-n '__gpuwright_at {at} {verb}'"
            lines.append(f"complete -c gpuwright {where} {_fish_values(position)}".rstrip())
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Argument) -> str:
    parts = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in flag.words]
    if flag.takes_value:
        parts += ["-r" if flag.completes == "files" else "-x", _fish_values(flag)]
    return " ".join([*parts, "-d", _quoted(flag.help)])


def _fish_values(argument: Argument) -> str:
    if argument.completes == "files":
        return "-F"
    if argument.completes == "contexts":
        return "-a '(gpuwright __names contexts)'"
    if argument.completes == "names":
        return "-a '(__gpuwright_names)'"
    words = sorted(WORDS) if argument.completes == "kinds" else argument.choices
    return f"-a '{' '.join(words)}'" if words else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
