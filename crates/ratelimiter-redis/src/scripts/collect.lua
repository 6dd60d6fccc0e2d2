-- Reservations that have expired, and those of leases that end.

-- The most expired reservations that one script collects (RDS-03).
local COLLECT_MAX = 512
local collected = 0

local function units_of(member)
  local state, units = member:match('([oc])(%d+)$')
  return tonumber(units), state == 'o'
end

-- Frees what has expired. `is_behind` if there is more.
-- Cost: none if nothing has expired; else 2 operations for each batch of 4, 16, 64, … reservations.
local function collect(limit)
  local batch = 4
  while limit.next <= NOW do
    local found = call('ZRANGE', limit.live, 0, batch - 1, 'WITHSCORES')
    local expired = 0
    limit.next = NEVER
    if #found == 0 then
      -- Whatever is still counted was lost.
      limit.used, limit.open = 0, 0
    end
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

-- A limit in use, without what has expired.
-- Cost: 1 operation, and those of `collect`.
local function limit_of(key, known)
  local limit = limit_from(key, call('GET', name_of_limit(key)), known)
  collect(limit)
  return limit
end
