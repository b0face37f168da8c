"""Predicting, measuring and comparing models; charts and reports."""
