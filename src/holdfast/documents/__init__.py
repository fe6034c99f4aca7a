"""The JSON forms of records: what the API answers, what `--json` prints, and what an HTTP client reads back."""
