"""Models of Python packages in a format of their own, as model folders."""
