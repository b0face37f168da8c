"""The public functions that take data in any form, and the values that they return."""
