-- What the scripts share. Each script runs after this text, as one.
--
-- KEYS[1] is the prefix of all keys, with its hash tag:
--   :meta                hash    generation of the definitions, the last sequence number, and until when :open and :past are kept
--   :registry            string  the definitions: a limits document
--   :limit:<key>         hash    a limit in use: units, capacity in force, streak of denials, period
--   :live:<key>          zset    its live reservations by expiry; "<sequence>o<units>" of an open lease, "<sequence>c<units>" of another
--   :lease:<id>          string  a lease, packed (see `lease_of`)
--   :open                zset    the open leases by the time of their reserve, in milliseconds
--   :past                list    ended and denied leases, the oldest first: "<time>:<id>"
--   :debts               hash    debts by key: the kind of the limit, and units in decimal
--   :instances:<key>     zset    the limits that were made from a template, sorted by key
--   :instance_counts     hash    their number by template; `total`, and `recent` since `second`
--
-- All other times are in microseconds. Everything but the definitions and debts has a TTL, which is never shorter than what it counts; what
-- has expired is judged by NOW alone.

local call = redis.call
local PREFIX = KEYS[1]
local META, OPEN, PAST, DEBTS = PREFIX .. ':meta', PREFIX .. ':open', PREFIX .. ':past', PREFIX .. ':debts'
local COUNTS = PREFIX .. ':instance_counts'

-- The most expired reservations that one script collects (RDS-03).
local COLLECT_MAX = 512
-- The most reservations that a hint looks at.
local SEARCH_MAX = 256
-- Every integer up to this one is exact.
local UNITS_MAX = 9007199254740991
local NEVER = 9007199254740991
local MINUTE = 60000000
-- Longer than a lease can live without a renew: 64 days, in milliseconds.
local LONG_MS = 5529600000

local function text(number)
  return string.format('%.0f', number)
end

-- A TTL that ends at this time or later, in milliseconds.
local function ttl_ms(at)
  return text(math.ceil((at - NOW) / 1000) + 1)
end

-- The sum of two whole numbers in decimal, of any size.
local function plus(a, b)
  local sum, carry = '', 0
  while #a > 0 or #b > 0 or carry > 0 do
    local part = (tonumber(a:sub(-15)) or 0) + (tonumber(b:sub(-15)) or 0) + carry
    carry = math.floor(part / 1e15)
    sum = string.format('%015.0f', part - carry * 1e15) .. sum
    a, b = a:sub(1, -16), b:sub(1, -16)
  end
  return (sum:gsub('^0+(%d)', '%1'))
end

-- A whole number of at most 30 digits, in decimal, minus a smaller one.
local function minus(a, number)
  local low, high = tonumber(a:sub(-15)), tonumber(a:sub(1, -16)) or 0
  local number_high = math.floor(number / 1e15)
  low, high = low - (number - number_high * 1e15), high - number_high
  if low < 0 then
    low, high = low + 1e15, high - 1
  end
  if high == 0 then
    return text(low)
  end
  return text(high) .. string.format('%015.0f', low)
end

local function units_of_debt(debt)
  return debt and debt:sub(2) or '0'
end

-- Definitions ----------------------------------------------------------------------------------------------------------------

-- A definition, as the server sends it: 6 arguments from `at`.
--   key
--   kind       r rolling, c concurrency, k calendar; a capital in shadow mode; empty if the key is not defined
--   life       how long a reservation lasts; of a calendar limit, the reset that follows `since`
--   target     the requested capacity
--   template   the key of the template that governs it; empty if it is defined itself
--   since      of a calendar limit, a moment after the reset before
local function definition(at)
  local kind = ARGV[at + 1]
  return {
    key = ARGV[at],
    kind = kind:lower(),
    is_shadow = kind ~= kind:lower(),
    life = tonumber(ARGV[at + 2]),
    target = tonumber(ARGV[at + 3]),
    template = ARGV[at + 4],
    since = tonumber(ARGV[at + 5]),
  }
end

