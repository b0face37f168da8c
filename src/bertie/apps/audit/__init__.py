"""Audits: what a model prefers between groups of people, measured with published sets and with own texts."""
