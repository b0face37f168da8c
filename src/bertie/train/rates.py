"""The default learning rate of fine-tuning: small models need a larger one.

BERT-base uses 3e-5 (Devlin et al. 2018, A.3). A model of hidden size 128 was best with 5e-4 on NSMC (0.765 against
0.713 with 3e-5). Between the two, it is a power of the hidden size; `python -m benchmarks.rates` measures it.
"""

BASE, BASE_WIDTH = 3e-5, 768
HIGHEST = 5e-4
POWER = 1.57  # the line through (768, 3e-5) and (128, 5e-4), both logarithms
LORA = 10  # times the rate of all weights, for low-rank matrices: Biderman et al. 2024, 4
ABSURD = 10  # times the usual rate


def usual_rate(width: int, *, lora: bool = False) -> float:
    """Returns the peak learning rate for a hidden size, to one digit: 128 -> 5e-4, 384 -> 9e-5, 768 -> 3e-5, 1024 ->
    2e-5. lora: of low-rank matrices, which need a larger one."""
    return float(f"{(LORA if lora else 1) * min(HIGHEST, BASE * (BASE_WIDTH / width) ** POWER):.0e}")
