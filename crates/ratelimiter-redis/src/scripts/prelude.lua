-- What the scripts share. Each script begins with this text; what only some need is in other files, which a line `--@ name` includes.
--
-- KEYS[1] is the prefix of all keys, with its hash tag and a colon:
--   meta                 string  generation of the definitions; until when `open` and `past` are kept
--   registry             string  the definitions: a limits document
--   limit:<key>          string  a limit in use (see `limit_from`)
--   live:<key>           zset    its live reservations by expiry; "<sequence>o<units>" of an open lease, "+<sequence>c<units>" of another,
--                                "*<sequence>c<units>" of several others (see `gather.lua`)
--   cleared:<key>        string  there if leases may be open from before the limit was deleted
--   lease:<id>           string  a lease (see `lease_from`)
--   open                 zset    the open leases by the time of their reserve, in milliseconds; the first member is none
--   past                 list    ended and denied leases, the oldest first: "<time>:<id>"
--   debts                hash    debts by key: the kind of the limit, and units in decimal
--   instances:<key>      zset    the limits that were made from a template, sorted by key
--   instance_counts      hash    their number by template; `total`, and `recent` since `second`
--   ready                string  written to see whether that is possible
--
-- Strings that scripts write are packed by cmsgpack. All other times are in microseconds. Everything but the definitions and debts has a TTL,
-- which is never shorter than what it counts; what has expired is judged by NOW alone.

local call = redis.call
local PREFIX = KEYS[1]
local META, DEBTS = PREFIX .. 'meta', PREFIX .. 'debts'
-- Every integer up to this one is exact.
local UNITS_MAX = 9007199254740991
local NEVER = 9007199254740991
local MINUTE = 60000000

local function text(number)
  return string.format('%.0f', number)
end

-- A TTL that ends at this time or later, in milliseconds.
local function ttl_ms(at)
  return math.ceil((at - NOW) / 1000) + 1
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

-- Whether the server knows the current definitions, by the value of `meta`. Also reads until when the lists of leases are kept.
local open_until, past_until = 0, 0
local meta_generation = ''
local function is_current(generation, packed)
  if packed then
    meta_generation, open_until, past_until = cmsgpack.unpack(packed)
  end
  return meta_generation == generation
end

-- Cost: 1 operation.
local function save_meta()
  call('SET', META, cmsgpack.pack(meta_generation, open_until, past_until))
end

-- Set by `instances.lua`.
local add_instance, remove_instance

-- Limits ---------------------------------------------------------------------------------------------------------------------

local limits = {}

local function name_of_limit(key)
  return PREFIX .. 'limit:' .. key
end

local function member_of(sequence, state, units)
  -- Numbers of up to 14 digits become text exactly.
  return sequence .. state .. (units < 1e14 and units or text(units))
end

local function pack_limit(limit)
  return cmsgpack.pack(limit.kind, limit.used, limit.open, limit.next, limit.sequence, limit.streak, limit.kept_until, limit.cap, limit.template,
    limit.ends, limit.life, limit.generation)
end

-- Makes a limit one that is not in use.
local function reset(limit)
  limit.exists, limit.is_dirty = false, false
  limit.kind, limit.used, limit.open, limit.next, limit.streak, limit.cap, limit.template, limit.ends, limit.life, limit.generation = '', 0, 0,
    NEVER, 0, 0, '', 0, 0, ''
end

local function name_of_cleared(key)
  return PREFIX .. 'cleared:' .. key
end

-- Makes a limit one that is not in use, which goes on counting its reservations until its TTL ends: open leases may still know their numbers.
-- Cost: 2 operations.
local function retire(limit)
  reset(limit)
  call('UNLINK', limit.live)
  call('SET', limit.name, pack_limit(limit), 'KEEPTTL')
end

