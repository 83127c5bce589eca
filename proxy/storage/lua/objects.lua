-- Whose the objects of the provider's account are. This text stands in front of its scripts.
--
-- All keys carry the hash tag {objects}, so that a cluster keeps them on one node:
--
--  KEYS       type  field or member -> value              what bounds it
--  1 records  hash  TEAM, a zero byte, name -> JSON        3
--  2 owners   hash  server, a zero byte, name -> TEAM      3
--  3 ends     zset  name -> when it is forgotten           emptied as time passes; the most objects of a team
--
-- The last key is one for each team. Times are unix seconds as text.
local RECORDS, OWNERS, ENDS = KEYS[1], KEYS[2], KEYS[3]

local function drop(team, name)
    local found = redis.call("HGET", RECORDS, team .. "\0" .. name)
    if found then
        local owner = cjson.decode(found).server .. "\0" .. name
        if redis.call("HGET", OWNERS, owner) == team then
            redis.call("HDEL", OWNERS, owner)
        end
        redis.call("HDEL", RECORDS, team .. "\0" .. name)
    end
    redis.call("ZREM", ENDS, name)
end

local function prune(team, now, most)
    for _, name in ipairs(redis.call("ZRANGEBYSCORE", ENDS, "-inf", now, "LIMIT", 0, most)) do
        drop(team, name)
    end
end
