"""Models behind HTTP: worker processes, batches of waiting requests, admission, routes, and a web page.

    request -> guard -> route -> tokens -> admission -> batches -> worker process -> arrays -> answerer -> response

The server process reads requests, makes token ids and decodes answers. It holds no weights and needs no torch: each
model runs in a process of its own, as an `Engine` (worker.py). If that process dies, the server continues.
"""
