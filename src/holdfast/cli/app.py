"""The table of commands. Each is imported when it is used, so that help and usage errors appear at once."""

from __future__ import annotations

import difflib
import importlib

import click

from holdfast.cli import exits
from holdfast.cli.session import url_option

COMMANDS = {
    "up": "Start the API and workers.",
    "api": "Serve the API over HTTP.",
    "worker": "Claim runs from queues and execute them.",
    "sweep": "Do the workers' upkeep without executing runs.",
    "demo": "Demonstrate the main features on a temporary Postgres.",
    "doctor": "Check the installation, and report how to fix problems.",
    "submit": "Submit a run of a task.",
    "runs": "List, follow, cancel and retry runs.",
    "jobs": "List, show, cancel and retry jobs.",
    "queues": "List, pause and resume queues.",
    "workers": "List and drain workers.",
    "subscriptions": "Send events to webhooks and Redis streams.",
    "tasks": "List the registered tasks and their parameters.",
    "tokens": "Create and revoke tokens for the API.",
    "openapi": "Print the OpenAPI document of the API.",
    "db": "Upgrade and check the database, and print its URL.",
    "config": "Show every setting and where it came from.",
}


# Commands that are not in a module of the same name.
MODULES = {"sweep": "worker", "openapi": "api", "workers": "queues", "config": "doctor"}


class LazyGroup(click.Group):
    """A group whose members are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"holdfast.cli.{MODULES.get(cmd_name, cmd_name)}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else f" Commands: {', '.join(COMMANDS)}."
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _completion() -> str:
    ways = {shell: f'eval "$(_HOLDFAST_COMPLETE={shell}_source holdfast)"' for shell in ("bash", "zsh")}
    ways["fish"] = "_HOLDFAST_COMPLETE=fish_source holdfast | source"
    return "\b\nTo enable shell completion, add this line to your shell's start-up file:\n" + "\n".join(
        f"  {shell:<4}  {way}" for shell, way in ways.items()
    )


def _epilog() -> str:
    codes = ", ".join(f"{code} {meaning}" for code, meaning in exits.MEANINGS.items())
    return (
        "Settings come from HOLDFAST_* variables or holdfast.toml; `holdfast config show` lists them."
        f"\n\n{_completion()}\n\nExit codes: {codes}."
    )


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_epilog()
)
@url_option
@click.option("--traceback", is_flag=True, help="Show the traceback of an error.")
@click.version_option(
    package_name="holdfast", prog_name="holdfast", message="%(prog)s %(version)s", help="Show the version."
)
@click.pass_context
def app(ctx: click.Context, url: str | None, token: str | None, traceback: bool) -> None:
    """Submit, watch and execute durable runs on Postgres."""
    ctx.obj = {"traceback": traceback, "url": url, "token": token}