-- Forgets what is reserved of a limit that is deleted or replaced. For as long as leases of it may be open, the limits with this key are retired, and
-- not removed, when they are not in use any more (`sweep.lua`).
-- Cost: 3 operations.
local function clear(limit)
  if limit.exists then
    retire(limit)
    call('SET', name_of_cleared(limit.key), '', 'PX', math.max(ttl_ms(limit.kept_until), 1))
  end
end

-- A limit in use, from its value or false. `known` is its definition; nil if only its counts matter. What has expired may still be counted.
local function limit_from(key, packed, known)
  local limit = { key = key, name = name_of_limit(key), live = PREFIX .. 'live:' .. key, known = known }
  if packed then
    limit.kind, limit.used, limit.open, limit.next, limit.sequence, limit.streak, limit.kept_until, limit.cap, limit.template, limit.ends,
      limit.life, limit.generation = cmsgpack.unpack(packed)
    limit.exists = limit.kind ~= ''
    if limit.exists and known and known.kind ~= '' and limit.kind ~= known.kind then
      -- A limit of another kind had the key. What was reserved of it does not count.
      if limit.template ~= '' then
        remove_instance(limit.template, key)
      end
      clear(limit)
    end
  else
    reset(limit)
    limit.sequence, limit.kept_until = 0, 0
  end
  if not limit.exists and known then
    limit.kind = known.kind
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
  if limit.template ~= '' and limit.used == 0 and limit.open == 0 then
    -- It is like one that is made anew.
    limit.streak = 0
  end
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
  if limit.ends > NOW and not is_unused_instance(limit) then
    return limit.ends
  end
  if known.since <= NOW and NOW < known.life then
    return known.life
  end
  return nil
end

-- Adds a live reservation. An empty set does not exist in Redis, and the first member makes it without a TTL; so it is empty if nothing is counted.
-- Cost: 1 operation; 1 more if it was empty.
local function add_live(limit, expires_at, member)
  call('ZADD', limit.live, expires_at, member)
  if limit.used == 0 and limit.open == 0 then
    call('PEXPIRE', limit.live, ttl_ms(limit.kept_until))
  end
end

-- Reserves units that fit, for an open lease. Returns the sequence number of the reservation.
-- Cost: 1 operation; 1 more when the TTLs grow, at most once in a minute and a quarter of the life together.
local function hold(limit, units, expires_at, generation)
  local known, sequence = limit.known, limit.sequence + 1
  local keeps_longer = expires_at > limit.kept_until
  if keeps_longer then
    -- What the next ones need, too; all reservations of a calendar limit expire at its reset.
    local more = known.kind == 'k' and 0 or known.life / 4
    limit.kept_until, limit.has_new_ttl = expires_at + more + MINUTE, true
  end
  add_live(limit, expires_at, member_of(sequence, 'o', units))
  if keeps_longer then
    call('PEXPIRE', limit.live, ttl_ms(limit.kept_until))
  end
  limit.sequence, limit.used, limit.open = sequence, limit.used + units, limit.open + 1
  if expires_at < limit.next then
    limit.next = expires_at
  end
  limit.cap, limit.generation, limit.life = limit.ceiling, generation, known.life
  if known.kind == 'k' then
    limit.ends = expires_at
  end
  if limit.template ~= known.template or not limit.exists then
    if limit.template ~= '' and limit.exists then
      remove_instance(limit.template, limit.key)
    end
    limit.template = known.template
    if limit.template ~= '' then
      add_instance(limit.template, limit.key)
    end
  end
  limit.is_dirty = true
  return sequence
end

-- Stores what has changed.
-- Cost: 1 operation for each limit that has changed.
local function save_limits()
  for _, limit in ipairs(limits) do
    if limit.is_dirty then
      if limit.has_new_ttl then
        call('SET', limit.name, pack_limit(limit), 'PX', ttl_ms(limit.kept_until))
      else
        call('SET', limit.name, pack_limit(limit), 'KEEPTTL')
      end
      limit.is_dirty, limit.has_new_ttl = false, false
    end
  end
