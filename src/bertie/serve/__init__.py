"""Models behind HTTP: worker processes, batches of what waits, admission, routes, and a page to try them on.

    request -> guard -> route -> tokens -> admission -> batches -> worker process -> arrays -> answerer -> response

The server process reads requests, makes token ids and decodes answers. It holds no weights and needs no torch: each
model runs in a process of its own behind the `Engine` protocol (worker.py), which may die without taking it along.
"""
