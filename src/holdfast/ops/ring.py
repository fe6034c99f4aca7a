"""Ring: find ready runs whose doorbell message may be lost, and delete old worker rows. No run is changed."""

from __future__ import annotations

from holdfast.sql import rings
from holdfast.sql.statement import alone

find_ready = alone(rings.ready)
is_claimable = alone(rings.claimable)
forget_single_workers = alone(rings.forget_single_workers)
