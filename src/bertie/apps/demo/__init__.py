"""The demo: the whole pipeline on text that every machine has, in minutes, and a report."""
