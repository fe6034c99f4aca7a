"""Classification of database errors: only errors about values can fail a run."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from holdfast.domain.errors import HoldfastError
from holdfast.drivers.faults import Fault, fault_of

STATES = {
    Fault.DATA: "22001 22003 22P02 22P05 54000 54001",
    Fault.BUSY: "40001 40P01 55P03",
    Fault.UNAVAILABLE: "08006 08P01 0A000 25006 25P02 26000 28000 3D000 42P05 53100 53300 57014 57P01 57P03 58030",
    Fault.REFUSED: "23505 23514 42501 42P01 40003 XX000 P0001",
}


@pytest.mark.parametrize(
    ("fault", "state"), [(fault, one) for fault, states in STATES.items() for one in states.split()]
)
def test_an_error_is_classified_by_its_sqlstate(fault: Fault, state: str) -> None:
    error = type("Error", (psycopg.Error,), {"sqlstate": state})()
    assert fault_of(error) is fault


def test_an_error_that_no_server_sent_is_about_the_connection_unless_about_values() -> None:
    assert fault_of(psycopg.OperationalError("closed")) is Fault.UNAVAILABLE
    assert fault_of(OSError("no route")) is Fault.UNAVAILABLE
    assert fault_of(psycopg.DataError("a NUL in a text")) is Fault.DATA
    assert fault_of(HoldfastError("not storable")) is Fault.DATA
    assert fault_of(errors.LockNotAvailable()) is Fault.BUSY
