-- Money of one team. This text stands in front of every script of a team.
--
-- All keys carry the hash tag {t:TEAM}, so that a cluster keeps them on one node, and all are named by the caller:
--
--  KEYS            type  field or member -> value          what bounds it
--  1 accounts      hash  s:ACCOUNT, r:ACCOUNT, e:ACCOUNT   2
--                        -> spent, reserved, expected;
--                        epoch -> the store's epoch
--  2 forget        zset  ACCOUNT -> when it is forgotten   emptied as time passes; no member: never forgotten
--  3 open          hash  exchange id -> reservation        4
--  4 due           zset  exchange id -> when it expires    billed as time passes
--  5 closed        hash  exchange id -> reservation that   6
--                        was billed; "" where released
--  6 closed_until  zset  exchange id -> when forgotten     emptied as time passes
--  7 entries       hash  exchange id -> ledger entry       the ledger's retention
--  8 order         zset  exchange id -> at                 the ledger's retention
--  9 claims        zset  name -> until when                emptied as time passes
--
-- A reservation is msgpack: [at, entry, [[account, amount, limit, keep_s, expected, [within ...]] ...]]. An entry is
-- JSON, and text to these scripts. Times are unix seconds as text: Lua prints numbers with 14 digits only.
-- Counters are exact to 2^53: Lua computes in doubles.

local ACCOUNTS, FORGET, OPEN, DUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CLOSED, CLOSED_UNTIL, ENTRIES, ORDER, CLAIMS = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local REMEMBERED_S = 86400
local LEASE_S = 60

-- The team's copy of the store's epoch; empty where there is none. It stands among the counters, so that it is lost with
-- them.
local function epoch()
    return redis.call("HGET", ACCOUNTS, "epoch") or ""
end

local function text(number)
    return string.format("%.17g", number)
end

local function forget_account(account)
    redis.call("HDEL", ACCOUNTS, "s:" .. account, "r:" .. account, "e:" .. account)
    redis.call("ZREM", FORGET, account)
end

-- Spent, reserved and expected of one counter.
local function counter(account, now)
    local found = redis.call("HMGET", ACCOUNTS, "s:" .. account, "r:" .. account, "e:" .. account)
    local spent, reserved, expected = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)
    if spent ~= 0 and reserved == 0 then
        local until_s = redis.call("ZSCORE", FORGET, account)
        if until_s and tonumber(until_s) <= now then
            forget_account(account)
            return 0, 0, 0
        end
    end
    return spent, reserved, expected
end

-- The same of a charge's counter and those within its limit.
local function balance(charge, now)
    local spent, reserved, expected = counter(charge[1], now)
    for _, account in ipairs(charge[6] or {}) do
        local s, r, e = counter(account, now)
        spent, reserved, expected = spent + s, reserved + r, expected + e
    end
    return spent, reserved, expected
end

local function balances(charges, now)
    local found = {}
    for index, charge in ipairs(charges) do
        found[index] = { balance(charge, now) }
    end
    return found
end

local function add(kind, account, amount)
    if amount ~= 0 then
        redis.call("HINCRBY", ACCOUNTS, kind .. account, string.format("%.0f", amount))
    end
end

-- A counter that was forgotten meanwhile owes nothing.
local function take_back(kind, account, amount)
    local stands = tonumber(redis.call("HGET", ACCOUNTS, kind .. account) or 0)
    add(kind, account, -math.min(stands, amount))
end

local function touch(charge, now)
    if charge[4] then
        redis.call("ZADD", FORGET, text(now + charge[4]), charge[1])
    else
        redis.call("ZREM", FORGET, charge[1])
    end
end

local function reservation_of(record)
    local parts = cmsgpack.unpack(record)
    return parts[1], parts[2], parts[3]
end

-- Whether an exchange was reserved, released or settled before.
local function is_known(id)
    return redis.call("HEXISTS", OPEN, id) == 1
        or redis.call("HEXISTS", CLOSED, id) == 1
        or redis.call("HEXISTS", ENTRIES, id) == 1
end

local function hold(id, now, expires_at, record)
    local _, _, charges = reservation_of(record)
    for _, charge in ipairs(charges) do
        add("r:", charge[1], charge[2])
        add("e:", charge[1], charge[5])
        touch(charge, now)
    end
    redis.call("HSET", OPEN, id, record)
    redis.call("ZADD", DUE, expires_at, id)
end

