"""Tools that every other package uses: errors, the clock, tasks, bounded tables, digests, modes and reasons."""
