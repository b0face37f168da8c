"""The cost of a pre-training run before it starts: operations, memory, time, energy, money and CO2, by device."""
