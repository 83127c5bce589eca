-- ARGV: team, name.
drop(ARGV[1], ARGV[2])
