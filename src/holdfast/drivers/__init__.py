"""Drivers: each runs an operation on one kind of connection, and nothing more."""
