"""Export of models to other formats, checked against the model before anything is written."""
