"""Charts and self-contained HTML pages, independent of runs, models and tasks."""
