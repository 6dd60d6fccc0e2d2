-- Forgets the oldest of so many past leases: those whose time is over, a few at a time, and those that are too many. Needs no prelude.
-- Cost: 2 operations for each lease, up to 64; 2 more if it is one too many.
local function forget_past(count, remember_max)
  local past = KEYS[1] .. 'past'
  -- The records themselves have a TTL, so their names need not go at once.
  local checks = count % 8 == 0 and 16 or 0
  local left = 64
  while left > 0 and (count > remember_max or checks > 0) do
    local oldest = redis.call('LINDEX', past, 0)
    local forgotten_at, old_id = oldest:match('^(%d+):(.*)$')
    forgotten_at = tonumber(forgotten_at)
    if forgotten_at > NOW then
      if count <= remember_max then
        break
      end
      local packed = redis.call('GET', KEYS[1] .. 'lease:' .. old_id)
      local state, _, old_forgotten_at = cmsgpack.unpack(packed or cmsgpack.pack('o'))
      -- The ID may have been used again since.
      if state ~= 'o' and old_forgotten_at == forgotten_at then
        redis.call('DEL', KEYS[1] .. 'lease:' .. old_id)
      end
    end
    redis.call('LPOP', past)
    count, checks, left = count - 1, checks - 1, left - 1
    if count == 0 then
      break
    end
  end
end