-- A reservation that is open is asked for again: it keeps its charges, and gets the new entry and the later end.
local function hold_on(id, expires_at, record)
    local open = redis.call("HGET", OPEN, id)
    if open then
        local at, entry = reservation_of(record)
        local _, _, charges = reservation_of(open)
        redis.call("HSET", OPEN, id, cmsgpack.pack({ at, entry, charges }))
        redis.call("ZADD", DUE, "GT", expires_at, id)
    end
end

local function lift_reserved(charges, now)
    for _, charge in ipairs(charges) do
        take_back("r:", charge[1], charge[2])
        take_back("e:", charge[1], charge[5])
        touch(charge, now)
    end
end

local function close(id, record, now)
    redis.call("HDEL", OPEN, id)
    redis.call("ZREM", DUE, id)
    redis.call("HSET", CLOSED, id, record)
    redis.call("ZADD", CLOSED_UNTIL, text(now + REMEMBERED_S), id)
end

local function write(id, at, entry)
    redis.call("HSET", ENTRIES, id, entry)
    redis.call("ZADD", ORDER, at, id)
end

-- Bill reservations that have expired as they stand; how many there were. A server that evicts may have taken their
-- records: nothing is left to bill then, and the team's other calls must go on.
local function bill_due(now, most)
    local ids = redis.call("ZRANGEBYSCORE", DUE, "-inf", text(now), "LIMIT", 0, most)
    for _, id in ipairs(ids) do
        local record = redis.call("HGET", OPEN, id)
        if record then
            local at, entry, charges = reservation_of(record)
            lift_reserved(charges, now)
            for _, charge in ipairs(charges) do
                add("s:", charge[1], charge[2])
            end
            write(id, at, entry)
            close(id, record, now)
        else
            redis.call("ZREM", DUE, id)
        end
    end
    return #ids
end

-- A server that evicts may have taken the times at which reservations expire. They expire a lease later then, unless
-- their worker renews them before.
local function mend_due(now)
    if redis.call("HLEN", OPEN) ~= redis.call("ZCARD", DUE) then
        for _, id in ipairs(redis.call("HKEYS", OPEN)) do
            redis.call("ZADD", DUE, "NX", text(now + LEASE_S), id)
        end
    end
end

-- Drop what may be forgotten, a little each time.
local function prune(now, most)
    for _, account in ipairs(redis.call("ZRANGEBYSCORE", FORGET, "-inf", text(now), "LIMIT", 0, most)) do
        if tonumber(redis.call("HGET", ACCOUNTS, "r:" .. account) or 0) == 0 then
            forget_account(account)
        end
    end
    local ids = redis.call("ZRANGEBYSCORE", CLOSED_UNTIL, "-inf", text(now), "LIMIT", 0, most)
    for _, id in ipairs(ids) do
        redis.call("HDEL", CLOSED, id)
        redis.call("ZREM", CLOSED_UNTIL, id)
    end
    redis.call("ZREMRANGEBYSCORE", CLAIMS, "-inf", text(now))
end

-- Write the entry, and replace what is reserved by the final charges.
local function settle(id, now, at, entry, final)
    local open = redis.call("HGET", OPEN, id)
    local closed = redis.call("HGET", CLOSED, id)

    if not open and not closed and redis.call("HEXISTS", ENTRIES, id) == 1 then
        return -- settled before
    end
    if open then
        local _, _, charges = reservation_of(open)
        lift_reserved(charges, now)
        redis.call("HDEL", OPEN, id)
        redis.call("ZREM", DUE, id)
    elseif closed then
        if closed ~= "" then -- it was billed as it stood: that is taken back
            local _, _, charges = reservation_of(closed)
            for _, charge in ipairs(charges) do
                take_back("s:", charge[1], charge[2])
            end
        end
        redis.call("HDEL", CLOSED, id)
        redis.call("ZREM", CLOSED_UNTIL, id)
    end
    for _, charge in ipairs(final) do
        counter(charge[1], now) -- what is to be forgotten is forgotten before it is added to
        add("s:", charge[1], charge[2])
        touch(charge, now)
    end
    write(id, at, entry)
end

-- Give a reservation that is open back. One that comes later will find it closed.
local function release(id, now)
    local open = redis.call("HGET", OPEN, id)
    if open then
        local _, _, charges = reservation_of(open)
        lift_reserved(charges, now)
    elseif redis.call("HEXISTS", CLOSED, id) == 1 or redis.call("HEXISTS", ENTRIES, id) == 1 then
        return
    end
    close(id, "", now)
end
