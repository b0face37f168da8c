"""Settings every test shares."""

import os

from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the libraries we compare with shall not look for anything elsewhere

# Machines are shared and slow at times; a test never fails for that. The same examples every run.
settings.register_profile("bertie", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("bertie")
