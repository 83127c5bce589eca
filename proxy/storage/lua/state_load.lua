-- ARGV: now, names. Returns their blobs, or false.
local found = {}
for index = 2, #ARGV do
    local until_s = redis.call("ZSCORE", UNTIL, ARGV[index])
    found[index - 1] = until_s and tonumber(until_s) > tonumber(ARGV[1]) and redis.call("HGET", BLOBS, ARGV[index])
end
return found
