"""What models, families and published data sets are like."""
