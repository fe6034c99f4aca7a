"""For users and for us: a clock to turn, a queue to drain, faults to inject."""
