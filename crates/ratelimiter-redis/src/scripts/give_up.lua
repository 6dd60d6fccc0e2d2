-- A caller that waited is denied for good, unless its lease was decided meanwhile.
--
-- ARGV: lease, how long and how many past leases are remembered, the first key without room.
-- Answer: what the lease is.
-- Cost: 2 operations; 3 more for a lease that was not decided.

local id, remember, remember_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
is_current('')
local lease = lease_of(id, remember)
if lease then
  return { 'decided', NOW }
end
remember_lease(id, { 'd', NOW, NOW + remember, ARGV[4] }, remember, remember_max)
return { 'given_up', NOW }
