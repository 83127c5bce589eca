-- ARGV: now, how many blobs at most, and the place behind which the page begins: the time and the name of the last blob
-- of the page before. Returns name, when it is forgotten, and blob of each, the last saved first.
local now, most, until_s, last = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- By bytes, as the sorted set does it, whatever the server's locale is.
local function is_before(one, other)
    for index = 1, math.min(#one, #other) do
        local a, b = string.byte(one, index), string.byte(other, index)
        if a ~= b then
            return a < b
        end
    end
    return #one < #other
end

local found, offset = {}, 0
while #found < most do
    local some = redis.call("ZREVRANGEBYSCORE", UNTIL, until_s, "(" .. now, "WITHSCORES", "LIMIT", offset, most)
    for index = 1, #some, 2 do
        local name, score = some[index], some[index + 1]
        if #found < most and (tonumber(score) < tonumber(until_s) or is_before(name, last)) then
            local blob = redis.call("HGET", BLOBS, name)
            if blob then
                found[#found + 1] = {name, score, blob}
            end
        end
    end
    if #some < 2 * most then
        break
    end
    offset = offset + most
end
return found
