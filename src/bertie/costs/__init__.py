"""What a run costs: operations and memory of a job, power of devices and grids, and the meter of a run."""
