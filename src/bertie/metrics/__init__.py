"""Figures of merit from true answers and predicted ones; numbers and names in, numbers out."""
