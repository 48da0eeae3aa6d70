"""``cct experiment``: one command for each experiment, with the options of its function."""

from __future__ import annotations

import functools
from typing import Any

import typer
from typer.core import TyperGroup

from .._support.options import CommandGroup
from .._support.terminal import say
from . import EXPERIMENTS, experiment

__all__ = ["app"]


class _Experiments(TyperGroup):
    """The experiments as commands; an experiment's module is imported only when needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *EXPERIMENTS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in EXPERIMENTS:
            return super().get_command(ctx, cmd_name)
        run = experiment(cmd_name)

        @functools.wraps(run)
        def command(**options: Any) -> None:
            say(f"wrote {run(**options) / 'summary.md'}")

        one = CommandGroup(add_completion=False)
        one.command(cmd_name, help=EXPERIMENTS[cmd_name])(command)
        return typer.main.get_command(one)


app = CommandGroup()
group = CommandGroup(
    cls=_Experiments,
    no_args_is_help=True,
    help="Run an experiment from a paper and write a folder of tables and figures.",
)
app.add_typer(group, name="experiment")


@group.command("list")
def list_command() -> None:
    """List the experiments."""
    for name, what in EXPERIMENTS.items():
        say(f"{name:16} {what}")
