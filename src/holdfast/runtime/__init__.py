"""What clients, workers, the API and RQ are built on: settings, a checked database, connections, a result store."""
