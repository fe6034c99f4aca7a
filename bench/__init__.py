"""The benchmarks: Holdfast compared with its peers and with bare Postgres, in one run on one server.

    python -m bench                  every line of the table, median of five alternating rounds
    python -m bench --quick          one round with small sizes, to see that it works
    python -m bench --full           also a million pending runs with ten million finished ones
    python -m bench report           write docs/performance.md from the newest figures

How it measures:

- Nobody's own clock is trusted. Every contender's task body writes CLOCK_MONOTONIC into a slot of shared memory
  (`board`); a rate is counted from the first body that starts until the contender's store says that all have ended.
- Contenders take turns within a round, and each round begins with another one. What counts is the ratio within a
  round; the table shows the median of these and their range, because machines drift.
- All share one Postgres with fsync and synchronous_commit on, and default settings otherwise. Redis, for the peers
  that need it, keeps nothing on disk: theirs is a weaker promise.
- Holdfast runs its whole path as a user would start it: `holdfast worker` in a process of its own, fenced attempts,
  stored results, counters on. After each drain the store is checked run by run.

`programs` holds what runs in other processes, under the peers' interpreter where it is theirs; `contenders` how each
one is set up, started and asked; `experiments` what is measured; `goals` the lines of the table.
"""
