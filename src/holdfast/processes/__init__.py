"""Operating system processes: their descendants, the signals that stop them, and programs that are kept running."""
