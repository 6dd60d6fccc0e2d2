-- Ended and denied leases.

local PAST = PREFIX .. 'past'

--@ forget
-- Remembers that a lease has ended or was denied (RES-09).
-- Cost: 2 operations, and those of `forget_past`.
local function remember_lease(id, lease, remember, remember_max)
  if lease[FORGOTTEN_AT] <= NOW then
    call('DEL', name_of_lease(id))
    return
  end
  call('SET', name_of_lease(id), cmsgpack.pack(unpack(lease)), 'PX', ttl_ms(lease[FORGOTTEN_AT]))
  local count = call('RPUSH', PAST, text(lease[FORGOTTEN_AT]) .. ':' .. id)
  if lease[FORGOTTEN_AT] > past_until then
    past_until = NOW + 2 * remember + MINUTE
    call('PEXPIRE', PAST, ttl_ms(past_until))
    save_meta()
  end
  forget_past(count, remember_max)
end
