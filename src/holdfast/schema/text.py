"""A canonical form of the server's schema definitions, so that texts can be compared.

The server prints expressions from their trees, with every operator in parentheses. After a dump and restore, the trees
differ slightly: `(a AND b) AND c` becomes `a AND b AND c`. Such chains are flattened here, and redundant parentheses
removed, which does not change the meaning; everything else is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

Node: TypeAlias = "str | list[Node]"

_TOKEN = re.compile(
    r"""\s+ | (?P<token>
        E'(?:[^'\\]|''|\\.)*'      # an escape string
      | '(?:[^']|'')*'             # a string
      | "(?:[^"]|"")*"             # a quoted identifier
      | [\w$]+(?:\.[0-9]+)?        # a word or a number
      | ::
      | [-+*/<>=~!@\#%^&|`?]+      # an operator
      | .)""",
    re.VERBOSE | re.DOTALL,
)
# Parentheses around a query are part of its meaning: any ((select ...)) is not any (select ...).
_QUERIES = ("SELECT", "VALUES", "WITH")


def canonical(text: str) -> str:
    """Return the canonical text; two texts that differ only in redundant parentheses and spaces become equal."""
    return _printed(_flat(_tree(text)))


def _tree(text: str) -> list[Node]:
    """Return nested lists of tokens, one list for each pair of parentheses."""
    stack: list[list[Node]] = [[]]
    for found in _TOKEN.finditer(text):
        token = found["token"]
        if token == "(":  # noqa: S105
            stack.append([])
        elif token == ")" and len(stack) > 1:  # noqa: S105
            group = stack.pop()
            stack[-1].append(group)
        elif token is not None:
            stack[-1].append(token)
    return stack[0]


def _flat(nodes: Sequence[Node]) -> list[Node]:
    made = [_group(node) if isinstance(node, list) else node for node in nodes]
    connective = _connective(made)
    if connective is None:
        return made
    spliced: list[Node] = []
    for index, node in enumerate(made):
        alone = (index == 0 or made[index - 1] == connective) and made[index + 1 : index + 2] in ([], [connective])
        if isinstance(node, list) and alone and _connective(node) == connective:
            spliced += node
        else:
            spliced.append(node)
    return spliced


def _group(nodes: Sequence[Node]) -> list[Node]:
    flat = _flat(nodes)
    while len(flat) == 1 and isinstance(flat[0], list) and not (flat[0] and flat[0][0] in _QUERIES):
        flat = flat[0]
    return flat


def _connective(nodes: Sequence[Node]) -> str | None:
    """Return AND or OR if these nodes are a chain of it, or else None."""
    found = {node for node in nodes if node in ("AND", "OR", "BETWEEN", "CASE", ",", *_QUERIES)}
    return str(found.pop()) if found in ({"AND"}, {"OR"}) else None


def _printed(nodes: Sequence[Node]) -> str:
    text = ""
    before: Node | None = None
    for node in nodes:
        part = f"({_printed(node)})" if isinstance(node, list) else node
        text += part if not text or _joined(before, node) else f" {part}"
        before = node
    return text


def _joined(before: Node | None, node: Node) -> bool:
    """Whether these two are printed without a space between them."""
    if isinstance(node, list):
        return isinstance(before, str) and (
            before in (".", "::", "[") or (before[-1].isalnum() and not before.isupper())
        )
    return node in (",", ";", ".", "::", "[", "]") or before in (".", "::", "[")
