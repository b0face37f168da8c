"""Metrics, comparisons with intervals, reports."""
