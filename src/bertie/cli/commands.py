"""The list of commands: importing a file here adds its commands to the app, in this order."""

__all__: list[str] = []
