-- The plain case of a complete: nothing of the lease has lapsed or was renewed, and no more was used than reserved, so that no definition matters. As
-- in `reserve_plain.lua`, nothing is made for each limit. Whatever is not plain goes on in `complete.lua`.
--
-- Cost, with n limits: 2 operations to find out; then 1, for each limit 2 or 3 (4 more for one in 16, if it has many), and 3.

local PREFIX = KEYS[1]
local id, remember, remember_max = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local stored = redis.call('MGET', PREFIX .. 'meta', PREFIX .. 'lease:' .. id)

local is_plain, flat = false, nil
if stored[1] and stored[2] and ARGV[5] == 'complete' then
  flat = { cmsgpack.unpack(stored[2]) }
  local _, _, past_until = cmsgpack.unpack(stored[1])
  is_plain = flat[1] == 'o' and not flat[6] and remember > 0 and NOW + remember <= past_until
end
local names = {}
if is_plain then
  local found = 0
  -- Of each need: key, kind, units, units in all, timeout, number of parts; then of its only part the sequence number, units and expiry.
  for at = 7, #flat, 9 do
    is_plain = is_plain and flat[at + 5] == 1 and flat[at + 8] > NOW
    if not is_plain then
      break
    end
    names[#names + 1] = PREFIX .. 'limit:' .. flat[at]
    if flat[at + 1] ~= 'c' then
      for of = 6, #ARGV, 8 do
        if ARGV[of + 2] == flat[at] then
          -- What is left of the reservation.
          flat[at + 3] = tonumber(ARGV[of])
          found = found + 1
        end
      end
      is_plain = flat[at + 3] <= flat[at + 2]
    else
      flat[at + 3] = 0
    end
  end
  is_plain = is_plain and found == (#ARGV - 5) / 8
end

if is_plain then
  local freed, index = {}, 0
  local limits = redis.call('MGET', unpack(names))
  for at = 7, #flat, 9 do
    index = index + 1
    local live, units, kept, sequence = PREFIX .. 'live:' .. flat[at], flat[at + 2], flat[at + 3], flat[at + 6]
    freed[index] = flat[at]
    local was_there = redis.call('ZREM', live, sequence .. 'o' .. (units < 1e14 and units or string.format('%.0f', units)))
    -- The limit may have been deleted.
    if was_there == 1 and limits[index] then
      local kind, used, open, next_expiry, last, streak, kept_until, cap, template, ends, life, generation = cmsgpack.unpack(limits[index])
      used, open = used - units, open - 1
      if kept > 0 then
        redis.call('ZADD', live, flat[at + 8], '+' .. sequence .. 'c' .. (kept < 1e14 and kept or string.format('%.0f', kept)))
        if used == 0 and open == 0 then
          -- The set was empty, and has no TTL.
          redis.call('PEXPIRE', live, math.ceil((kept_until - NOW) / 1000) + 1)
        end
        used = used + kept
      end
      if sequence % 16 == 0 then
        --@ gather
        gather(live, kind, life, last, sequence, flat[2], flat[at + 8], kept_until)
      end
      redis.call('SET', names[index], cmsgpack.pack(kind, used, open, next_expiry, last, streak, kept_until, cap, template, ends, life, generation),
        'KEEPTTL')
    end
  end
  redis.call('ZREM', PREFIX .. 'open', id)
  redis.call('SET', PREFIX .. 'lease:' .. id, cmsgpack.pack('e', flat[2], NOW + remember), 'PX', math.ceil(remember / 1000) + 1)
  local count = redis.call('RPUSH', PREFIX .. 'past', string.format('%.0f', NOW + remember) .. ':' .. id)
  if count % 8 == 0 or count > remember_max then
    --@ forget
    forget_past(count, remember_max)
  end
  return { 'ended', NOW, freed, {} }
end
