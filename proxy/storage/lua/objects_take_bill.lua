-- ARGV: team, name. Returns the object's bill, once; an empty text where there is none.
local field = ARGV[1] .. "\0" .. ARGV[2]
local found = redis.call("HGET", RECORDS, field)
if not found then
    return ""
end
local record = cjson.decode(found)
local bill = record.bill
if bill ~= "" then
    record.bill = ""
    redis.call("HSET", RECORDS, field, cjson.encode(record))
end
return bill
