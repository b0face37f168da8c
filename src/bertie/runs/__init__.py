"""Complete runs, from files to a run folder. The command line and the demo call them."""
