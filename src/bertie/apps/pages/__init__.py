"""The pages of the documentation, which a wheel has too."""
