"""The section ``stratiform`` of a request: its JSON types, its reader, and the values of its fields."""
