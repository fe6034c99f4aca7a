"""Verbs: every call that Holdfast offers, each declared in one place.

A declaration (`@verb`) is a function with the public signature and docstring, and the other properties of the call:
whom to notify afterwards, whether it may be repeated, its HTTP route, how its response is written and read, what the
OpenAPI document says about it, and how a command prints it. These are made from declarations:

- the methods of the clients (`facades`) and of run handles (`handles`), blocking and asynchronous, whether the client
  has a database or an API: a client only supplies `execute(verb, args, kwargs)`;
- the routes of the API and its OpenAPI document (`holdfast.http.routes`);
- the requests of the HTTP clients (`requests`);
- the commands that change runs (`holdfast.cli.steering`).

To add a verb, write its operation, its SQL, its explorer program and one declaration. A verb that clients offer
has a line in `facades`, and one of run handles a line in `handles`. The verbs of jobs are in `holdfast.jobs.verbs`.
"""
