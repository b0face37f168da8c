"""The families: each is one file that holds a `Variant`, and one row of models/families.py."""
