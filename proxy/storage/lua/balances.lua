-- ARGV: now, accounts. Returns {spent, reserved, expected} of each.
local found = {}
for index = 2, #ARGV do
    found[index - 1] = { counter(ARGV[index], tonumber(ARGV[1])) }
end
return found
