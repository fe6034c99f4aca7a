"""A scenario sweep: the shipped forecast over many sets of parameters, collected into one table and one chart.

    python -m examples.scenario_sweep

The job grows as it runs. Its first task maps over a Parquet file, one task for every 25 sets; a join creates the
table and, when it succeeds, adds the task that draws the chart. Table and chart are stored with the results.
"""
