"""Writing a model for other programs to run, after its answers there were compared with those here."""
