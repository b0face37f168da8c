"""A model by its name, or by the folder of it, of a run or of a checkpoint."""

from bertie.errors import model_hint
from bertie.hub.names import find
from bertie.runs.models import load, model_folder
from bertie.runs.opening import open_engine


class ModelByName:
    """How the name of a model becomes its folder, its engine, or its module of torch."""

    engine = staticmethod(open_engine)
    find = staticmethod(find)
    folder = staticmethod(model_folder)
    hint = staticmethod(model_hint)
    module = staticmethod(load)
