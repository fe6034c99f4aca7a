"""The doctor checks settings, machine, database and work, and reports what is wrong and how to fix it.

Checks are tables of independent functions. A check that raises is itself a finding and does not prevent others. A check
that depends on something that failed is skipped, and reported as skipped.
"""

from holdfast.doctor.examination import examine
from holdfast.doctor.finding import Finding, State

__all__ = ["Finding", "State", "examine"]
