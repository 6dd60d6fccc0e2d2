-- Makes the server an owner of the document. An earlier lock of the same server ends, so that what it sent with that comes to nothing.
--
-- ARGV: the new token, "x" for the only owner or "s" for one of several, a description.
-- Answer: `owned`, or `in_use` with the letter and the description of another owner, and how many milliseconds the locks of all others last.
-- Cost: 6 operations, and up to 2 for each other owner.

--@ primary
local token, access, description = ARGV[5], ARGV[6], ARGV[7]
local owners = call('HGETALL', OWNERS)
local in_use, lasts = nil, 0
for at = 1, #owners, 2 do
  local name, other = owners[at], owners[at + 1]
  if name ~= NAME then
    local ttl = call('PTTL', DOCUMENT .. ':owner:' .. name)
    if ttl == -2 then
      call('HDEL', OWNERS, name)
    elseif access == 'x' or other:sub(1, 1) == 'x' then
      in_use, lasts = other, math.max(lasts, ttl)
    end
  end
end
if in_use then
  return { 'in_use', in_use:sub(1, 1), in_use:sub(3), lasts }
end
call('HSET', OWNERS, NAME, access .. ' ' .. description)
call('PEXPIRE', OWNERS, owners_ttl())
call('SET', OWNER, token, 'PX', TTL)
return { 'owned' }
