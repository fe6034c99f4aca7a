"""Assembly: builds the parts of a worker from the settings and connects them. No other package does this.

worker     executors, doorbell and result store of a worker; starts workers and sweepers
services   upkeep services that need settings or something other than Postgres
ray        the executors on Ray
one_run    a worker for a single run, for RQ work-horses and Ray jobs
"""
