-- ARGV: exchange id, now.
release(ARGV[1], tonumber(ARGV[2]))
