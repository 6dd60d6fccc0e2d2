-- Reserves all requirements of a lease, or nothing.
--
-- ARGV: lease, generation, how long and how many past leases are remembered, the most instances and new ones in a second, the index of a
-- requirement that others wait for (0: none), whether the caller waits, the name of the server if it may return the lease, job, whether an earlier attempt had no
-- answer;
-- then for each requirement its units and definition.
--
-- Cost, with n limits, after the 2 operations of `reserve_plain.lua`: for each limit 2 for each batch that has expired; then
-- allowed: 2 * n + 2, and 1 for each TTL that grows; denied: n + 2 to remember it, and the search for the hint; repeated: n.

-- What is not defined here is defined in `reserve_plain.lua`.
local remember_max = tonumber(ARGV[4])
local behind, waits, may_return = tonumber(ARGV[7]), ARGV[8] == '1', ARGV[9]

if not is_current(generation, stored[1]) then
  return { 'stale', NOW, meta_generation }
end
local lease = lease_from(stored[2], remember)
if lease and lease[STATE] == 'e' then
  return { 'ended' }
end

--@ instances
--@ collect

local needs, is_behind, lacks_period = {}, false, false
for at = 12, #ARGV, 7 do
  local known = definition(at + 1)
  local limit = limit_from(known.key, stored[#needs + 3], known)
  collect(limit)
  judge(limit)
  local need = { limit = limit, units = tonumber(ARGV[at]), expires_at = expiry_of(limit), index = #needs + 1 }
  need.fits = fits(limit, need.units)
  is_behind = is_behind or limit.is_behind
  lacks_period = lacks_period or not need.expires_at
  needs[#needs + 1] = need
end
if lacks_period then
  return answer('period', NOW)
end

-- Those of the requirements for which `is_so` holds.
local function those(is_so)
  local found = {}
  for _, need in ipairs(needs) do
    if is_so(need) then
      found[#found + 1] = need
    end
  end
  return found
end

--@ hints

local function hints_of(lacking)
  local hints = {}
  for _, need in ipairs(lacking) do
    hints[#hints + 1] = hint_of(need.index, need.limit, need.units)
  end
  return hints
end

if lease and lease[STATE] == 'o' then
  -- The same again, while all of it is live: allowed, with the first time. Renews do not count.
  local renews = lease[RENEWS]
  local has_lapsed = renews and renews[3]
  for _, need in ipairs(lease[NEEDS]) do
    for at = 3, #need[PARTS], 3 do
      has_lapsed = has_lapsed or need[PARTS][at] <= NOW
    end
  end
  if has_lapsed then
    return answer('ended')
  end
  if #needs ~= #lease[NEEDS] then
    return answer('conflict')
  end
  for _, need in ipairs(needs) do
    local held
    for _, other in ipairs(lease[NEEDS]) do
      held = other[KEY] == need.limit.key and other or held
    end
    if not held then
      return answer('conflict')
    end
    local parts = held[PARTS]
    if not call('ZSCORE', need.limit.live, member_of(parts[#parts - 2], 'o', parts[#parts - 1])) then
      -- The limit was deleted and defined again, so the reservation no longer counts.
      return answer('ended')
    end
    if held[REQUIRED] ~= need.units then
      return answer('conflict')
    end
  end
  if lease[MAY_RETURN] == may_return and ARGV[11] == '1' then
    -- The same server asks again, because it had no answer: nobody was told.
    return answer('allowed', NOW, lease[AT], 1)
  end
  if lease[MAY_RETURN] ~= '' then
    lease[MAY_RETURN] = ''
    save_open_lease(id, lease, remember)
  end
  return answer('allowed', NOW, lease[AT], 0)
end

if lease then
  -- It was denied, and stays denied, with a hint for a new lease.
  local lacking = those(function(need) return need.units > need.limit.available end)
  if #lacking > 0 then
    return is_behind and answer('again') or answer('denied_again', NOW, -1, unpack(hints_of(lacking)))
  end
  local first = needs[1].index
  for _, need in ipairs(needs) do
    first = need.limit.key == lease[FIRST_KEY] and need.index or first
  end
  return answer('denied_before', NOW, first)
end

local limits_of_needs = {}
for _, need in ipairs(needs) do
  limits_of_needs[#limits_of_needs + 1] = need.limit
end
--@ bounds
local new_instances, of_new = check_instances(limits_of_needs, tonumber(ARGV[5]), tonumber(ARGV[6]))
if not new_instances then
  return answer('too_many', NOW, of_new)
end

local lacking = those(function(need) return not need.fits or need.index == behind end)
if #lacking > 0 then
  if is_behind then
    return answer('again')
  end
  local function first(is_so)
    for _, need in ipairs(lacking) do
      if is_so(need) then
        return need.index
      end
    end
  end
  local paused = first(function(need) return is_paused(need.limit) end)
  local over = first(function(need) return need.units > need.limit.ceiling end)
  local decreasing = first(function(need) return need.limit.is_decreasing end)
  if over and not paused then
    return answer('over', NOW, over)
  end
  local lapse = -1
  if waits then
    for _, need in ipairs(lacking) do
      local one = lapse_of(need.limit, math.floor(need.units / 2) + 1) or lapse_of(need.limit, need.units)
      if one and (lapse < 0 or one < lapse) then
        lapse = one
      end
    end
  end
  if paused then
    return answer('paused', NOW, lapse, paused)
  end
  if decreasing then
    return answer('decreasing', NOW, lapse, decreasing)
  end
  if not waits then
    for _, need in ipairs(lacking) do
      need.limit.streak = need.limit.streak + 1
      need.limit.is_dirty = need.limit.exists
    end
    local denied = { 'd', NOW, NOW + remember, lacking[1].limit.key }
    --@ past
    remember_lease(id, denied, remember, remember_max)
  end
  return answer('denied', NOW, lapse, unpack(hints_of(lacking)))
end

if new_instances > 0 then
  call('HSET', COUNTS, unpack(of_new))
end
local held, shadow_denied = {}, {}
for index, need in ipairs(needs) do
  local limit, expires_at = need.limit, need.expires_at
  if limit.known.is_shadow and need.units > limit.known.target - limit.used then
    shadow_denied[#shadow_denied + 1] = index
  end
  local sequence = hold(limit, need.units, expires_at, generation)
  limit.streak = 0
  held[index] = { limit.key, limit.kind, need.units, need.units, { sequence, need.units, expires_at }, limit.kind == 'c' and limit.known.life or 0 }
end
call('ZADD', PREFIX .. 'open', math.floor(NOW / 1000), id)
save_open_lease(id, { 'o', NOW, 0, job, held, may_return, false }, remember)
return answer('allowed', NOW, NOW, 1, unpack(shadow_denied))
