"""For users and for us: whatever makes a test say what it means.

    clock        turn the database's clock, for everybody at once
    timeline     tell a test as a story: who does what, and how much later
    databases    databases that last as long as a test
    explorer     every interleaving of two operations, with crashes at every point

Nothing of the product imports from here.
"""
