-- ARGV: now, calls. A call is msgpack: [exchange id, at, entry, final charges] settles, [exchange id] releases, and
-- [exchange id, expires_at], which the reservation follows as an argument of its own, reserves whatever the limits are.
local now = tonumber(ARGV[1])
local index = 2
while index <= #ARGV do
    local call = cmsgpack.unpack(ARGV[index])
    if call[4] then
        settle(call[1], now, call[2], call[3], call[4])
    elseif call[2] then
        index = index + 1
        if is_known(call[1]) then
            hold_on(call[1], call[2], ARGV[index])
        else
            hold(call[1], now, call[2], ARGV[index])
        end
    else
        release(call[1], now)
    end
    index = index + 1
end
