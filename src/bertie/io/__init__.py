"""Files of any format, and tables in memory: bytes -> lines -> rows -> records."""
