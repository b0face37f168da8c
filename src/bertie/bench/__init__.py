"""The measuring programs behind every performance claim, peers side by side."""
