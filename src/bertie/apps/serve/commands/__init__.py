"""The commands of this application."""
