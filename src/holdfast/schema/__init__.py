"""The database schema: migrations and how they are run, drift from them, and the privileges that each purpose needs.

The numbered SQL files themselves are in `sql/migrations`.
"""
