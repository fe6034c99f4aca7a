"""The tasks that come with Holdfast: a mock to try things with, and a real forecast. Importing registers them."""

from holdfast.tasks import forecast, mock

__all__ = ["forecast", "mock"]
