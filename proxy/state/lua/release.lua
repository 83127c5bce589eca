-- ARGV: exchange id, now. A reservation that is still open is given back; one that comes later will find it closed.
local id, now = ARGV[1], tonumber(ARGV[2])
local open = redis.call("HGET", OPEN, id)
if open then
    local _, _, charges = reservation_of(open)
    lift_reserved(charges, now)
elseif redis.call("HEXISTS", CLOSED, id) == 1 or redis.call("HEXISTS", ENTRIES, id) == 1 then
    return
end
close(id, "", now)
