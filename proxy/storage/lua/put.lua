-- KEYS (all with the hash tag {directory}): 1 records of one kind, by name; 2 version.  ARGV: name, record.
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
return redis.call("INCR", KEYS[2])
