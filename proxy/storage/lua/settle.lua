-- ARGV: exchange id, now, at, entry, final charges. Returns the balances of the final charges.
local now, final = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[5])
settle(ARGV[1], now, ARGV[3], ARGV[4], final)
return balances(final, now)