-- Whether the server knows the current definitions. Also reads until when the lists of leases are kept.
-- Cost: 1 operation.
local open_until, past_until
local function is_current(generation)
  local meta = call('HMGET', META, 'generation', 'open_until', 'past_until')
  open_until, past_until = tonumber(meta[2]) or 0, tonumber(meta[3]) or 0
  return (meta[1] or '') == generation
end

-- Instances ------------------------------------------------------------------------------------------------------------------

local function instances_of(template)
  return PREFIX .. ':instances:' .. template
end

-- Counts a limit that was made from a template.
-- Cost: 1 operation; 5 if it is new.
local function add_instance(template, key)
  if call('ZADD', instances_of(template), 0, key) == 1 then
    call('HINCRBY', COUNTS, template, 1)
    call('HINCRBY', COUNTS, 'total', 1)
    call('PEXPIRE', instances_of(template), LONG_MS)
    call('PEXPIRE', COUNTS, LONG_MS)
  end
end

-- Cost: 1 operation; 3 if it was counted.
local function remove_instance(template, key)
  if call('ZREM', instances_of(template), key) == 1 then
    if call('HINCRBY', COUNTS, template, -1) <= 0 then
      call('HDEL', COUNTS, template)
    end
    call('HINCRBY', COUNTS, 'total', -1)
  end
end

-- Limits ---------------------------------------------------------------------------------------------------------------------

local limits, collected = {}, 0

local function units_of(member)
  local state, units = member:match('([oc])(%d+)$')
  return tonumber(units), state == 'o'
end

local function member_of(sequence, state, units)
  return text(sequence) .. state .. text(units)
end

-- Frees what has expired. `is_behind` if there is more.
-- Cost: none if nothing has expired; else 2 operations for each batch of 4, 16, 64, … reservations.
local function collect(limit)
  local batch = 4
  while limit.next <= NOW do
    local found = call('ZRANGE', limit.live, 0, batch - 1, 'WITHSCORES')
    local expired = 0
    limit.next = NEVER
    for at = 1, #found, 2 do
      local expires_at = tonumber(found[at + 1])
      if expires_at > NOW then
        limit.next = expires_at
        break
      end
      local units, is_open = units_of(found[at])
      limit.used = limit.used - units
      limit.open = limit.open - (is_open and 1 or 0)
      expired = expired + 1
    end
    limit.is_dirty = true
    if expired > 0 then
      call('ZREMRANGEBYRANK', limit.live, 0, expired - 1)
      collected = collected + expired
    end
    if expired == batch then
      limit.next = NOW
      if collected >= COLLECT_MAX then
        limit.is_behind = true
        return
      end
      batch = math.min(batch * 4, 256)
    end
  end
end

