"""The demo: the whole straight line on text that every machine has, in minutes, and a report of what it taught."""
