-- Open leases, the oldest first.
--
-- ARGV: how long and how many past leases are remembered; the most leases; the time, in milliseconds, and the ID of the lease to begin after; the
-- time empty to look it up, both empty to begin with the first.
-- Answer for each lease: ID, time of the reserve, job, and what is live of it: key, units, expiry.
--
-- Cost: 2 operations; for each lease 1, and 1 for each of its limits.

--@ parts

local OPEN = PREFIX .. 'open'
local remember, count = tonumber(ARGV[1]), tonumber(ARGV[3])
local after_at, after = ARGV[4], ARGV[5]
if after_at == '' and after ~= '' then
  local lease = lease_from(call('GET', name_of_lease(after)), remember)
  if not lease or lease[STATE] == 'd' then
    return { 'unknown', NOW }
  end
  after_at = text(math.floor(lease[AT] / 1000))
end

local rows, last_at, last = {}, after_at, after
local from = after_at == '' and '1' or after_at
local ids = call('ZRANGEBYSCORE', OPEN, from, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
-- Leases of one moment are sorted by ID. If those up to `after` are more than a page, the next pages have the rest.
local offset = 0
while after ~= '' and #ids > 0 and tonumber(ids[#ids]) == tonumber(after_at) and ids[#ids - 1] <= after do
  offset = offset + count
  ids = call('ZRANGEBYSCORE', OPEN, from, '+inf', 'WITHSCORES', 'LIMIT', offset, count)
end
local is_end = #ids < count * 2
for at = 1, #ids, 2 do
  local id, reserved_at = ids[at], tonumber(ids[at + 1])
  local is_after = after == '' or reserved_at > tonumber(after_at) or id > after
  if is_after then
    last_at, last = ids[at + 1], id
    local lease = lease_from(call('GET', name_of_lease(id)), remember)
    if lease and lease[STATE] == 'o' then
      local amounts = {}
      for _, need in ipairs(lease[NEEDS]) do
        local units, expires_at, is_there = 0, 0, false
        each_live(need[PARTS], function(sequence, part, part_expires_at)
          units, expires_at = units + part, part_expires_at
          is_there = call('ZSCORE', PREFIX .. 'live:' .. need[KEY], member_of(sequence, 'o', part)) ~= false
        end)
        if is_there and units > 0 then
          amounts[#amounts + 1] = { need[KEY], text(units), expires_at }
        end
      end
      rows[#rows + 1] = { id, lease[AT], lease[JOB], amounts }
    end
  end
end
return { 'leases', NOW, rows, is_end and 1 or 0, last_at, last }
