"""Running a command: an exception becomes one line and an exit code."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.cli import exits, output
from holdfast.cli.app import COMMANDS, app
from holdfast.cli.session import PROGRAM
from holdfast.cli.stopping import stopped_with

# Set by the shell when it requests completions.
COMPLETING = "_HOLDFAST_COMPLETE"


def run(arguments: Sequence[str] | None = None) -> int:
    output.tolerate_any_encoding()
    _find_modules_here()
    try:
        code = invoke(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return code


def invoke(arguments: Sequence[str] | None) -> int:
    """Run a command inside this process: an error is printed on stderr and becomes the exit code."""
    try:
        returned = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        _explain_usage(error)
        return exits.USAGE
    except click.ClickException as error:
        output.error(error.format_message())
        return exits.ERROR
    except (KeyboardInterrupt, click.Abort):
        output.note("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the one place where anything becomes a line and a code
        code = stopped_with()
        if code is not None:  # a signal during an import, for instance, is reported as a broken module
            if code:
                output.note("interrupted")
            return code
        _explain(error, arguments)
        return exits.code_of(error)
    return returned if isinstance(returned, int) else exits.OK


def _dispatch(arguments: list[str]) -> object:
    """Find the command and call it. click's own `main` would report a closed pipe as a failure."""
    if COMPLETING in os.environ:
        return app.main(arguments, prog_name=PROGRAM)
    with app.make_context(PROGRAM, arguments) as context:
        return app.invoke(context)


def _explain_usage(error: click.UsageError) -> None:
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        output.note(error.format_message())
        return
    if error.ctx is not None:
        output.note(error.ctx.get_usage())
    output.error(error.format_message())
    if error.ctx is not None:
        output.note(f"Try '{error.ctx.command_path} --help'.")


def _explain(error: Exception, arguments: Sequence[str] | None) -> None:
    from holdfast.domain.errors import HoldfastError

    if _wants_traceback(arguments):
        import traceback

        output.note("".join(traceback.format_exception(error)).rstrip())
        return
    if getattr(error, "logged", False):
        return
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, HoldfastError):
        output.error(message)
    elif isinstance(error, OSError):
        output.error(f"{error.strerror or message}{f': {error.filename}' if error.filename else ''}")
    elif type(error).__module__.partition(".")[0] == "psycopg":
        output.error(f"Postgres: {message}")
    else:
        output.error(f"unexpected {type(error).__name__}: {message} (for the traceback: holdfast --traceback …)")


def _wants_traceback(arguments: Sequence[str] | None) -> bool:
    given = sys.argv[1:] if arguments is None else arguments
    before_the_command = itertools.takewhile(lambda word: word not in COMMANDS, given)
    return "--traceback" in before_the_command or os.environ.get("HOLDFAST_LOG_LEVEL") == "debug"


def _find_modules_here() -> None:
    """Modules that register tasks are looked for in the current directory too, as with `python -m`."""
    with contextlib.suppress(OSError):
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)


def _pipe_closed() -> int:
    """The output pipe was closed. Discard what is still buffered; otherwise Python would report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    return exits.PIPE_CLOSED
