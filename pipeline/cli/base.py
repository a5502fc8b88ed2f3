"""The kinds of command and option of the command line, on click.

Nothing heavy is imported here or in the files of the commands, so that `--help` is fast.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import rich_click as click
from click.shell_completion import CompletionItem
from rich_click import RichContext, RichHelpFormatter

from pipeline.common.program import program

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "rich_help_config": {
        "theme": "default-slim",
        "text_markup": None,  # brackets in our texts are literal
        "text_emojis": False,
        "padding_helptext_first_line": (0, 0, 1, 0),
        "options_table_help_sections": ["help", "required", "default"],
        "max_width": 100,
    },
}


class Command(click.RichCommand):
    """A command whose function gets the values of all options as one namespace.

    It accepts values without the name of their option, and unambiguous prefixes of names.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after the command's name."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else self._expand(ctx, args))

    def _expand(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments with full names of options.

        Raises:
            UsageError: an option stands where another one needs its value.
        """
        options = {name: p for p in self.get_params(ctx) for name in (*p.opts, *p.secondary_opts)}
        expanded: list[str] = []
        needs_value = ""
        for index, word in enumerate(args):
            name, equals, value = word.partition("=")
            if needs_value:
                if word.startswith("--") or word in options:
                    ctx.fail(
                        f"Option {needs_value!r} needs a value, but {word!r} follows it. If that "
                        f"is the value, write {needs_value}={word}"
                    )
                needs_value = ""
            elif word == "--":
                return [*expanded, *args[index:]]
            else:
                longer = [each for each in options if each.startswith(name)]
                if name.startswith("--") and name not in options and len(longer) == 1:
                    name, word = longer[0], f"{longer[0]}{equals}{value}"
                option = options.get(name)
                if isinstance(option, click.Option) and not (equals or option.is_flag):
                    needs_value = name
            expanded.append(word)
        return expanded

    def invoke(self, ctx: click.Context) -> int:
        """Call the command's function."""
        assert self.callback is not None
        return ctx.invoke(self.callback, SimpleNamespace(**ctx.params))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options, or the next value that needs no name."""
        for param in self.get_params(ctx):
            is_free = isinstance(param, _ValueOption) and ctx.params.get(param.name) is None
            if is_free and not incomplete.startswith("-"):
                return param.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)

    def format_epilog(self, ctx: RichContext, formatter: RichHelpFormatter) -> None:
        """Write examples and exit codes with their line breaks."""
        from rich.text import Text

        if self.epilog:
            formatter.write(Text("\n" + self.epilog.replace("python -m pipeline", program())))


class Group(click.RichGroup):
    """A command that has commands."""

    command_class = Command
    format_epilog = Command.format_epilog

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their order in the code."""
        return list(self.commands)


class _ValueOption(click.RichOption):
    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        usage = f"[{self.opts[0]}] {self.make_metavar(ctx)}"
        return [usage if self.required else f"[{usage}]"]

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, object], args: list[str]
    ) -> tuple[object, list[str]]:
        if self.name not in opts and args:
            opts, args = {**opts, self.name: args[0]}, args[1:]
        return super().handle_parse_result(ctx, opts, args)


command = functools.partial(click.command, cls=Command)
group = functools.partial(click.group, cls=Group, context_settings=_SETTINGS)


def option(name: str, metavar: str, help: str, *names: str, **attributes: Any) -> Decorator:
    """Return a decorator that adds an option with a value.

    Args:
        name: such as `--config`.
        metavar: what `--help` shows for the value.
        help: what it is.
        *names: other names, and the name of the function's attribute.
        **attributes: of `click.Option`.
    """
    default = attributes.get("default") is not None
    return click.option(
        name, *names, metavar=metavar, help=help, show_default=default, **attributes
    )


def value(name: str, metavar: str, help: str, *names: str, **attributes: Any) -> Decorator:
    """Return a decorator that adds an option whose name can be left out: `run my.yaml`.

    Values without a name go to the options that were not given by name, in the order of the code.
    """
    return option(name, metavar, help, *names, **{"required": True, **attributes}, cls=_ValueOption)


def flag(name: str, help: str, *names: str) -> Decorator:
    """Return a decorator that adds an option without a value."""
    return click.option(name, *names, is_flag=True, help=help)


def choice(name: str, choices: tuple[str, ...], help: str, **attributes: Any) -> Decorator:
    """Return a decorator that adds an option with one of a few values."""
    metavar = "|".join(choices)
    return option(name, metavar, help, type=click.Choice(choices), **attributes)


def list_exit_codes(codes: Mapping[int, str]) -> str:
    """Return the lines of `--help` about exit codes.

    Args:
        codes: exit code -> meaning.
    """
    lines = [
        textwrap.fill(meaning, 78, initial_indent=f"  {code:>3}  ", subsequent_indent=" " * 7)
        for code, meaning in codes.items()
    ]
    return "\n".join(["Exit codes:", *lines, ""])
