-- Removes a live reservation of an open lease; false if its limit was deleted or replaced.
-- Cost: 1 operation.
local function take_out(limit, sequence, units)
  if not limit.exists or call('ZREM', limit.live, member_of(sequence, 'o', units)) == 0 then
    return false
  end
  limit.used, limit.open = limit.used - units, limit.open - 1
  limit.is_dirty = true
  return true
end
