-- What leases that have ended have used of a calendar limit. All of it expires at the reset, so it is one member of the set: "+<reset>c<units>",
-- which is the first of those that expire then. One for each lease would be millions at the end of a month.
--
-- Cost: 2 operations; 1 more if there is one already.
local function add_used(live, expires_at, units)
  local reset = string.format('%.0f', expires_at)
  local first = redis.call('ZRANGEBYSCORE', live, reset, reset, 'LIMIT', 0, 1)[1]
  local before = first and first:match('^%+%d+c(%d+)$')
  redis.call('ZADD', live, reset, '+' .. reset .. 'c' .. string.format('%.0f', units + (before or 0)))
  if before then
    -- Only now: a set without members would lose its TTL.
    redis.call('ZREM', live, first)
  end
end
