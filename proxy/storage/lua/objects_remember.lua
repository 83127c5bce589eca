-- ARGV: team, now, the most objects, then name, server, when it is forgotten and record of each.
local team, now, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
prune(team, now, 100)

-- What another team's record says counts until it ends, also where nobody has pruned it yet.
local function is_anothers(owner, name)
    local holder = redis.call("HGET", OWNERS, owner)
    if not holder or holder == team then
        return false
    end
    local found = redis.call("HGET", RECORDS, holder .. "\0" .. name)
    return found and cjson.decode(found).forget_at > tonumber(now)
end

for index = 4, #ARGV, 4 do
    local name, owner, ends, record = ARGV[index], ARGV[index + 1] .. "\0" .. ARGV[index], ARGV[index + 2], ARGV[index + 3]
    local known = redis.call("ZSCORE", ENDS, name)
    if known and tonumber(known) > tonumber(now) then
        if tonumber(ends) > tonumber(known) then
            local before = cjson.decode(redis.call("HGET", RECORDS, team .. "\0" .. name))
            before.forget_at = tonumber(ends)
            redis.call("HSET", RECORDS, team .. "\0" .. name, cjson.encode(before))
            redis.call("ZADD", ENDS, ends, name)
        end
    elseif not is_anothers(owner, name) then
        redis.call("HSET", RECORDS, team .. "\0" .. name, record)
        redis.call("HSET", OWNERS, owner, team)
        redis.call("ZADD", ENDS, ends, name)
    end
end
local excess = redis.call("ZCARD", ENDS) - most
if excess > 0 then
    for _, name in ipairs(redis.call("ZRANGE", ENDS, 0, excess - 1)) do
        drop(team, name)
    end
end