end

-- Ends the script: stores what has changed, and answers.
local function answer(...)
  save_limits()
  return { ... }
end

-- Leases ---------------------------------------------------------------------------------------------------------------------

-- In memory a lease is an array; it is packed without arrays in it (see `save_open_lease`). Open: 'o', time of the reserve, time when the last of it lapses, job, needs, the server that may return it (or empty), renews.
-- Ended: 'e', time of the reserve, time when it is forgotten. Denied: 'd', time, time when it is forgotten, the first key without room.
-- A need: key, kind, required units, units reserved in all, parts, and of a hold its timeout. Parts: sequence, units, expiry of each, the last to
-- expire at the end.
-- Renews: number of the last one, whether one was allowed, whether something had lapsed, and the answer to the last one.
local STATE, AT, LAPSES_AT, JOB, NEEDS, MAY_RETURN, RENEWS = 1, 2, 3, 4, 5, 6, 7
local FORGOTTEN_AT, FIRST_KEY = 3, 4
local KEY, KIND, REQUIRED, RESERVED, PARTS, TIMEOUT = 1, 2, 3, 4, 5, 6

local function name_of_lease(id)
  return PREFIX .. 'lease:' .. id
end

-- A lease from its value; nil if it is not known, or forgotten.
local function lease_from(packed, remember)
  if not packed then
    return nil
  end
  local flat = { cmsgpack.unpack(packed) }
  local lease = flat
  if flat[STATE] == 'o' then
    local needs, at = {}, 7
    while flat[at] do
      local parts, last = {}, at + 5 + flat[at + 5] * 3
      for part = at + 6, last do
        parts[#parts + 1] = flat[part]
      end
      needs[#needs + 1] = { flat[at], flat[at + 1], flat[at + 2], flat[at + 3], parts, flat[at + 4] }
      at = last + 1
    end
    lease = { 'o', flat[2], flat[3], flat[4], needs, flat[5], flat[6] and cmsgpack.unpack(flat[6]) }
  end
  local forgotten_at = lease[STATE] == 'o' and lease[LAPSES_AT] + remember or lease[FORGOTTEN_AT]
  return forgotten_at > NOW and lease or nil
end

-- Stores an open lease: its state, times, job, the server that may return it, its renews packed, or false; then of each need the key, kind, units, timeout,
-- and the number of parts before the parts.
-- Cost: 1 operation; 3 more when the TTL of the list of open leases grows.
local function save_open_lease(id, lease, remember)
  local flat, lapses_at = {}, 0
  for _, need in ipairs(lease[NEEDS]) do
    local size, parts = #flat, need[PARTS]
    flat[size + 1], flat[size + 2], flat[size + 3], flat[size + 4] = need[KEY], need[KIND], need[REQUIRED], need[RESERVED]
    flat[size + 5], flat[size + 6] = need[TIMEOUT], #parts / 3
    for part = 1, #parts do
      flat[size + 6 + part] = parts[part]
    end
    lapses_at = math.max(lapses_at, parts[#parts])
  end
  lease[LAPSES_AT] = lapses_at
  local packed = cmsgpack.pack('o', lease[AT], lapses_at, lease[JOB], lease[MAY_RETURN], lease[RENEWS] and cmsgpack.pack(lease[RENEWS]), unpack(flat))
  call('SET', name_of_lease(id), packed, 'PX', ttl_ms(lapses_at + remember))
  if lease[LAPSES_AT] > open_until then
    open_until = NOW + 2 * (lease[LAPSES_AT] - NOW) + MINUTE
    -- Its first member, which is no lease, stays: an empty set would be gone, and made anew without a TTL.
    call('ZADD', PREFIX .. 'open', 0, '')
    call('PEXPIRE', PREFIX .. 'open', ttl_ms(open_until))
    save_meta()
  end
end
