"""Ring: find ready runs whose doorbell message may be lost, and delete old worker rows. No run is changed."""

from __future__ import annotations

from holdfast.sql import rings
from holdfast.sql.statement import as_operation

find_ready = as_operation(rings.ready)
is_claimable = as_operation(rings.claimable)
forget_single_workers = as_operation(rings.forget_single_workers)
