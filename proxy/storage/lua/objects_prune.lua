-- ARGV: team, now, the most records to drop.
prune(ARGV[1], ARGV[2], tonumber(ARGV[3]))
