-- ARGV: exchange id, now, at, entry, final charges. Returns the balances of the final charges.
local id, now, at, entry = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local final = cmsgpack.unpack(ARGV[5])
local open = redis.call("HGET", OPEN, id)
local closed = redis.call("HGET", CLOSED, id)

if not open and not closed and redis.call("HEXISTS", ENTRIES, id) == 1 then
    return balances(final, now) -- settled before
end
if open then
    local _, _, charges = reservation_of(open)
    lift_reserved(charges, now)
    redis.call("HDEL", OPEN, id)
    redis.call("ZREM", DUE, id)
elseif closed then
    if closed ~= "" then -- it was billed as it stood: that is taken back
        local _, _, charges = reservation_of(closed)
        for _, charge in ipairs(charges) do
            take_back("s:", charge[1], charge[2])
        end
    end
    redis.call("HDEL", CLOSED, id)
    redis.call("ZREM", CLOSED_UNTIL, id)
end
for _, charge in ipairs(final) do
    counter(charge[1], now) -- what is to be forgotten is forgotten before it is added to
    add("s:", charge[1], charge[2])
    touch(charge, now)
end
write(id, at, entry)
return balances(final, now)
