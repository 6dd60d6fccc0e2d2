-- Sets what an open lease holds of some limits, all or none, and begins the timeouts of its holds again.
--
-- ARGV: lease, generation, how long and how many past leases are remembered, the most instances and new ones in a second, the number of the renew, the
-- number of amounts; then for each amount its units and definition; then for each other hold its key and timeout, if an answer asked for
-- them.
--
-- Cost, with n limits: 2 operations; for each limit 1 to read it, up to 1 + 2 for each part to change it, 1 to store it; then 2 or 3.

local id, generation, remember = ARGV[1], ARGV[2], tonumber(ARGV[3])
local instances_max, per_second_max = tonumber(ARGV[5]), tonumber(ARGV[6])
local number, amount_count = ARGV[7], tonumber(ARGV[8])
-- As in the crate that defines the rules.
local PARTS_MAX = 8

local stored = call('MGET', META, name_of_lease(id))
if not is_current(generation, stored[1]) then
  return { 'stale', NOW, meta_generation }
end
local lease = lease_from(stored[2], remember)
if not lease or lease[STATE] ~= 'o' then
  return { 'ended' }
end
--@ instances
--@ collect
--@ take_out
--@ parts
--@ hints
--@ bounds

local _, renewable_until = lapses_of(lease)
if renewable_until <= NOW then
  return { 'ended' }
end

-- Numbers may have 64 bits: compared as text.
local function is_less(a, b)
  return #a < #b or (#a == #b and a < b)
end
local before = lease[RENEWS]
if before then
  if is_less(number, before[1]) then
    return { 'superseded' }
  end
  if number == before[1] then
    return { 'repeated', NOW, cmsgpack.unpack(before[4]) }
  end
end
local was_renewed, has_lapsed = before and before[2] or false, before and before[3] or false

