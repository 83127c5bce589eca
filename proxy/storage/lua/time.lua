-- KEYS: any key of the node that is asked. Returns the node's clock: seconds and microseconds.
return redis.call("TIME")
