"""Models behind HTTP: worker processes, batches of waiting requests, admission, routes, and a web page.

    request -> guard -> route -> tokens -> admission -> batches -> worker process -> arrays -> answerer -> response

The server process reads requests, makes token ids and decodes answers. It holds no weights and needs no torch: each
model runs in a process of its own, as an `Engine` (worker.py). If that process dies, the server continues.
"""

from typing import TYPE_CHECKING

from bertie.apps import modules_of

if TYPE_CHECKING:
    from bertie.apps.serve import fleet as fleet
    from bertie.apps.serve import log as log
    from bertie.apps.serve import on_ray as on_ray
    from bertie.apps.serve import remote as remote
    from bertie.apps.serve import server as server
    from bertie.apps.serve import versions as versions
else:
    __getattr__ = modules_of(__name__)
