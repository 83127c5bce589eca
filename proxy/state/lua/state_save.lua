-- ARGV: now, when these are forgotten, time to live in ms, the most bytes of the scope, then name and blob of each.
local now, until_s, ttl_ms, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local function drop(name)
    local size = redis.call("HGET", SIZES, name)
    if size then
        redis.call("HINCRBY", SIZES, "", -size)
        redis.call("HDEL", SIZES, name)
        redis.call("HDEL", BLOBS, name)
        redis.call("ZREM", UNTIL, name)
    end
end

for index = 5, #ARGV, 2 do
    local name, blob = ARGV[index], ARGV[index + 1]
    drop(name)
    redis.call("HSET", BLOBS, name, blob)
    redis.call("HSET", SIZES, name, #name + #blob)
    redis.call("HINCRBY", SIZES, "", #name + #blob)
    redis.call("ZADD", UNTIL, until_s, name)
end
for _, name in ipairs(redis.call("ZRANGEBYSCORE", UNTIL, "-inf", now, "LIMIT", 0, 50)) do
    drop(name)
end
while tonumber(redis.call("HGET", SIZES, "") or 0) > most do
    drop(redis.call("ZRANGE", UNTIL, 0, 0)[1])
end
for _, key in ipairs(KEYS) do
    if redis.call("PTTL", key) < ttl_ms then
        redis.call("PEXPIRE", key, ttl_ms)
    end
end
