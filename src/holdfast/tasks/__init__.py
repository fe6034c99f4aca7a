"""The tasks that are shipped with Holdfast: a mock for trials, and a forecast. Importing this registers them."""

from holdfast.tasks import forecast, mock

__all__ = ["forecast", "mock"]
