-- How an exchange ends. This text stands behind that of a team, in front of the scripts that end exchanges.

-- Write the entry, and replace what is reserved by the final charges.
local function settle(id, now, at, entry, final)
    local open = redis.call("HGET", OPEN, id)
    local closed = redis.call("HGET", CLOSED, id)

    if not open and not closed and redis.call("HEXISTS", ENTRIES, id) == 1 then
        return -- settled before
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
end

-- Give a reservation that is open back. One that comes later will find it closed.
local function release(id, now)
    local open = redis.call("HGET", OPEN, id)
    if open then
        local _, _, charges = reservation_of(open)
        lift_reserved(charges, now)
    elseif redis.call("HEXISTS", CLOSED, id) == 1 or redis.call("HEXISTS", ENTRIES, id) == 1 then
        return
    end
    close(id, "", now)
end
