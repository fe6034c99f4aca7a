"""A function that is no task until a test makes it one."""


def work() -> None:
    pass
