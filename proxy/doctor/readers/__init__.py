"""Reads logs of calls of models, whatever product has written them: by their content, record by record."""
