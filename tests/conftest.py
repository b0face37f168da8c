"""Settings every test shares."""

from hypothesis import settings

# Machines are shared and slow at times; a test never fails for that. The same examples every run.
settings.register_profile("bertie", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertie")
