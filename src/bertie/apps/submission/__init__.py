"""Submissions to the GLUE server: written and checked."""
