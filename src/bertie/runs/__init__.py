"""Whole runs, from files to a run folder: what the command line and the demo both call."""
