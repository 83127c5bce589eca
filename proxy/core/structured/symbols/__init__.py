"""The map of the repository: what an index gives, the short names of directories, and the chunks that are sent."""
