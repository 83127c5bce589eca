-- ARGV: now, when these are forgotten, time to live in ms, the most memory of the scope, then name and blob of each.
local now, until_s, ttl_ms, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- What a blob takes of the server's memory, at most: its name stands in all three keys, every allocation is rounded up
-- by a quarter at most (jemalloc's size classes), and entries of two hashes and a sorted set come on top.
local function weight(name, blob)
    return 256 + math.ceil(1.25 * (3 * #name + #blob))
end

local function drop(name)
    local size = redis.call("HGET", SIZES, name)
    if size then
        redis.call("HINCRBY", SIZES, "", -size)
        redis.call("HDEL", SIZES, name)
        redis.call("HDEL", BLOBS, name)
        redis.call("ZREM", UNTIL, name)
    end
end

-- A server that evicts may have taken one of the keys: what is left cannot be bounded any more.
local count = redis.call("ZCARD", UNTIL)
if redis.call("HLEN", BLOBS) ~= count or math.max(0, redis.call("HLEN", SIZES) - 1) ~= count then
    redis.call("DEL", unpack(KEYS))
end
for index = 5, #ARGV, 2 do
    local name, blob = ARGV[index], ARGV[index + 1]
    local size = weight(name, blob)
    drop(name)
    redis.call("HSET", BLOBS, name, blob)
    redis.call("HSET", SIZES, name, size)
    redis.call("HINCRBY", SIZES, "", size)
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
