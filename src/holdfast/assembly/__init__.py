"""The composition root: settings become the parts of a worker, and the parts are put together here and nowhere else."""
