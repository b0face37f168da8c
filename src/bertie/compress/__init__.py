"""Making a trained model smaller and faster, with what it costs measured."""
