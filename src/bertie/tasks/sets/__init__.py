"""The rows of the table of published data sets."""
