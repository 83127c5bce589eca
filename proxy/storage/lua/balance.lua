-- ARGV: now, one charge in a list. Returns {spent, reserved, expected} of its counter and those within its limit.
return { balance(cmsgpack.unpack(ARGV[2])[1], tonumber(ARGV[1])) }