-- A limit in use, without what has expired. `known` is its definition; nil if only its counts matter.
-- Cost: 1 operation, and those of `collect`.
local function limit_of(key, known)
  local name, live = PREFIX .. ':limit:' .. key, PREFIX .. ':live:' .. key
  local stored = call('HMGET', name, 'used', 'open', 'next', 'kind', 'streak', 'until', 'cap', 'template', 'ends', 'life', 'generation')
  local limit = { key = key, name = name, live = live, known = known, exists = stored[1] ~= false, used = 0, open = 0, next = NEVER, streak = 0,
    kept_until = 0, cap = 0, template = '', kind = known and known.kind, was = {} }
  if limit.exists and known and known.kind ~= '' and stored[4] ~= known.kind then
    -- A limit of another kind had the key. What was reserved of it does not count.
    call('UNLINK', name, live)
    if stored[8] and stored[8] ~= '' then
      remove_instance(stored[8], key)
    end
    limit.exists = false
  end
  if limit.exists then
    limit.used, limit.open, limit.next = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3])
    limit.kind, limit.streak, limit.kept_until = stored[4], tonumber(stored[5]) or 0, tonumber(stored[6]) or 0
    limit.cap, limit.template, limit.ends = tonumber(stored[7]) or 0, stored[8] or '', tonumber(stored[9])
    limit.was = { streak = limit.streak, cap = limit.cap, template = limit.template, ends = limit.ends, life = tonumber(stored[10]), generation = stored[11] }
    collect(limit)
  end
  limits[#limits + 1] = limit
  return limit
end

-- What a limit admits now, by its definition. A capacity below what is in use is not in force yet: the one before is, and nothing is admitted
-- (DEF-07). Once it fits, it stays in force, since no more is admitted than fits.
local function judge(limit)
  local known = limit.known
  limit.is_decreasing = not known.is_shadow and limit.used > known.target
  if known.is_shadow then
    limit.ceiling = UNITS_MAX
  elseif limit.is_decreasing then
    limit.ceiling = limit.cap > known.target and limit.cap or limit.used
  else
    limit.ceiling = known.target
  end
  limit.available = math.max(limit.ceiling - limit.used, 0)
  limit.is_paused = not known.is_shadow and known.target == 0
end

local function fits(limit, units)
  return not limit.is_decreasing and units <= limit.available
end

-- A limit that was made from a template and that nothing keeps is like one that is made anew.
local function is_unused_instance(limit)
  return limit.template ~= '' and limit.used == 0 and limit.open == 0 and call('HEXISTS', DEBTS, limit.key) == 0
end

-- When a reservation of now expires; nil if the server must send the period of a calendar limit again.
local function expiry_of(limit)
  local known = limit.known
  if known.kind ~= 'k' then
    return NOW + known.life
  end
  if limit.ends and limit.ends > NOW and not is_unused_instance(limit) then
    return limit.ends
  end
  if known.since <= NOW and NOW < known.life then
    return known.life
  end
  return nil
end

-- Reserves units that fit, for an open lease.
-- Cost: 1 operation; 2 more when the TTLs grow, which is once in a lifetime.
local function hold(limit, sequence, units, expires_at, generation)
  call('ZADD', limit.live, text(expires_at), member_of(sequence, 'o', units))
  limit.used, limit.open = limit.used + units, limit.open + 1
  limit.next = math.min(limit.next, expires_at)
  limit.cap = limit.ceiling
  limit.generation, limit.life = generation, limit.known.life
  if limit.known.kind == 'k' then
    limit.ends = expires_at
  end
  if limit.template ~= limit.known.template then
    if limit.template ~= '' then
      remove_instance(limit.template, limit.key)
    end
    limit.template = limit.known.template
  end
  if limit.template ~= '' and not limit.exists then
    add_instance(limit.template, limit.key)
  elseif limit.template ~= limit.was.template and limit.template ~= '' then
    add_instance(limit.template, limit.key)
  end
  if expires_at > limit.kept_until then
    limit.kept_until = NOW + 2 * (expires_at - NOW) + MINUTE
    limit.has_new_ttl = true
  end
  limit.is_dirty = true
end

-- Removes a live reservation of an open lease; false if its limit was deleted or replaced.
-- Cost: 1 operation.
local function take_out(limit, sequence, units)
  if call('ZREM', limit.live, member_of(sequence, 'o', units)) == 0 then
    return false
  end
  limit.used, limit.open = limit.used - units, limit.open - 1
  limit.is_dirty = true
  return true
end

-- Puts back what a completed lease keeps of a reservation.
-- Cost: 1 operation.
local function put_back(limit, sequence, units, expires_at)
  if units > 0 then
    call('ZADD', limit.live, text(expires_at), member_of(sequence, 'c', units))
    limit.used = limit.used + units
  end
end

-- Stores what has changed.
-- Cost: 1 operation for each limit that has changed.
local function save_limits()
  for _, limit in ipairs(limits) do
    if limit.is_dirty then
      local fields = { 'used', text(limit.used), 'open', limit.open, 'next', text(limit.next) }
      local function set(field, value)
        fields[#fields + 1] = field
        fields[#fields + 1] = value
      end
      if not limit.exists then
        set('kind', limit.kind)
      end
      if limit.streak ~= (limit.was.streak or 0) then
        set('streak', limit.streak)
      end
      if limit.cap ~= limit.was.cap then
        set('cap', text(limit.cap))
      end
      if limit.template ~= (limit.was.template or '') then
        set('template', limit.template)
      end
      if limit.ends ~= limit.was.ends then
        set('ends', text(limit.ends))
      end
      if limit.generation and limit.generation ~= limit.was.generation then
        set('generation', limit.generation)
        set('life', text(limit.life))
      end
      if limit.has_new_ttl then
        set('until', text(limit.kept_until))
      end
      call('HSET', limit.name, unpack(fields))
      if limit.has_new_ttl then
        call('PEXPIRE', limit.name, ttl_ms(limit.kept_until))
        call('PEXPIRE', limit.live, ttl_ms(limit.kept_until))
      end
      limit.is_dirty = false
    end
  end
end

-- Ends the script: stores what has changed, and answers.
local function answer(...)
  save_limits()
  return { ... }
end

-- When so many units will have expired; nil if there are not so many. Beyond SEARCH_MAX reservations it is the moment of the last one
-- that was looked at.
-- Cost: 1 operation for each 32 reservations.
local function freed_at(limit, units)
  local last
  for from = 0, SEARCH_MAX - 1, 32 do
    local found = call('ZRANGE', limit.live, from, from + 31, 'WITHSCORES')
    for at = 1, #found, 2 do
      units, last = units - units_of(found[at]), tonumber(found[at + 1])
      if units <= 0 then
        return last
      end
    end
    if #found < 64 then
      return nil
    end
  end
  return last
end

-- Leases ---------------------------------------------------------------------------------------------------------------------

-- A lease is an array. Open: 'o', time of the reserve, time when the last of it lapses, job, needs, whether it may be returned, renews.
-- Ended: 'e', time of the reserve, time when it is forgotten. Denied: 'd', time, time when it is forgotten, the first key without room.
-- A need: key, kind, required units, units reserved in all, parts, and of a hold its timeout. Parts: sequence, units, expiry of each, the last to expire at the end.
-- Renews: number of the last one, whether one was allowed, whether something had lapsed, and the answer to the last one.
local STATE, AT, LAPSES_AT, JOB, NEEDS, MAY_RETURN, RENEWS = 1, 2, 3, 4, 5, 6, 7
local FORGOTTEN_AT, FIRST_KEY = 3, 4
local KEY, KIND, REQUIRED, RESERVED, PARTS, TIMEOUT = 1, 2, 3, 4, 5, 6

local function name_of_lease(id)
  return PREFIX .. ':lease:' .. id
end

-- The lease with this ID; nil if it is not known.
-- Cost: 1 operation.
local function lease_of(id, remember)
  local packed = call('GET', name_of_lease(id))
  if not packed then
    return nil
  end
  local lease = cmsgpack.unpack(packed)
  local forgotten_at = lease[STATE] == 'o' and lease[LAPSES_AT] + remember or lease[FORGOTTEN_AT]
  return forgotten_at > NOW and lease or nil
end

-- Cost: 1 operation.
local function save_lease(id, lease, kept_until)
  call('SET', name_of_lease(id), cmsgpack.pack(lease), 'PX', ttl_ms(kept_until))
end

-- Remembers that a lease has ended or was denied (RES-09).
-- Cost: 2 operations, and up to 4 to forget others.
local function remember_lease(id, lease, remember, remember_max)
  save_lease(id, lease, lease[FORGOTTEN_AT])
  local count = call('RPUSH', PAST, text(lease[FORGOTTEN_AT]) .. ':' .. id)
  if lease[FORGOTTEN_AT] > past_until then
    past_until = NOW + 2 * remember + MINUTE
    call('PEXPIRE', PAST, ttl_ms(past_until))
    call('HSET', META, 'past_until', text(past_until))
  end
  -- The records themselves have a TTL, so their names need not go at once.
  local checks = count % 8 == 0 and 16 or 0
  while count > remember_max or checks > 0 do
    local oldest = call('LINDEX', PAST, 0)
    local forgotten_at, old_id = oldest:match('^(%d+):(.*)$')
    forgotten_at = tonumber(forgotten_at)
    if forgotten_at > NOW then
      if count <= remember_max then
        break
      end
      local packed = call('GET', name_of_lease(old_id))
      local old = packed and cmsgpack.unpack(packed)
      -- The ID may have been used again since.
      if old and old[STATE] ~= 'o' and old[FORGOTTEN_AT] == forgotten_at then
        call('DEL', name_of_lease(old_id))
      end
    end
    call('LPOP', PAST)
    count, checks = count - 1, checks - 1
    if count == 0 then
      break
    end
  end
end

-- The last expiry of parts; 0 if there are none.
local function last_expiry(parts)
  return parts[#parts] or 0
end

-- Calls f(sequence, units, expiry) for each live part.
local function each_live(parts, f)
  for at = 1, #parts, 3 do
    if parts[at + 2] > NOW then
      f(parts[at], parts[at + 1], parts[at + 2])
    end
  end
end

-- When the last of a lease lapses, and until when it can be renewed: its last hold or, without holds, its last reservation.
local function lapses_of(lease)
  local last, last_hold = 0, 0
  for _, need in ipairs(lease[NEEDS]) do
    local expires_at = last_expiry(need[PARTS])
    last = math.max(last, expires_at)
    if need[KIND] == 'c' then
      last_hold = math.max(last_hold, expires_at)
    end
  end
  return last, last_hold > 0 and last_hold or last
end

-- Stores an open lease, and keeps it in the list of open leases.
-- Cost: 1 operation; 2 more when the TTL of the list grows.
local function save_open_lease(id, lease, remember)
  lease[LAPSES_AT] = lapses_of(lease)
  save_lease(id, lease, lease[LAPSES_AT] + remember)
  if lease[LAPSES_AT] > open_until then
    open_until = NOW + 2 * (lease[LAPSES_AT] - NOW) + MINUTE
    call('PEXPIRE', OPEN, ttl_ms(open_until))
    call('HSET', META, 'open_until', text(open_until))
  end
end

-- Denials --------------------------------------------------------------------------------------------------------------------

-- Whether new limits may be made for those that do not exist (TPL-07). Returns their number, or nil and the template of the first one.
-- Cost: 1 operation for each of them, and 1 for all.
local function check_instances(wanted, instances_max, per_second_max)
  local new, first = 0, nil
  for _, limit in ipairs(wanted) do
    local template = limit.known.template
    if template ~= '' and not limit.exists and not call('ZSCORE', instances_of(template), limit.key) then
      new, first = new + 1, first or template
    end
  end
  if new == 0 then
    return 0
  end
  local counts = call('HMGET', COUNTS, 'total', 'second', 'recent')
  local total, second, recent = tonumber(counts[1]) or 0, tonumber(counts[2]) or 0, tonumber(counts[3]) or 0
  if NOW - second >= 1000000 or NOW < second then
    second, recent = NOW, 0
  end
  -- The first request of a second may need more than the bound, so that it is not denied for ever.
  local is_within = (recent == 0 and per_second_max > 0) or recent + new <= per_second_max
  if total + new > instances_max or not is_within then
    return nil, first
  end
  return new, { 'second', text(second), 'recent', text(recent + new) }
end

-- What the server needs for the hint of a limit without room: the limit, its streak, whether an open lease may free units, and the moment
-- when enough will have expired, or -1.
local function hint_of(name, limit, units)
  local moment = -1
  if limit.known.kind ~= 'c' and units > limit.available then
    moment = freed_at(limit, units - limit.available) or -1
  end
  return { name, limit.streak, limit.open > 0 and 1 or 0, moment }
end

-- When a waiter for these units may fit if nobody completes before; nil if that is not known.
local function lapse_of(limit, units)
  local needed = limit.used + units - limit.known.target
  return needed >= 0 and freed_at(limit, needed) or nil
end
