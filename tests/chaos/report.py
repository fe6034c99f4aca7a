"""The report as text: faults, calls, outcomes, attempts, and the violations by kind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.chaos.harness import Report

SHOWN = 2
KINDS = ("LOST", "DOUBLED", "STUCK", "MISJUDGED", "WRONG", "WORKERS", "ERRORS")
# Ids, numbers and details that differ between violations of one kind.
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+([.:]\d+)*|\((in|attempts) .*|\(chaos\.\w+")


def page(report: Report) -> str:
    options = report.options
    played = f"seed {options.seed}, {options.seconds:g} s, {options.workers} workers, lease {options.lease:g} s"
    server = f"PostgreSQL {report.version}, {'with' if report.pooled else 'WITHOUT'} a pooler"
    made = f"{report.acknowledged} acknowledged runs, {sum(report.endings.values())} endings"
    after = f"drained in {report.drained_in:.1f} s; at most {report.backends} backends"
    lines = [
        f"chaos: {played}, {server}",
        f"{sum(report.faults.values())} faults; {made}; {after}",
        "",
        *counts("fault", report.faults, report.skipped),
        "",
        *endings(report.endings),
        "",
        *counts("attempts by status and reason", {" ".join(key): n for key, n in report.attempts.items()}),
        "",
        *counts("workers", report.exits),
        "",
        *counts("errors of callers", report.errors),
        "",
        *ack(report.violations),
    ]
    return "\n".join(lines)


def counts(title: str, found: Mapping[str, int], skipped: Mapping[str, int] | None = None) -> list[str]:
    names = sorted({*found, *(skipped or {})})
    lines = [f"{title}:" + (" none" if not names else "")]
    for name in names:
        more = f"  (not possible: {skipped[name]})" if skipped and skipped.get(name) else ""
        lines.append(f"  {found.get(name, 0):6d}  {name}{more}")
    return lines


def endings(found: Mapping[tuple[str, str], int]) -> list[str]:
    tasks = sorted({task for task, _ in found})
    outcomes = ("SUCCEEDED", "FAILED", "CANCELLED")
    head = f"{'task':20s}" + "".join(f"{one:>12s}" for one in outcomes)
    return [head, *(f"{task:20s}" + "".join(f"{found.get((task, one), 0):12d}" for one in outcomes) for task in tasks)]


def by_kind(violations: list[str]) -> Counter[str]:
    return Counter(one.partition(":")[0] for one in violations)


def ack(violations: list[str]) -> list[str]:
    """Each kind with its count, and a few examples of each pattern, which is the text without ids and numbers."""
    found = by_kind(violations)
    lines = ["violations: " + ", ".join(f"{found[kind]} {kind}" for kind in KINDS)]
    patterns: dict[str, list[str]] = defaultdict(list)
    for one in violations:
        patterns[_VARYING.sub("#", one)].append(one)
    for _, ones in sorted(patterns.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(ones)} x {ones[0]}")
        lines += [f"      {one}" for one in ones[1:SHOWN]]
    return lines
