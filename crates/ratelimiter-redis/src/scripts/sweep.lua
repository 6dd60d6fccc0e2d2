-- Forgets leases that have lapsed, and limits made from templates that are not in use any more.
--
-- ARGV: how long and how many past leases are remembered; the most leases to look at, and the rank of the first; the most instances to look
-- at, their template, and the key to begin after.
-- Answer: the number of open leases, the rank to continue at, the key to continue after; empty if that was the last.
--
-- Cost: 4 operations; 1 for each lease, 4 more if it has lapsed; for each instance 1, 2 or more if something of it has expired, and 2
-- or 3 to forget it.

local remember, remember_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local lease_count, rank = tonumber(ARGV[3]), tonumber(ARGV[4])
local instance_count, template, after = tonumber(ARGV[5]), ARGV[6], ARGV[7]
is_current('', call('GET', META))

--@ instances
--@ collect
--@ past

local OPEN = PREFIX .. 'open'

local kept = 0
-- The first member is no lease.
local ids = call('ZRANGE', OPEN, rank + 1, rank + lease_count)
for _, id in ipairs(ids) do
  local lease = lease_from(call('GET', name_of_lease(id)), remember)
  if not lease or lease[STATE] ~= 'o' then
    call('ZREM', OPEN, id)
  elseif lease[LAPSES_AT] <= NOW then
    call('ZREM', OPEN, id)
    remember_lease(id, { 'e', lease[AT], lease[LAPSES_AT] + remember }, remember, remember_max)
  else
    kept = kept + 1
  end
end
local next_rank = #ids < lease_count and 0 or rank + kept

local last = ''
if template ~= '' then
  keep_counts(template)
  recount(template)
  local keys = call('ZRANGEBYLEX', instances_of(template), after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, instance_count)
  for _, key in ipairs(keys) do
    local limit = limit_of(key)
    if limit.exists and limit.used == 0 and limit.open == 0 then
      if call('EXISTS', name_of_cleared(key)) == 1 then
        retire(limit)
      else
        call('UNLINK', limit.name, limit.live)
        limit.exists, limit.is_dirty = false, false
      end
    end
    if not limit.exists and call('HEXISTS', DEBTS, key) == 0 then
      remove_instance(template, key)
    end
  end
  last = #keys == instance_count and keys[#keys] or ''
end
return answer('swept', NOW, math.max(call('ZCARD', OPEN) - 1, 0), next_rank, last)
