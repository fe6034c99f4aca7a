"""For tests of programs that use Holdfast.

    clock        move the database's clock, for all sessions at once
    databases    databases that last as long as a test

No other package imports this one.
"""
