-- Ended and denied leases.

local PAST = PREFIX .. 'past'

-- Remembers that a lease has ended or was denied (RES-09).
-- Cost: 2 operations, and up to 4 to forget others.
local function remember_lease(id, lease, remember, remember_max)
  call('SET', name_of_lease(id), cmsgpack.pack(unpack(lease)), 'PX', ttl_ms(lease[FORGOTTEN_AT]))
  local count = call('RPUSH', PAST, text(lease[FORGOTTEN_AT]) .. ':' .. id)
  if lease[FORGOTTEN_AT] > past_until then
    past_until = NOW + 2 * remember + MINUTE
    call('PEXPIRE', PAST, ttl_ms(past_until))
    save_meta()
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
      local state, _, old_forgotten_at = cmsgpack.unpack(packed or cmsgpack.pack('o'))
      -- The ID may have been used again since.
      if state ~= 'o' and old_forgotten_at == forgotten_at then
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
