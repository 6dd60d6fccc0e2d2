-- A caller that waited is denied for good, unless its lease was decided meanwhile.
--
-- ARGV: lease, how long and how many past leases are remembered, the first key without room.
-- Answer: what the lease is.
-- Cost: 2 operations; 3 more for a lease that was not decided.

local id, remember, remember_max = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = call('MGET', META, name_of_lease(id))
is_current('', stored[1])
local lease = lease_from(stored[2], remember)
if lease then
  return { 'decided', NOW }
end
--@ past
remember_lease(id, { 'd', NOW, NOW + remember, ARGV[4] }, remember, remember_max)
return { 'given_up', NOW }
