"""Applications: each stands on the library, and only the table of commands knows them."""
