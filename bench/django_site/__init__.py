"""One Django site for all backends of its Tasks framework: the same task, settings and commands for each."""
