-- Ends the script on a replica, which would answer reads with a document that may be outdated, and whose locks keep nobody out. It refuses each
-- write, even of a key that does not exist. Other reasons not to write do not matter to who only reads.
--
-- After a write Redis lets a script go on when `maxmemory` is reached. So locks are to be had then, and a document is refused, for that script
-- does without this.
-- Cost: 1 operation.
local probe = redis.pcall('PEXPIRE', DOCUMENT .. ':probe', 1)
if type(probe) == 'table' and probe.err:find('READONLY', 1, true) then
  return probe
end
