"""Values and rules: states, policies, canonical JSON, tasks and errors. No I/O happens here."""
