"""Tools that every other package uses: errors, the clock, tasks, bounded tables, digests, words for modes and reasons."""
