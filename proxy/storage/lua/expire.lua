-- ARGV: now, the most to bill at once. Returns how many were billed.
local now = tonumber(ARGV[1])
mend_due(now)
local billed = bill_due(now, tonumber(ARGV[2]))
prune(now, 500)
return billed
