"""`python -m bertie` is `bertie`."""

from bertie.cli import main

main()
