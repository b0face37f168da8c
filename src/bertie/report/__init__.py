"""Charts and self-contained pages: numbers in, HTML out. Knows no run, model or task."""
