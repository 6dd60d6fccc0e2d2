-- Makes the server an owner of the document. An earlier lock of the same server ends, so that what it sent with that comes to nothing.
--
-- ARGV: the new token, "x" for the only owner or "s" for one of several, a description.
-- Answer: `owned`, or `in_use` with the letter and the description of another owner.
-- Cost: 5 operations, and up to 2 for each other owner.

--@ primary
local token, access, description = ARGV[5], ARGV[6], ARGV[7]
local owners = call('HGETALL', OWNERS)
for at = 1, #owners, 2 do
  local name, other = owners[at], owners[at + 1]
  if name ~= NAME then
    if call('EXISTS', DOCUMENT .. ':owner:' .. name) == 0 then
      call('HDEL', OWNERS, name)
    elseif access == 'x' or other:sub(1, 1) == 'x' then
      return { 'in_use', other:sub(1, 1), other:sub(3) }
    end
  end
end
call('HSET', OWNERS, NAME, access .. ' ' .. description)
call('PEXPIRE', OWNERS, TTL)
call('SET', OWNER, token, 'PX', TTL)
return { 'owned' }
