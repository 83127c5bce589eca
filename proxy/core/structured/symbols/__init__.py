"""Makes the map of the repository.

What a symbol index gives comes in; the legend with the short names of directories and the chunks that are sent go out.
This package never reads a file.
"""
