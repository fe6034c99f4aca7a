"""Operating system processes: descendants, stop signals, supervised programs, and the environment they run in."""
