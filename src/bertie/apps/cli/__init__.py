"""The command line of Bertie: the table of commands in table.py, and one file per command."""
