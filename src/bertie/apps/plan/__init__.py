"""The cost of a run before it starts, on every device: operations, memory, time, energy, CO2 and money."""
