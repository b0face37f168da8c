"""What a command that changes a model asks of its folder."""

from bertie.models.convert import save_like
from bertie.models.folder import check_trainable, copy_other_files, fingerprint, randomized
from bertie.models.sentence import MODULES
from bertie.models.weights import WORD


class ModelFiles:
    """The files of a model folder, and the model that is read from them or written to them."""

    MODULES, WORD = MODULES, WORD
    check_trainable = staticmethod(check_trainable)
    copy_others = staticmethod(copy_other_files)
    fingerprint = staticmethod(fingerprint)
    randomized = staticmethod(randomized)
    save_like = staticmethod(save_like)
