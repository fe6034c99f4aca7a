"""Tasks: what can be submitted."""

from __future__ import annotations

from holdfast.documents.others import task_document
from holdfast.domain.errors import NotFound
from holdfast.domain.tasks import registry
from holdfast.http.answers import Answer, answer, items
from holdfast.http.call import Call
from holdfast.http.routes import Noun, route
from holdfast.verbs.openapi import in_path, listed, problem, ref, says


@route(
    "GET /tasks",
    "runs:read",
    "listTasks",
    "List tasks",
    answers={200: says("The tasks, by name.", listed(ref("Task")))},
)
def index(call: Call) -> Answer:
    return items([task_document(registry.get(name)) for name in registry.names()])


@route(
    "GET /tasks/{name}",
    "runs:read",
    "getTask",
    "Read a task",
    "`parameters` is a JSON Schema.",
    parameters=[in_path("name", "The name of a task.")],
    answers={200: says("The task.", ref("Task")), 404: problem("not-found")},
)
def show(call: Call, name: str) -> Answer:
    found = registry.find(name)
    if found is None:
        raise NotFound("no task is registered under this name; GET /tasks lists them")
    return answer(task_document(found))


NOUN = Noun("tasks", "Tasks: registered callables with their policies.", [index, show])
