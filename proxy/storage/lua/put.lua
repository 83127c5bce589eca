-- KEYS (all with the hash tag {directory}): 1 records of one kind, by name; 2 version.  ARGV: name, record, and the
-- version that is expected (empty: any). Returns 0, and does nothing, if the version is another one.
if ARGV[3] ~= "" and ARGV[3] ~= (redis.call("GET", KEYS[2]) or "0") then
    return 0
end
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
return redis.call("INCR", KEYS[2])
