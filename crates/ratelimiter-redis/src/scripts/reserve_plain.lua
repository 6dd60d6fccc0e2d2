-- The plain case of a reserve: the lease is new, and everything fits even if what has expired is still counted. Here it takes a third of the time
-- that it takes in general (`reserve.lua`), because nothing is made for each limit: no table, no function. Whatever is not plain goes on there.
--
-- Cost, with n limits: 2 operations to find out; then 2 * n + 2.

local PREFIX = KEYS[1]
local id, generation, remember, job = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[10]
local names = { PREFIX .. 'meta', PREFIX .. 'lease:' .. id }
for at = 13, #ARGV, 7 do
  names[#names + 1] = PREFIX .. 'limit:' .. ARGV[at]
end
local stored = redis.call('MGET', unpack(names))

-- Behind nobody, and without a word about the lease.
local is_plain = stored[1] and not stored[2] and ARGV[7] == '0'
local lapses_at = 0
if is_plain then
  local current, open_until = cmsgpack.unpack(stored[1])
  is_plain = current == generation
  local index = 3
  for at = 12, #ARGV, 7 do
    if not (is_plain and stored[index]) then
      is_plain = false
      break
    end
    local kind, used, _, next_expiry, sequence, _, kept_until, _, template, ends = cmsgpack.unpack(stored[index])
    local expires_at = kind == 'k' and ends or NOW + ARGV[at + 3]
    -- Now and then what has expired is collected.
    is_plain = kind == ARGV[at + 2]:lower() and tonumber(ARGV[at]) <= ARGV[at + 4] - used and template == ARGV[at + 5]
      and (next_expiry > NOW or sequence % 64 ~= 0) and expires_at <= kept_until and (kind ~= 'k' or (ends > NOW and template == ''))
    if expires_at > lapses_at then
      lapses_at = expires_at
    end
    index = index + 1
  end
  is_plain = is_plain and lapses_at <= open_until
end

if is_plain then
  local lease = { 'o', NOW, lapses_at, job, ARGV[9], false }
  local index, size = 3, 6
  -- The last expiry as text, since several limits often have the same; a number costs more.
  local last_expiry, expiry
  for at = 12, #ARGV, 7 do
    local kind, used, open, next_expiry, sequence, _, kept_until, _, template, ends = cmsgpack.unpack(stored[index])
    local key, units, life = ARGV[at + 1], tonumber(ARGV[at]), tonumber(ARGV[at + 3])
    local expires_at = kind == 'k' and ends or NOW + life
    sequence = sequence + 1
    if expires_at ~= last_expiry then
      last_expiry, expiry = expires_at, string.format('%.0f', expires_at)
    end
    redis.call('ZADD', PREFIX .. 'live:' .. key, expiry, sequence .. 'o' .. ARGV[at])
    if used == 0 and open == 0 then
      -- The set was empty, and has no TTL.
      redis.call('PEXPIRE', PREFIX .. 'live:' .. key, math.ceil((kept_until - NOW) / 1000) + 1)
    end
    if expires_at < next_expiry then
      next_expiry = expires_at
    end
    local ceiling = ARGV[at + 2] == kind and tonumber(ARGV[at + 4]) or 9007199254740991
    redis.call('SET', names[index], cmsgpack.pack(kind, used + units, open + 1, next_expiry, sequence, 0, kept_until, ceiling, template, ends,
      life, generation), 'KEEPTTL')
    lease[size + 1], lease[size + 2], lease[size + 3], lease[size + 4], lease[size + 5] = key, kind, units, units, kind == 'c' and life or 0
    lease[size + 6], lease[size + 7], lease[size + 8], lease[size + 9] = 1, sequence, units, expires_at
    index, size = index + 1, size + 9
  end
  redis.call('SET', names[2], cmsgpack.pack(unpack(lease)), 'PX', math.ceil((lapses_at + remember - NOW) / 1000) + 1)
  redis.call('ZADD', PREFIX .. 'open', math.floor(NOW / 1000), id)
  return { 'allowed', NOW, NOW, 1 }
end
