"""What models, families, runs and published data sets are like."""
