-- Makes what leases that have ended have used one member of the set, if it expires within the same step: "*<sequence>c<units>". One for each lease would be
-- millions in a window of a day, or at the end of a month.
--
-- A step of a calendar limit is 1, since all of it expires at the reset. In a window of an hour or more it is 1/4096 of the window, and what was used
-- returns with the last of its step (RES-02): late, never early, and before the set ends.
--
-- Cost: up to 4 operations. It is called for every 16th lease that ends.
local function gather(live, kind, life, newest, sequence, reserved_at, expires_at, kept_until)
  -- Of a rolling window, where there may be many, and only what was reserved in this window.
  local is_long = kind == 'r' and newest >= 1024 and life >= 3600000000 and expires_at - reserved_at == life
  if kind ~= 'k' and not is_long then
    return
  end
  local step = kind == 'k' and 1 or math.floor(life / 4096)
  local last = math.ceil(expires_at / step) * step
  local from, to = string.format('(%.0f', last - step), string.format('%.0f', last)
  -- At the end of the step, those of leases that have ended come first; what was gathered before is there.
  local found = redis.call('ZRANGEBYSCORE', live, to, to, 'LIMIT', 0, 128)
  if expires_at < last then
    -- The latest before the end, so that leases that are open for long, or are never completed, are not in the way.
    local before = redis.call('ZREVRANGEBYSCORE', live, string.format('%.0f', expires_at), from, 'LIMIT', 0, 128)
    for _, member in ipairs(before) do
      found[#found + 1] = member
    end
  end
  local units, members = 0, {}
  for _, member in ipairs(found) do
    local used = member:match('c(%d+)$')
    if used then
      units, members[#members + 1] = units + used, member
    end
  end
  if #members > 1 then
    -- First: a set without members would lose its TTL.
    redis.call('ZADD', live, math.min(last, kept_until), '*' .. sequence .. 'c' .. string.format('%.0f', units))
    redis.call('ZREM', live, unpack(members))
  end
end
