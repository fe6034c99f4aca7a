"""Events on their way out: what was committed is told, in order and at least once.

An ending of a run writes its event in its own transaction, so an event exists if and only if the run ended. Publishing
is two steps, and any process may take either at any time:

    fan out   events become deliveries, one for each subscription that wants them: one statement in Postgres
    publish   a publisher holds a subscription for a while, sends its deliveries oldest first, and marks them

Between sending and marking lies the network. A publisher that dies there, or is too slow to keep its hold, causes the
same event to be sent again, under the same id; nothing is skipped and nothing overtakes.

    envelope    the event as a CloudEvent
    signing     signatures as Standard Webhooks has them
    addresses   which hosts may be called
    webhook     the sink that posts
    stream      the sink that adds to a Redis stream
    verdicts    what an answer means for a delivery, and how long to wait
    publisher   the loop
"""
