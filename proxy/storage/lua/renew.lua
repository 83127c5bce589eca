-- ARGV: expires_at, exchange ids.
for index = 2, #ARGV do
    redis.call("ZADD", DUE, "XX", ARGV[1], ARGV[index])
end
