"""A scenario sweep: the shipped forecast over many sets of parameters, collected into one table and one chart.

    python -m examples.scenario_sweep

The job grows as it runs. Its first task maps over a Parquet file, one task for every 25 sets; a join makes the table
and adds, with its own ending, the task that draws. Table and chart stay beside the results, in the artifacts.
"""
