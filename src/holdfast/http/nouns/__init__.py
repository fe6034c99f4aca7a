"""The nouns of the API: each has the routes of its verbs, and the views that are not made from a declaration."""

from holdfast.http.nouns import health, history, jobs, meta, metrics, outcomes, runs, session, tasks, workers
from holdfast.http.routes import Noun, routes
from holdfast.verbs import counters, queues

NOUNS: list[Noun] = [
    runs.NOUN,
    outcomes.NOUN,
    history.NOUN,
    jobs.NOUN,
    Noun("queues", "Queues: where runs wait.", routes(queues)),
    workers.NOUN,
    tasks.NOUN,
    Noun("summary", "Counts by model and status.", routes(counters)),
    health.NOUN,
    metrics.NOUN,
    session.NOUN,
    meta.NOUN,
]