-- What the lease holds now: each need without what has lapsed.
for _, need in ipairs(lease[NEEDS]) do
  local live = {}
  local parts = need[PARTS]
  for at = 1, #parts, 3 do
    if parts[at + 2] > NOW then
      live[#live + 1], live[#live + 2], live[#live + 3] = parts[at], parts[at + 1], parts[at + 2]
    else
      has_lapsed = true
    end
  end
  need.live = live
end

local changes, by_key = {}, {}
for number_of = 1, amount_count do
  local at = 9 + (number_of - 1) * 7
  local known = definition(at + 1)
  local need
  for _, other in ipairs(lease[NEEDS]) do
    need = other[KEY] == known.key and other or need
  end
  if not need then
    return { 'invalid', NOW, known.key }
  end
  local change = { need = need, known = known, units = tonumber(ARGV[at]), held = 0 }
  for part = 2, #need.live, 3 do
    change.held = change.held + need.live[part]
  end
  changes[number_of], by_key[known.key] = change, change
end
local lives = {}
for at = 9 + amount_count * 7, #ARGV, 2 do
  lives[ARGV[at]] = tonumber(ARGV[at + 1])
end

-- The limits of what changes, and of all holds that go on.
local unknown_lives, is_behind, lacks_period = {}, false, false
for _, need in ipairs(lease[NEEDS]) do
  local change = by_key[need[KEY]]
  local parts = need.live
  local is_hold = need[KIND] == 'c' and #parts > 0
  if change or is_hold then
    local known = change and change.known.kind ~= '' and change.known or nil
    -- A limit of another kind does not take part, unless more is reserved of it.
    local grows = change and change.units > change.held
    if known and known.kind ~= need[KIND] and not grows then
      known = nil
    end
    local limit = limit_of(need[KEY], known)
    need.limit = limit
    need.is_there = #parts > 0 and limit.exists and limit.kind == need[KIND]
      and call('ZSCORE', limit.live, member_of(parts[#parts - 2], 'o', parts[#parts - 1])) ~= false
    if known then
      judge(limit)
      change.expires_at = expiry_of(limit)
      lacks_period = lacks_period or (grows and not change.expires_at)
    end
    is_behind = is_behind or limit.is_behind
    need.is_hold = is_hold
    if is_hold then
      need.life = (known and known.life) or lives[need[KEY]] or (limit.generation == generation and limit.life)
      if need.life == 0 or not need.is_there then
        -- Its limit was deleted, and it goes on as it was.
        need.life = need[TIMEOUT]
      end
      if not need.life then
        unknown_lives[#unknown_lives + 1] = need[KEY]
      end
    end
  end
end
if lacks_period then
  return answer('period', NOW)
end
if #unknown_lives > 0 then
  return answer('lives', NOW, unknown_lives)
end

local growths, wanted = {}, {}
for _, change in ipairs(changes) do
  change.is_over = not change.need.is_there
  if change.units > change.held then
    if change.known.kind == '' then
      return answer('undefined', NOW, change.known.key)
    end
    change.extra = change.units - (change.is_over and 0 or change.held)
    growths[#growths + 1] = change
    wanted[#wanted + 1] = change.need.limit
  end
end

-- Stores the lease with the answer to this number.
local function conclude(is_renewed, reply)
  for _, need in ipairs(lease[NEEDS]) do
    need.live, need.limit, need.is_there, need.is_hold, need.life = nil, nil, nil, nil, nil
  end
  lease[RENEWS] = { number, was_renewed or is_renewed, has_lapsed, cmsgpack.pack(reply) }
  save_open_lease(id, lease, remember)
end

local new_instances, of_new = check_instances(wanted, instances_max, per_second_max)
if not new_instances then
  local reply = { 'too_many', NOW, of_new }
  conclude(false, reply)
  return answer('answered', NOW, reply, {})
end

local lacking = {}
for _, growth in ipairs(growths) do
  if not fits(growth.need.limit, growth.extra) then
    lacking[#lacking + 1] = growth
  end
end
if #lacking > 0 then
  if is_behind then
    return answer('again')
  end
  local paused, over, decreasing
  for at = #lacking, 1, -1 do
    local growth = lacking[at]
    local limit = growth.need.limit
    paused = is_paused(limit) and growth.known.key or paused
    over = growth.units > limit.ceiling and growth.known.key or over
    decreasing = limit.is_decreasing and growth.known.key or decreasing
  end
  local reply
  if paused then
    reply = { 'paused', NOW, paused }
  elseif over then
    return answer('over', NOW, over)
  elseif decreasing then
    reply = { 'decreasing', NOW, decreasing }
  else
    reply = { 'denied', NOW }
    for _, growth in ipairs(lacking) do
      local limit = growth.need.limit
      limit.streak = limit.streak + 1
      limit.is_dirty = limit.exists
      reply[#reply + 1] = hint_of(growth.known.key, limit, growth.extra)
    end
  end
  conclude(false, reply)
  return answer('answered', NOW, reply, {})
end

-- Everything fits.
local shadow_denied = {}
for _, growth in ipairs(growths) do
  local limit = growth.need.limit
  if limit.known.is_shadow and growth.extra > limit.known.target - limit.used then
    shadow_denied[#shadow_denied + 1] = growth.known.key
  end
  has_lapsed = has_lapsed or growth.is_over
end
if new_instances > 0 then
  call('HSET', COUNTS, unpack(of_new))
end

-- Reserves units in a new part, which begins now. Returns its sequence number.
local function reserve(need, units, expires_at)
  local limit = need.limit
  if limit.known then
    return hold(limit, units, expires_at, generation)
  end
  limit.known, limit.ceiling = { kind = need[KIND], template = limit.template, life = limit.life }, limit.cap
  local sequence = hold(limit, units, expires_at, limit.generation)
  limit.known = nil
  return sequence
end

-- Gives back units of the live parts, first of those that expire first. The last part stays, even of 0 units.
local function give_back(need, surplus)
  local kept, parts = {}, need.live
  for at = 1, #parts, 3 do
    local units, is_last = parts[at + 1], at == #parts - 2
    local back = math.min(surplus, units)
    surplus = surplus - back
    local stays = is_last or back < units
    -- A part may have been collected before the clock went back. It does not count again.
    if back > 0 and need.is_there and take_out(need.limit, parts[at], units) and stays then
      add_live(need.limit, parts[at + 2], member_of(parts[at], 'o', units - back))
      need.limit.used, need.limit.open = need.limit.used + units - back, need.limit.open + 1
    end
    if stays then
      kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = parts[at], units - back, parts[at + 2]
    end
  end
  need.live = kept
end

-- Makes one part of all.
local function join(need)
  local parts, units = need.live, 0
  for at = 1, #parts, 3 do
    -- As in `give_back`.
    if take_out(need.limit, parts[at], parts[at + 1]) then
      units = units + parts[at + 1]
    end
  end
  local last, expires_at = parts[#parts - 2], parts[#parts]
  add_live(need.limit, expires_at, member_of(last, 'o', units))
  need.limit.used, need.limit.open = need.limit.used + units, need.limit.open + 1
  need.live = { last, units, expires_at }
end

local freed = {}
for _, change in ipairs(changes) do
  local need = change.need
  if change.units < change.held then
    freed[#freed + 1] = need[KEY]
  end
  if change.units <= change.held then
    if need.is_hold then
      need.units = change.units
    elseif change.units < change.held then
      give_back(need, change.held - change.units)
    end
  elseif need.is_hold and not change.is_over then
    need.units, need.limit.streak = change.units, 0
  else
    need.is_hold = false
    local parts = need.live
    need.limit.streak = 0
    if change.is_over or parts[#parts - 1] == 0 then
      if need.is_there then
        for at = 1, #parts, 3 do
          take_out(need.limit, parts[at], parts[at + 1])
        end
      end
      parts = {}
    end
    -- A window may have become shorter, so the new part is not always the last.
    local place = #parts + 1
    while place > 1 and parts[place - 1] > change.expires_at do
      place = place - 3
    end
    need[KIND] = change.known.kind
    need[TIMEOUT] = need[KIND] == 'c' and change.known.life or 0
    local sequence = reserve(need, change.extra, change.expires_at)
    table.insert(parts, place, change.expires_at)
    table.insert(parts, place, change.extra)
    table.insert(parts, place, sequence)
    need.live = parts
    if #parts > PARTS_MAX * 3 then
      join(need)
    end
  end
  need[RESERVED] = need[RESERVED] - change.held + change.units
end
for _, need in ipairs(lease[NEEDS]) do
  if need.is_hold then
    local parts = need.live
    local units = need.units or parts[2]
    local sequence, expires_at = 0, NOW + need.life
    if need.is_there then
      take_out(need.limit, parts[1], parts[2])
      sequence = reserve(need, units, expires_at)
    end
    need.live, need[TIMEOUT] = { sequence, units, expires_at }, need.life
  end
  if #need.live > 0 then
    need[PARTS] = need.live
  else
    -- What has lapsed keeps its place, and its end: a lease is renewable until the end of its last hold.
    need[PARTS] = { 0, 0, last_expiry(need[PARTS]) }
  end
  need.units = nil
end
local _, until_now = lapses_of(lease)
local reply = { 'renewed', NOW, until_now }
conclude(true, reply)
return answer('answered', NOW, reply, freed, shadow_denied)
