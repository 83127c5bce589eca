-- ARGV: since, until, the last id of the page before or "", the most. Returns entries in the order of (at, id).
local since, before, after, most = ARGV[1], "(" .. ARGV[2], ARGV[3], tonumber(ARGV[4])
local passed = after ~= "" and redis.call("ZCOUNT", ORDER, since, since) or 0
local found = {}
local range = redis.call("ZRANGEBYSCORE", ORDER, since, before, "WITHSCORES", "LIMIT", 0, most + passed)
for index = 1, #range, 2 do
    local id, at = range[index], range[index + 1]
    if #found < most and (after == "" or tonumber(at) > tonumber(since) or id > after) then
        found[#found + 1] = redis.call("HGET", ENTRIES, id)
    end
end
return found
