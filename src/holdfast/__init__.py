"""Durable runs on Postgres: a lease decides who may execute, any fabric does the work."""
