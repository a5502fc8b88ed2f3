"""Values without their option: `run my.yaml` is `run --config my.yaml`.

argparse (up to Python 3.12) loses an optional positional that follows an option, so a command
declares options alone, and the values that argparse could not place are placed here.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence


def accept_positionals(
    parser: argparse.ArgumentParser, *options: argparse.Action, required: bool = True
) -> None:
    """Let a command take the values of options without their names, in the order given.

    Args:
        parser: The command's parser.
        options: What `add_argument` returned.
        required: The command needs each of them, by name or by place.
    """
    for option in options:
        option.required = False
        option.help = f"{option.help}; {option.option_strings[0]} itself may be left out"
    parser.set_defaults(positionals=options, positionals_required=required, parser=parser)


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of a command line; end the process where they are wrong.

    Args:
        parser: The parser of all commands.
        argv: The command line without the program's name; None: that of this process.
    """
    arguments, rest = parser.parse_known_args(argv)
    command: argparse.ArgumentParser = getattr(arguments, "parser", parser)
    options: Sequence[argparse.Action] = getattr(arguments, "positionals", ())
    free = [option for option in options if getattr(arguments, option.dest) is None]
    end = rest.index("--") if "--" in rest else len(rest)  # behind it, nothing is an option
    unknown = [each for each in rest[:end] if each.startswith("-") and each != "-"]
    rest = rest[:end] + rest[end + 1 :]
    if unknown or len(rest) > len(free):
        _reject(command, unknown or rest[len(free) :])
    for option, text in zip(free, rest, strict=False):
        setattr(arguments, option.dest, option.type(text) if callable(option.type) else text)
    lacking = [option.option_strings[0] for option in free[len(rest) :]]
    if lacking and getattr(arguments, "positionals_required", False):
        command.error(f"the following arguments are required: {', '.join(lacking)}")
    return arguments


def _reject(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    names = [name for action in command._actions for name in action.option_strings]
    nearest = difflib.get_close_matches(arguments[0].partition("=")[0], names, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    command.error(f"unrecognized arguments: {' '.join(arguments)}{hint}")
