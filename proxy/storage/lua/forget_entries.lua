-- ARGV: before, the most at once. Returns how many were deleted.
local ids = redis.call("ZRANGEBYSCORE", ORDER, "-inf", "(" .. ARGV[1], "LIMIT", 0, tonumber(ARGV[2]))
for _, id in ipairs(ids) do
    redis.call("HDEL", ENTRIES, id)
    redis.call("ZREM", ORDER, id)
end
return #ids
