-- ARGV: now, one charge in a list. What its counters have spent becomes its amount. Returns {spent, reserved, expected}
-- as they were.
local now = tonumber(ARGV[1])
local charge = cmsgpack.unpack(ARGV[2])[1]
local before = { balance(charge, now) }
for _, account in ipairs(charge[6] or {}) do
    redis.call("HDEL", ACCOUNTS, "s:" .. account)
end
redis.call("HDEL", ACCOUNTS, "s:" .. charge[1])
add("s:", charge[1], charge[2])
touch(charge, now)
return before
