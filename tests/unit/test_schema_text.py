"""Texts with the same meaning become equal, and others remain different."""

from __future__ import annotations

import pytest

from holdfast.schema.drift import canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CHECK ((((a) AND (b)) AND (c)))", "CHECK (((a) AND (b) AND (c)))"),
        ("((x >= 0) AND ((y >= 0) AND (y <= 1)))", "((x >= 0) AND (y >= 0) AND (y <= 1))"),
        ("(((a OR b) OR c) OR (d AND (e AND f)))", "(a OR b OR c OR (d AND e AND f))"),
        ("WHEN ((( a IS NULL )))", "WHEN (a IS NULL)"),
        ("f(  a,b )", "f(a, b)"),
        ("SELECT a\n  FROM b\n WHERE ((c) AND (d))", "SELECT a FROM b WHERE ((c) AND (d))"),
        ("COALESCE((a), (b))", "COALESCE((a), (b))"),
    ],
)
def test_redundant_parentheses_and_spaces_make_no_difference(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("((a AND b) OR c)", "(a AND (b OR c))"),
        ("(a AND (b OR c))", "(a AND b OR c)"),
        ("((NOT (a AND b)) AND c)", "((NOT a) AND b AND c)"),
        ("(a = (b AND c))", "((a = b) AND c)"),
        ("((a - b) - c)", "(a - (b - c))"),
        ("(a AND b)", "(a OR b)"),
        ("(a AND b)", "(b AND a)"),
        ("(a = 'x AND (y)')", "(a = 'x AND y')"),
        ("(a = 'it''s  (one)')", "(a = 'it''s (one)')"),
        ('("A" = 1)', "(a = 1)"),
        ("(a = 1)", "(a = 1.0)"),
        ("(a = ANY ((SELECT b)))", "(a = ANY (SELECT b))"),
        ("((a BETWEEN b AND c) AND d)", "(a BETWEEN b AND c AND d)"),
    ],
)
def test_texts_with_different_meanings_stay_different(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_the_canonical_text_is_stable_and_readable() -> None:
    text = "CHECK (((octet_length(a) = 32) AND (b <@ ARRAY['x'::text, 'y'::text]) AND ((c.d)::text IS NOT NULL)))"
    spelled = "CHECK ((octet_length(a) = 32) AND (b <@ ARRAY['x'::text, 'y'::text]) AND ((c.d)::text IS NOT NULL))"
    assert canonical(text) == canonical(spelled) == spelled
