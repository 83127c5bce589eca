-- ARGV: expires_at, exchange ids. A reservation that lasts longer is not shortened.
for index = 2, #ARGV do
    redis.call("ZADD", DUE, "XX", "GT", ARGV[1], ARGV[index])
end
