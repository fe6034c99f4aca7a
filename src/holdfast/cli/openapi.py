"""holdfast openapi."""

from __future__ import annotations

import click

from holdfast.cli import output


@click.command()
def openapi() -> None:
    """Print the OpenAPI document of the API, with the tasks that are registered here."""
    from holdfast.domain.errors import ConfigurationError
    from holdfast.domain.tasks import load_modules
    from holdfast.runtime.settings import load

    settings = load()
    try:
        from holdfast.http.nouns import NOUNS
        from holdfast.http.openapi import build
    except ImportError as error:
        raise ConfigurationError(
            f"the API needs the extra `server`: pip install 'holdfast[server]' ({error})"
        ) from error
    load_modules(("holdfast.tasks", *settings.tasks))
    output.document(build(NOUNS, settings))
