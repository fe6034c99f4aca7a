"""The doctor: looks at settings, machine, database and work, and names what is wrong with the way to fix it.

Checks are tables of functions. Each stands alone: one that breaks is itself a finding, and hides no other. What
cannot be asked because something before it failed is skipped and said so.
"""

from holdfast.doctor.examination import examine
from holdfast.doctor.finding import Finding, State

__all__ = ["Finding", "State", "examine"]
