"""JSON documents of records: returned by the API, printed by `--json`, and parsed by the HTTP clients."""
