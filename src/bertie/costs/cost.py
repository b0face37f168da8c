"""Formulas of cost: utilization, time, energy, CO2. No assumption is hidden: every factor is an argument."""

UTILIZATION = 0.4  # of the peak rate; 0.2 to 0.45 is usual for encoders of this kind on one GPU
PROCESSOR_UTILIZATION = 0.5  # of the rate of matrix products


def utilization(flops: float, seconds: float, tflops: float, count: int = 1) -> float:
    """Returns model FLOPs utilization: the operations of a run relative to what its devices could have done."""
    return flops / (seconds * tflops * 1e12 * count)


def seconds(flops: float, tflops: float, *, count: int = 1, used: float = UTILIZATION) -> float:
    """Returns the time of `flops` operations on `count` devices at a share `used` of their peak rate."""
    return flops / (tflops * 1e12 * count * used)


def energy_kwh(watts: float, hours: float, *, pue: float = 1.0) -> float:
    """Returns the energy of a mean power over some hours. Source: Strubell et al. 2019, equation 1."""
    return watts * hours / 1000 * pue


def carbon_kg(kwh: float, g_per_kwh: float) -> float:
    """Returns the CO2 equivalents of electricity."""
    return kwh * g_per_kwh / 1000
