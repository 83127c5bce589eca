-- ARGV: name, now, until. Returns whether nobody had claimed it.
local held = redis.call("ZSCORE", CLAIMS, ARGV[1])
if held and tonumber(held) > tonumber(ARGV[2]) then
    return 0
end
redis.call("ZADD", CLAIMS, ARGV[3], ARGV[1])
return 1
