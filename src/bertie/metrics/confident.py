"""Confident learning: which labels are probably wrong. Northcutt et al. 2021.

E examples · L labels
"""

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


def contradicted(probability_EL: NDArray[np.float64], label_E: Int) -> tuple[Int, Int]:
    """Returns the examples whose labels are probably wrong, the most contradicted first, and the suggested labels.

    probability_EL: predictions by models that were not trained on the example. The threshold of a label is its mean
    probability among the examples that have the label (2021, equation 2). A label is possible for an example if its
    probability is at least the threshold. An example is contradicted if the most probable of its possible labels is
    another one. The order is by normalized margin: the probability of its label minus the largest other one.
    """
    rows_E, count = np.arange(len(label_E)), probability_EL.shape[1]
    own_E = probability_EL[rows_E, label_E]
    seen_L = np.bincount(label_E, minlength=count)
    usual_L = np.where(seen_L > 0, np.bincount(label_E, own_E, count) / np.maximum(1, seen_L), np.inf)
    possible_EL = probability_EL >= usual_L
    suggested_E = np.where(possible_EL, probability_EL, -1.0).argmax(1)
    other_EL = probability_EL.copy()
    other_EL[rows_E, label_E] = -np.inf
    found = np.flatnonzero(possible_EL.any(1) & (suggested_E != label_E))
    order = np.argsort((own_E - other_EL.max(1))[found], kind="stable")
    return found[order], suggested_E[found[order]]
