"""Formulas of cost: utilization, time, energy, CO2. No assumption is hidden: every factor is an argument."""

PUE = 1.58  # power of a data center per power of its computers: the world's mean in 2018 (Strubell et al. 2019)
UTILIZATION = 0.4  # of the peak rate; 0.2 to 0.45 is usual for encoders of this kind on one GPU
MOST_UTILIZATION = 0.6  # what is said to be higher was mostly measured with another peak, or counts padding
GPU_LOAD = 0.8  # of the board power while training
THREAD_WATTS = 4.0  # of a processor for each busy thread: 65 W of 16 and 360 W of 192 are usual (codecarbon has 4, too)
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


class Costs:
    """The formulas, and what they assume."""

    GPU_LOAD, THREAD_WATTS, PUE = GPU_LOAD, THREAD_WATTS, PUE
    UTILIZATION, MOST_UTILIZATION, PROCESSOR_UTILIZATION = UTILIZATION, MOST_UTILIZATION, PROCESSOR_UTILIZATION
    carbon_kg = staticmethod(carbon_kg)
    energy_kwh = staticmethod(energy_kwh)
    seconds = staticmethod(seconds)
