"""Assembly: settings become the parts of a worker, and the parts are put together here and nowhere else.

worker     executors, doorbell and result store of a worker, by the settings; starts workers and sweepers
services   upkeep services that need settings or something other than Postgres
ray        the executors on Ray
one_run    the worker of a single run, for RQ work-horses and Ray jobs
"""
