-- KEYS (all with the hash tag {directory}): 1 records of one kind, by name; 2 version.  ARGV: name.
-- Returns whether there was one.
local removed = redis.call("HDEL", KEYS[1], ARGV[1])
if removed == 1 then
    redis.call("INCR", KEYS[2])
end
return removed
