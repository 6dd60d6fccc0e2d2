-- Ends an open lease: releases its holds and corrects its reservations to the actual use.
--
-- ARGV: lease, generation, how long and how many past leases are remembered, what for; then for each actual: units, whether use above the
-- reservation is a debt, and the definition.
-- What for: `complete`; `release`, which tells whether the lease was open; `return`, which gives back everything of a lease that nobody was
-- told of.
--
-- Cost, with n limits, after the 2 operations of `complete_plain.lua`: 1; for each limit 1 or 2 to change its reservation (4 more for one in 16, if it has many), 1 to store it; then 3.

-- What is not defined here is defined in `complete_plain.lua`.
local generation, purpose = ARGV[2], ARGV[5]

if not is_current(generation, stored[1]) then
  return { 'stale', NOW, meta_generation }
end
local lease = lease_from(stored[2], remember)
if not lease or lease[STATE] ~= 'o' or lease[LAPSES_AT] <= NOW then
  return { 'unknown', NOW }
end
if purpose == 'return' and lease[MAY_RETURN] == '' then
  return { 'kept', NOW }
end

--@ instances
--@ collect
--@ take_out
--@ parts
--@ gather

-- Checks come before the first change.
local actuals, has_live = {}, nil
for at = 6, #ARGV, 8 do
  local known = definition(at + 2)
  actuals[known.key] = { units = tonumber(ARGV[at]), text = ARGV[at], is_debt = ARGV[at + 1] == '1', known = known }
  local is_held = false
  for _, need in ipairs(lease[NEEDS]) do
    is_held = is_held or (need[KEY] == known.key and need[KIND] ~= 'c')
  end
  if not is_held then
    -- If all that is left are limits that were deleted, there is nothing to be wrong about.
    if has_live == nil then
      has_live = false
      for _, need in ipairs(lease[NEEDS]) do
        each_live(need[PARTS], function(sequence, units)
          local live = PREFIX .. 'live:' .. need[KEY]
          has_live = has_live or call('ZSCORE', live, member_of(sequence, 'o', units)) ~= false
        end)
      end
    end
    if has_live then
      return { 'invalid', NOW, known.key }
    end
  end
end

for index, need in ipairs(lease[NEEDS]) do
  names[index] = name_of_limit(need[KEY])
end
local values = call('MGET', unpack(names))
local ends = {}
for index, need in ipairs(lease[NEEDS]) do
  local actual = need[KIND] ~= 'c' and actuals[need[KEY]] or nil
  local one = { need = need, actual = actual, live = 0, excess = 0 }
  each_live(need[PARTS], function(_, units) one.live = one.live + units; one.is_live = true end)
  if one.is_live then
    local known = actual and actual.known.kind == need[KIND] and actual.known or nil
    one.limit = limit_from(need[KEY], values[index], known)
    if known then
      collect(one.limit)
      judge(one.limit)
      one.excess = math.max(actual.units - need[RESERVED], 0)
      one.fits = fits(one.limit, one.excess)
      if not one.fits and one.limit.is_behind then
        return answer('again')
      end
    end
  end
  ends[index] = one
end

local freed, uncovered = {}, {}
local renews = lease[RENEWS]

-- Counts use above the reservation that has no room.
local function note_uncovered(one)
  --@ decimals
  --@ debts
  local actual = one.actual
  local excess = minus(actual.text, one.need[RESERVED])
  uncovered[#uncovered + 1] = actual.known.key
  uncovered[#uncovered + 1] = excess
  if actual.is_debt then
    local debt = plus(units_of_debt(call('HGET', DEBTS, actual.known.key)), excess)
    call('HSET', DEBTS, actual.known.key, actual.known.kind .. debt)
    if actual.known.template ~= '' then
      add_instance(actual.known.template, actual.known.key)
    end
  end
end

for _, one in ipairs(ends) do
  local need, limit, actual = one.need, one.limit, one.actual
  if limit then
    freed[#freed + 1] = need[KEY]
    -- How much of what is live is given back; what expires first goes first.
    local surplus = 0
    if need[KIND] == 'c' or purpose == 'return' then
      surplus = one.live
    elseif actual then
      local lapsed = need[RESERVED] - one.live
      surplus = math.max(one.live - math.max(actual.units - lapsed, 0), 0)
    end
    local was_there, parts = false, need[PARTS]
    for at = 1, #parts, 3 do
      local sequence, units, expires_at = parts[at], parts[at + 1], parts[at + 2]
      if expires_at > NOW and take_out(limit, sequence, units) then
        local back = math.min(surplus, units)
        surplus = surplus - back
        local kept = units - back
        if at == #parts - 2 and one.excess > 0 and one.fits then
          kept = kept + one.excess
        end
        if kept > 0 then
          add_live(limit, expires_at, '+' .. member_of(sequence, 'c', kept))
          limit.used = limit.used + kept
        end
        if sequence % 16 == 0 then
          gather(limit.live, limit.kind, limit.life, limit.sequence, sequence, lease[AT], expires_at, limit.kept_until)
        end
        was_there = true
      end
    end
    if one.excess > 0 and not one.fits and was_there then
      note_uncovered(one)
    end
  elseif actual and actual.known.kind == need[KIND] and (need[KIND] == 'k' or (renews and renews[2])) then
    -- CAL-04, REN-01: all of it has lapsed, and the lease is still open. Use above it has no room.
    if actual.units > need[RESERVED] then
      note_uncovered(one)
    end
  end
end

--@ past

call('ZREM', PREFIX .. 'open', id)
remember_lease(id, { 'e', lease[AT], NOW + remember }, remember, remember_max)
return answer('ended', NOW, freed, uncovered)
