"""Publishing of events: committed events are delivered to subscribers, in order and at least once.

The transaction that ends a run writes the event, so an event exists if and only if the run has ended. Publishing has
two steps, and any process may do either at any time:

    fan out   events become deliveries, one for each matching subscription, in one statement
    publish   a publisher holds a subscription for a while, sends its deliveries oldest first, and records the results

A publisher that dies between sending and recording, or whose hold expires, causes the same event to be sent again with
the same id. No event is skipped, and none overtakes another.

    envelope    the event as a CloudEvent, and its signatures according to Standard Webhooks
    addresses   which hosts may be called
    webhook     the sink that posts
    stream      the sink that adds to a Redis stream
    responses   what a response means for a delivery, and how long to wait
    publisher   the loop
"""
