-- ARGV: team, now, names. Returns their records, or false.
local found = {}
for index = 3, #ARGV do
    local ends = redis.call("ZSCORE", ENDS, ARGV[index])
    found[index - 2] = ends and tonumber(ends) > tonumber(ARGV[2])
        and redis.call("HGET", RECORDS, ARGV[1] .. "\0" .. ARGV[index])
end
return found
