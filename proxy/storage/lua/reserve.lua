-- ARGV: exchange id, now, expires_at, reservation.
-- Returns {1, balances, epoch} where granted, {0, index of the charge that was refused, its balance} else.
local id, now, expires_at, record = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
bill_due(now, 100)
prune(now, 10)
local _, _, charges = reservation_of(record)

if is_known(id) then
    hold_on(id, expires_at, record)
    return { 1, balances(charges, now), epoch() }
end

for index, charge in ipairs(charges) do
    local spent, reserved, expected = balance(charge, now)
    local limit = charge[3]
    if limit and spent + reserved + charge[2] > limit then
        return { 0, index - 1, { spent, reserved, expected } }
    end
end
hold(id, now, expires_at, record)
return { 1, balances(charges, now), epoch() }
