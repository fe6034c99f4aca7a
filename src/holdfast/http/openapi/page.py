"""The OpenAPI document as a self-contained page, which loads nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import orjson

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .75rem; overflow: auto; border-radius: 4px; }
h2 { margin-top: 2.5rem; text-transform: capitalize; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 4px; margin: .5rem 0; padding: .4rem .75rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 3.5rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
td, th { text-align: left; vertical-align: top; padding: .25rem .5rem; border-top: 1px solid var(--line); }
"""


def rendered(document: Mapping[str, Any]) -> str:
    """The whole page."""
    return "".join(_page(document))


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])} API</title>"
    yield f'<meta name=viewport content="width=device-width"><style>{STYLE}</style><main>'
    yield f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
    for paragraph in info["description"].strip().split("\n\n"):
        yield f"<p>{_text(paragraph)}</p>"
    yield '<p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>'
    for tag in document["tags"]:
        yield f"<h2 id={escape(tag['name'])}>{escape(tag['name'])}</h2><p>{_text(tag['description'])}</p>"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(method, path, operation)
    yield "<h2>shapes</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield f"<details id=schema-{escape(name)}><summary><code>{escape(name)}</code></summary>"
        yield f"{_json(schema)}</details>"
    yield "</main></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details id={escape(operation['operationId'])}><summary><b>{method.upper()}</b> <code>{escape(path)}</code>"
    yield f" {escape(operation['summary'])}</summary>"
    if "description" in operation:
        yield f"<p>{_text(operation['description'])}</p>"
    scopes = [scope for one in operation["security"] for scope in one.get("token", [])]
    yield f"<p>Scope: {escape(', '.join(scopes)) or ('any' if operation['security'] else 'none')}</p>"
    if operation.get("parameters"):
        rows = (_parameter(parameter) for parameter in operation["parameters"])
        yield f"<table><tr><th>parameter<th>in<th>description{''.join(rows)}</table>"
    for media in operation.get("requestBody", {}).get("content", {}).values():
        yield f"<p>Body:</p>{_json(media.get('example', media['schema']))}"
    yield "<table><tr><th>response<th>description<th>schema"
    for status, answer in operation["responses"].items():
        yield _answer(status, answer)
    yield "</table></details>"


def _parameter(parameter: Mapping[str, Any]) -> str:
    name, place = escape(parameter["name"]), escape(parameter["in"])
    return f"<tr><td><code>{name}</code><td>{place}<td>{_text(parameter['description'])}"


def _answer(status: str, answer: Mapping[str, Any]) -> str:
    about = answer.get("description", "Any other problem; its `type` says which.")
    media = "<br>".join(
        f"{escape(kind)} {_shape(one.get('schema', {}))}" for kind, one in answer.get("content", {}).items()
    )
    return f"<tr><td>{escape(status)}<td>{_text(about)}<td>{media}"


def _shape(schema: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"<a href=#schema-{escape(name)}>{escape(name)}</a>" if name else ""


def _json(value: Any) -> str:
    return f"<pre>{escape(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())}</pre>"


def _text(text: str) -> str:
    """Text with `code` in it."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
