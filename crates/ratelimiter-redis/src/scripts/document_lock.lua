-- Locks out the changes of other servers. An earlier lock of the same server ends. Who finds the document locked is next, so that a server that
-- makes one change after another does not keep the others out.
--
-- ARGV: the new token, how long a server is next, in milliseconds.
-- Answer: `locked`, or `busy`.
-- Cost: 4 or 5 operations.

--@ primary
local WAITING = DOCUMENT .. ':waiting'
local holder, waiting = call('GET', CHANGE), call('GET', WAITING)
local is_locked = holder and holder:sub(1, #NAME) ~= NAME
if is_locked or (waiting and waiting ~= NAME) then
  call('SET', WAITING, NAME, 'NX', 'PX', ARGV[6])
  return { 'busy' }
end
call('SET', CHANGE, ARGV[5], 'PX', TTL)
if waiting then
  call('DEL', WAITING)
end
return { 'locked' }
