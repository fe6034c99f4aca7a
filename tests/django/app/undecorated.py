"""A function that is not a task until a test makes it one."""


def work() -> None:
    pass
