-- ARGV: now, calls. A call is msgpack: [exchange id, at, entry, final charges] settles, [exchange id] releases.
local now = tonumber(ARGV[1])
for index = 2, #ARGV do
    local call = cmsgpack.unpack(ARGV[index])
    if call[2] then
        settle(call[1], now, call[2], call[3], call[4])
    else
        release(call[1], now)
    end
end
