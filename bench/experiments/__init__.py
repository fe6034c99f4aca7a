"""What is measured, in the order of the table."""

from __future__ import annotations

from bench.experiments import costs, drains, floor, growth, latency, small, submits

EXPERIMENTS = (
    *drains.EXPERIMENTS,
    *submits.EXPERIMENTS,
    *latency.EXPERIMENTS,
    *floor.EXPERIMENTS,
    *growth.EXPERIMENTS,
    *costs.EXPERIMENTS,
    *small.EXPERIMENTS,
)
